"""A first call: what it prints of itself, and what it leaves of the collector's settings."""

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import graphc as torch
from graphc import config
from graphc.collecting import APART, FAR_APART, FEWER, FEWEST, IMPORTING


@pytest.fixture(autouse=True)
def threshold() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    gc.set_threshold(701, 11, 12)
    yield gc.get_threshold()
    gc.set_threshold(*before)


def test_collections_are_apart_until_the_last_one_leaves(threshold: tuple[int, int, int]) -> None:
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with FEWER:
            inside.set()
            leave.wait(20)

    thread = threading.Thread(target=work)
    with FEWER:
        assert gc.get_threshold() == (APART, 11, 12)
        thread.start()
        assert inside.wait(20)
    assert gc.get_threshold() == (APART, 11, 12)
    leave.set()
    thread.join()
    assert gc.get_threshold() == threshold
    with pytest.raises(ZeroDivisionError), FEWER:
        _ = 1 // 0
    assert gc.get_threshold() == threshold


def test_what_is_furthest_apart_holds_whoever_leaves_first(threshold: tuple[int, int, int]) -> None:
    for first, second in ((FEWER, FEWEST), (FEWEST, FEWER)):
        first.__enter__()
        second.__enter__()
        assert gc.get_threshold() == (FAR_APART, 11, 12)
        first.__exit__(None, None, None)
        left = APART if second is FEWER else FAR_APART
        assert gc.get_threshold() == (left, 11, 12)
        second.__exit__(None, None, None)
        assert gc.get_threshold() == threshold


_SETTLED = """
import gc
import os
gc.disable()
import graphc
from graphc.collecting import IMPORTING
gc.enable()
for frozen in (False, True):
    if frozen:
        gc.freeze()
    with IMPORTING:
        made = [[] for _ in range(100)]
    assert bool(gc.get_freeze_count()) is frozen
    assert any(made is old for old in gc.get_objects(2)) is not frozen
asked = []
gc.get_freeze_count = lambda: asked.append(1)
with IMPORTING:
    pass
assert not asked # which looks at each frozen object
"""


def test_modules_are_old_at_once_and_what_the_user_froze_stays_frozen() -> None:
    subprocess.run([sys.executable, "-c", _SETTLED], check=True)


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with IMPORTING, FEWEST:
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize("own", [(0, 10, 10), (5, 5, 5), (APART + 1, 3, 3)])
def test_what_the_user_sets_meanwhile_stays(own: tuple[int, int, int]) -> None:
    with FEWER:
        gc.set_threshold(*own)
    assert gc.get_threshold() == own
    with FEWER:
        assert gc.get_threshold()[0] in (own[0], APART)
    assert gc.get_threshold() == own


def test_a_first_call_restores_it_where_it_raises_too(threshold: tuple[int, int, int]) -> None:
    @torch.compile
    def f(x: Any, fails: bool) -> Any:
        if fails:
            raise ValueError("mine")
        return x * 2

    with pytest.raises(ValueError, match="mine"):
        f(torch.ones(2), True)
    assert gc.get_threshold() == threshold
    assert f(torch.ones(2), False).tolist() == [2, 2] and gc.get_threshold() == threshold


def test_the_bill(capsys: pytest.CaptureFixture[str]) -> None:
    @torch.compile
    def bill(x: Any) -> Any:
        return (x * 3).relu()

    with config.override(debug=1):
        bill(torch.ones(2))
        bill(torch.ones(2))
    said = capsys.readouterr().err
    assert said.count("bill: first call: recording ") == 1
    for part in ("compiling or loading", "first run", "importing graphc so far"):
        assert part in said


def test_a_program_without_convolutions_or_attention_imports_none_of_their_code() -> None:
    code = (
        "import sys, graphc as torch\n"
        "f = torch.compile(lambda x, w: (x @ w).relu().sum(1).sort().values)\n"
        "print(f(torch.ones(3, 4), torch.ones(4, 5)).tolist())\n"
        "print(sorted(name for name in sys.modules if name.startswith('graphc.backends.llvm.')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "GRAPHC_CACHE_DIR": ""},
    )
    result, names = done.stdout.splitlines()
    assert result == "[20.0, 20.0, 20.0]" and "backends.llvm.gemm_kernel" in names
    for each in ("conv_kernel", "conv_libraries", "attention_block", "apart"):
        assert f"graphc.backends.llvm.{each}'" not in names
