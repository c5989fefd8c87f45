"""Libraries in processes that fork, start threads, and unload them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from .libraries import arrays, made, same
from .models import CASES


def test_fork(folder: Path) -> None:
    """A child's contexts work, with threads of its own; it need not destroy them."""
    library = made(folder, "small", freeze=False)
    args = CASES["small"].args()
    context = library.context(threads=2)
    wanted = context(*arrays(args))
    code = f"""
import os, sys
from pathlib import Path
import numpy as np
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from tests.export.aot.client import Library
library = Library(Path({str(folder / 'libsmall_freezeFalse.so')!r}), {library.name!r})
context = library.context(threads=2)
x = np.load(sys.argv[1])
wanted = context(x)[0].tobytes()
assert len(os.listdir('/proc/self/task')) == 2
child = os.fork()
if not child:
    assert len(os.listdir('/proc/self/task')) == 1
    for _ in range(20):
        assert context(x)[0].tobytes() == wanted
    assert len(os.listdir('/proc/self/task')) == 2
    if sys.argv[2] == 'close':
        context.close()
        assert len(os.listdir('/proc/self/task')) == 1
    os._exit(7) if sys.argv[2] == 'leave' else sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert context(x)[0].tobytes() == wanted
"""
    file = folder / "x.npy"
    np.save(file, arrays(args)[0])
    for end in ("close", "exit", "leave"):
        subprocess.run(
            [sys.executable, "-c", code, str(file), end], check=True, timeout=60,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
    same(context(*arrays(args)), wanted)
    context.close()


def test_unloading_joins_threads(folder: Path) -> None:
    code = f"""
import os, sys
from pathlib import Path
import numpy as np
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from tests.export.aot.client import Library
made(0)
""".replace("made(0)", f"""
path = Path({str(folder / 'libsmall_freezeFalse.so')!r})
x = np.ones((3, 400, 16), np.float32)
found = set()
for _ in range(5):
    library = Library(path, 'small_freezeFalse')
    contexts = [library.context(threads=n) for n in (3, 2, 1)]
    found |= {{each(x)[0].tobytes() for each in contexts}}
    assert len(os.listdir('/proc/self/task')) == 4
    contexts[1].close()
    assert len(os.listdir('/proc/self/task')) == 3
    library.unload()
    assert len(os.listdir('/proc/self/task')) == 1
    assert 'libsmall' not in open('/proc/self/maps').read()
assert len(found) == 1
""")
    made(folder, "small", freeze=False)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60,
                   env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})


def test_affinities_stay(folder: Path) -> None:
    library = made(folder, "small", freeze=False)
    before = {int(each) for each in os.listdir("/proc/self/task")}
    mine = os.sched_getaffinity(0)
    context = library.context(threads=3)
    context(np.ones((3, 400, 16), np.float32))
    started = {int(each) for each in os.listdir("/proc/self/task")} - before
    assert len(started) == 2
    assert all(os.sched_getaffinity(each) == mine for each in (0, *started))
    context.close()
