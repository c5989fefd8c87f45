"""graphc/config.py: one table, read once, overridden per thread."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from graphc import config


def run(code: str, repository: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"from graphc import config; {code}"],
        cwd=repository,
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
    )


def test_values_come_from_the_environment(repository: Path, tmp_path: Path) -> None:
    result = run(
        "print(*config.current())",
        repository,
        GRAPHC_DEBUG="3",
        GRAPHC_THREADS="5",
        GRAPHC_CACHE_DIR="off",
        GRAPHC_CHECK="2",
        GRAPHC_DUMP=str(tmp_path),
        GRAPHC_KEEP_FREED="7",
        GRAPHC_RANDOM="counter",
        GRAPHC_STEPS="1",
        GRAPHC_EAGER_KERNELS="0",
        GRAPHC_AMX="0",
        GRAPHC_CUDA_GRAPHS="0",
        CUDA_LAUNCH_BLOCKING="1",
        GRAPHC_CUDA_LIBRARIES="1",
        GRAPHC_WINOGRAD="0.5",
        GRAPHC_MAX_AUTOTUNE="1",
    )
    assert result.stdout.split() == [
        "3", "5", "None", "2", str(tmp_path), "7", "counter", "1", "0", "0", "0", "1",
        "1", "0.5", "1",
    ]


@pytest.mark.parametrize(
    ("variable", "value", "cure"),
    [
        ("GRAPHC_DEBUG", "6", "whole number from 0 to 5"),
        ("GRAPHC_THREADS", "-1", "whole number from 1"),
        ("GRAPHC_RANDOM", "philox", "auto or torch or counter"),
        ("GRAPHC_STEPS", "2", "auto or 0 or 1"),
        ("GRAPHC_EAGER_KERNELS", "auto", "0 or 1"),
        ("GRAPHC_CUDA_GRAPHS", "2", "auto or 0 or 1"),
        ("GRAPHC_CUDA_LIBRARIES", "yes", "auto or 0 or 1"),
        ("GRAPHC_WINOGRAD", "yes", "0, 1 or a number between"),
        ("GRAPHC_WINOGRAD", "1.5", "0, 1 or a number between"),
    ],
)
def test_a_bad_value_is_named(variable: str, value: str, cure: str, repository: Path) -> None:
    result = run("", repository, **{variable: value})
    assert result.returncode
    assert f"{variable}={value!r}" in result.stderr
    assert cure in result.stderr


def test_the_cache_folder_follows_xdg(repository: Path) -> None:
    code = "print(config.current().cache_dir)"
    assert run(code, repository, XDG_CACHE_HOME="/x").stdout.strip() == "/x/graphc"
    assert run(code, repository, HOME="/h").stdout.strip() == "/h/.cache/graphc"
    relative = run(code, repository, HOME="/h", XDG_CACHE_HOME="x")
    assert relative.stdout.strip() == "/h/.cache/graphc"


def test_override_nests_and_ends() -> None:
    before = config.current()
    with config.override(debug=2, threads=3) as outer:
        assert config.current() is outer
        with config.override(debug=5):
            assert (config.current().debug, config.current().threads) == (5, 3)
        assert config.current() is outer
    assert config.current() is before


def test_override_is_seen_by_its_own_thread_only() -> None:
    seen: list[int] = []
    with config.override(threads=77):
        thread = threading.Thread(target=lambda: seen.append(config.current().threads))
        thread.start()
        thread.join()
    assert seen == [config.current().threads]


def test_set_default_is_seen_by_all_threads() -> None:
    before = config.current().threads
    seen: list[int] = []
    try:
        config.set_default(threads=78)
        thread = threading.Thread(target=lambda: seen.append(config.current().threads))
        thread.start()
        thread.join()
    finally:
        config.set_default(threads=before)
    assert seen == [78]


def test_an_unknown_switch_is_an_error() -> None:
    with pytest.raises(TypeError, match="no switch 'treads'"), config.override(treads=1):
        pass


def test_the_readme_carries_the_table(repository: Path) -> None:
    assert config.table() in (repository / "README.md").read_text()


def test_an_unknown_switch_is_named_once_and_does_not_stop(repository: Path) -> None:
    result = run("print('on')", repository, GRAPHC_DEBGU="1")
    assert result.stdout.strip() == "on"
    assert result.stderr.count("GRAPHC_DEBGU is no switch of graphc") == 1
    assert "Did you mean GRAPHC_DEBUG?" in result.stderr
    far = run("", repository, GRAPHC_XYZZY="1").stderr
    assert "Did you mean GRAPHC_DEBUG or GRAPHC_THREADS" in far
    assert run("", repository, GRAPHC_DEBUG="1").stderr == ""


def test_a_folder_below_one_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ValueError, match="expected an absolute path"):
        config._folder("cache")
    assert config._folder(str(tmp_path)) == tmp_path
