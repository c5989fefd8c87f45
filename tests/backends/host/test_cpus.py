"""Quotas of cgroups, of both versions, as /proc and /sys show them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from graphc.backends.host import cpus

V2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "32 24 0:28 {top} /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
)


def machine(root: Path, cgroup: str, mounts: str, files: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    (root / "proc/self/mountinfo").write_text("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + mounts)
    for name, text in files.items():
        file = root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.mark.parametrize(("files", "wanted"), [
    ({"a/b/cpu.max": "150000 100000\n"}, 1.5),
    ({"a/b/cpu.max": "max 100000\n", "a/cpu.max": "50000 100000\n"}, 0.5),  # a parent's
    ({"a/b/cpu.max": "400000 100000\n", "a/cpu.max": "200000 100000\n"}, 2.0),
    ({"a/b/cpu.max": "max 100000\n"}, None),
    ({"c/cpu.max": "100000 100000\n"}, None),  # somebody else's
    ({"a/b/cpu.max": "what\n"}, None),
    ({"a/b/cpu.max": ""}, None),
    ({}, None),
])
def test_the_second_version(
    files: dict[str, str], wanted: float | None, tmp_path: Path
) -> None:
    assert cpus.quota(machine(tmp_path, "0::/a/b\n", V2, files)) == wanted


@pytest.mark.parametrize(("path", "top", "files", "wanted"), [
    ("/a", "/", {"cpu,cpuacct/a/cpu.cfs_quota_us": "250000\n",
                 "cpu,cpuacct/a/cpu.cfs_period_us": "100000\n"}, 2.5),
    ("/a", "/", {"cpu,cpuacct/a/cpu.cfs_quota_us": "-1\n",
                 "cpu,cpuacct/a/cpu.cfs_period_us": "100000\n"}, None),
    # a container sees its own cgroup as the mount's top
    ("/docker/x", "/docker/x", {"cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
                                "cpu,cpuacct/cpu.cfs_period_us": "25000\n"}, 2.0),
    ("/elsewhere", "/docker/x", {"cpu,cpuacct/cpu.cfs_quota_us": "100000\n",
                                 "cpu,cpuacct/cpu.cfs_period_us": "100000\n"}, 1.0),
])
def test_the_first_version(
    path: str, top: str, files: dict[str, str], wanted: float | None, tmp_path: Path
) -> None:
    cgroup = f"5:memory:/m\n4:cpu,cpuacct:{path}\n3:cpuset:/s\n0::/\n"
    assert cpus.quota(machine(tmp_path, cgroup, V1.format(top=top), files)) == wanted


def test_threads_are_what_the_quota_has_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpus, "allowed", lambda: set(range(8)))
    found = []
    texts = "250000 100000", "50000 100000", "max 100000", "9900000 100000"
    for number, text in enumerate(texts):
        root = machine(tmp_path / str(number), "0::/\n", V2, {"cpu.max": text})
        found.append(cpus.available(root))
    assert found == [2, 1, 8, 8]


def test_where_there_is_nothing_to_read(tmp_path: Path) -> None:
    assert cpus.quota(tmp_path) is None
    assert cpus.available(tmp_path) == len(cpus.allowed())


@pytest.mark.skipif(not hasattr(__import__("os"), "sched_setaffinity"), reason="needs CPU affinity")
def test_the_process_asks_its_affinity_not_the_count_of_the_machine(repository: Path) -> None:
    code = (
        "import os; os.cpu_count = lambda: 64; here = os.sched_getaffinity(0);"
        "os.sched_setaffinity(0, {min(here)}); from graphc import config;"
        "print(config.current().threads)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=repository, env={"PATH": "/usr/bin:/bin"}, text=True,
        capture_output=True, check=True,
    )
    assert done.stdout == "1\n"
