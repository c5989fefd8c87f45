"""Memory that a library's calls may touch, and take."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from . import client
from .libraries import CALLED, arrays, at_the_end, expected, exported, made, same
from .models import CASES


@pytest.mark.parametrize("name", CALLED)
def test_nothing_behind_a_tensor_is_touched(name: str, folder: Path) -> None:
    library = made(folder, name, freeze=False)
    context = library.context(threads=2)
    for args in (CASES[name].args(), *CASES[name].others()):
        wanted = expected(exported(name)(*args))
        inputs = [at_the_end(each) for each in arrays(args)]
        outputs = [at_the_end(each) for each in context.outputs([x for x, _ in inputs])]
        context.run([x for x, _ in inputs], [y for y, _ in outputs])
        same([y for y, _ in outputs], wanted)
    context.close()


@pytest.mark.parametrize("name", CALLED)
def test_nothing_behind_a_context_is_touched(name: str, folder: Path) -> None:
    """Arena and scratch are as large as the library says, for every number of threads."""
    library = made(folder, name, freeze=False)
    for threads in (1, 2, 4):
        size = library.bytes(ctypes.byref(client.Options(abi=1, threads=threads)))
        room, kept = at_the_end(np.full(-(-size // 64) * 64, 0xFF, np.uint8))
        context = library.context(
            threads=threads, memory=room.ctypes.data, memory_bytes=room.nbytes
        )
        for args in (CASES[name].args(), *CASES[name].others()):
            same(context(*arrays(args)), expected(exported(name)(*args)))
        context.close()
        del room, kept

_COUNTER = r"""
#define _GNU_SOURCE
#include <stddef.h>
extern void *__libc_malloc(size_t); extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t); extern void *__libc_memalign(size_t, size_t);
long counted;
void *malloc(size_t n) { counted++; return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { counted++; return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { counted++; return __libc_realloc(p, n); }
void *memalign(size_t a, size_t n) { counted++; return __libc_memalign(a, n); }
"""


@pytest.mark.slow
def test_a_run_allocates_nothing(folder: Path, tmp_path: Path) -> None:
    """malloc and its kin are counted by a library that is loaded before libc."""
    library = made(folder, "small", freeze=False)
    (tmp_path / "counter.c").write_text(_COUNTER)
    counter = tmp_path / "libcounter.so"
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", counter, tmp_path / "counter.c"],
                       check=True)
    except FileNotFoundError:
        pytest.skip("there is no C compiler")
    code = f"""
import ctypes, sys
from pathlib import Path
import numpy as np
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from tests.export.aot import client
counted = ctypes.c_long.in_dll(ctypes.CDLL({str(counter)!r}), 'counted')
library = client.Library(Path({str(folder / f'lib{library.name}.so')!r}), {library.name!r})
context = library.context(threads=3)
x = np.ones((5, 1000, 16), np.float32)
outputs = context.outputs([x])
given = (client.Tensor * 1)(client.tensor_of(x))
taken = (client.Tensor * 2)(*map(client.tensor_of, outputs))
run, pointer, value = library.run, context.pointer.value, ctypes.addressof(counted)
def many(times):
    before = counted.value
    for _ in range(times):
        assert run(pointer, given, taken) == 0
    return counted.value - before
many(3)
one, ten, hundred = many(1), many(10), many(100)
# ctypes itself may allocate for each call, as for one that does nothing
def idle(times):
    before = counted.value
    for _ in range(times):
        assert library.abi() == 1
    return counted.value - before
print(one, ten, hundred, idle(100))
assert hundred <= idle(100), (one, ten, hundred, idle(100))
before = counted.value
context.close()
library.create(None, ctypes.byref(context.pointer))
assert counted.value > before, 'nothing is counted'
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60,
                   env={**os.environ, "LD_PRELOAD": str(counter), "PYTHONMALLOC": "pymalloc"})
