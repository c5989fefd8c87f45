"""Libraries by ctypes, against the same programs in this process: the same bits."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
from graphc.export import Dim, ExportedProgram, ExportError, aot, export
from graphc.frontend.tree import flatten

from . import client
from .client import Failed, Library
from .models import CASES, LeNet

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="libraries are for Linux")


@functools.cache
def exported(name: str) -> ExportedProgram:
    torch.manual_seed(0)
    case = CASES[name]
    return export(case.model().eval(), case.args(), dynamic_shapes=case.dynamic)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("libraries")


def made(folder: Path, name: str, **options: Any) -> Library:
    """The library of a case."""
    called = name + "".join(f"_{key}{value}" for key, value in sorted(options.items()))
    path = folder / f"lib{called}.so"
    if not path.exists():
        aot(exported(name), folder, name=called, **options)
    return Library(path, called)


def expected(result: Any) -> list[np.ndarray]:
    leaves, _ = flatten(result)
    return [
        np.array(leaf) if isinstance(leaf, int) else leaf.detach()._graphc_array for leaf in leaves
    ]


def same(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        assert one.tobytes() == other.tobytes()


def arrays(args: tuple[Any, ...]) -> list[np.ndarray]:
    return [np.asarray(each._graphc_array, order="C") for each in args]


QUICK = ("small", "kinds")
CALLED = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CASES
]


@pytest.mark.parametrize("name", CALLED)
def test_the_bits_of_the_program(name: str, folder: Path) -> None:
    """Unfrozen code is the program's; with 1, 2 and 4 threads, and the same memory again."""
    torch.manual_seed(1)
    program, library = exported(name), made(folder, name, freeze=False)
    calls = [CASES[name].args(), *CASES[name].others()]
    context = library.context()
    for threads in (1, 2, 4, 1):
        assert library.set_threads(context.pointer, threads) == 0
        for args in (*calls, *calls[::-1]):
            same(context(*arrays(args)), expected(program(*args)))
    context.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lenet", "norms"])
def test_frozen_weights(name: str, folder: Path) -> None:
    """What hangs on weights alone is there already: the bits of a compiled model that answers."""
    torch.manual_seed(0)
    args = CASES[name].args()  # as in `exported`: the model is the same
    torch.manual_seed(0)
    model = CASES[name].model().eval()
    library = made(folder, name)
    context = library.context()
    with torch.no_grad():
        compiled = torch.compile(model)
        for given in (args, *CASES[name].others()):
            (found,) = context(*arrays(given))
            np.testing.assert_allclose(found, compiled(*given)._graphc_array, rtol=1e-4, atol=1e-5)
    context.close()


def test_what_a_library_says_of_itself(folder: Path) -> None:
    library = made(folder, "small", freeze=False)
    assert library.abi() == 1 and library.states() == 0
    assert library.entries("input") == [("x", np.dtype(np.float32), [-1, -2, 16])]
    assert library.entries("output") == [
        ("result[0]", np.dtype(np.float32), [-1, -2]),
        ("result[1]", np.dtype(np.int64), []),
    ]
    assert library.named_sizes() == [("batch", 1, 5), ("length", 2, 1000)]
    assert library.text(0) == b"GRAPHC_OK" and library.text(5) == b"GRAPHC_RANGE"
    assert library.text(99) == library.text(-1) == b"GRAPHC_UNKNOWN"


def test_only_the_models_names_are_seen(folder: Path) -> None:
    library = made(folder, "small", freeze=False)
    from graphc.backends.llvm.freestanding.entry import FUNCTIONS

    shown = {
        line.split()[-1] for line in subprocess.run(
            ["nm", "-D", "--defined-only", folder / "libsmall_freezeFalse.so"],
            capture_output=True, text=True, check=True,
        ).stdout.splitlines()
    }
    assert shown == {f"{library.name}_{each}" for each in FUNCTIONS}


@pytest.mark.slow
def test_results_by_their_keys(folder: Path) -> None:
    names = {each[0] for each in made(folder, "sequence", freeze=False).entries("output")}
    assert names == {"result['every']", "result['last']", "result['cell']"}


def test_two_models_at_once(folder: Path) -> None:
    """Kernels of equal names do not mix, nor do contexts of one with functions of the other."""
    one, other = made(folder, "kinds", freeze=False), made(folder, "small", freeze=False)
    torch.manual_seed(2)
    first, second = CASES["kinds"].args(), CASES["small"].args()
    a, b, again = one.context(threads=2), other.context(threads=2), one.context()
    for _ in range(3):
        same(a(*arrays(first)), expected(exported("kinds")(*first)))
        same(b(*arrays(second)), expected(exported("small")(*second)))
        same(again(*arrays(first)), expected(exported("kinds")(*first)))
    given = (client.Tensor * 1)(client.tensor_of(arrays(second)[0]))
    assert one.run(b.pointer, given, given) == client.ARGUMENT
    assert one.message(b.pointer) == b"this is no context" and one.cpu(b.pointer) is None
    one.destroy(b.pointer)  # does nothing
    same(b(*arrays(second)), expected(exported("small")(*second)))
    for each in (a, b, again):
        each.close()


def test_a_context_for_each_thread(folder: Path) -> None:
    library = made(folder, "small", freeze=False)
    torch.manual_seed(3)
    calls = [CASES["small"].args() for _ in range(4)]
    wanted = [expected(exported("small")(*args)) for args in calls]
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        try:
            context = library.context(threads=2)
            for _ in range(40):
                same(context(*arrays(calls[number])), wanted[number])
            context.close()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]


# --- weights in a file ----------------------------------------------------------------------------


@pytest.mark.parametrize("freeze", [False, True])
def test_weights_in_a_file(freeze: bool, folder: Path, tmp_path: Path) -> None:
    library = made(folder, "small", freeze=freeze, weights="file")
    path = folder / f"{library.name}.safetensors"
    args = CASES["small"].args()
    context = library.context(weights_path=str(path).encode())
    found, _ = context(*arrays(args))
    wanted = expected(exported("small")(*args))[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    context.close()
    data = path.read_bytes()
    room = mmap.mmap(-1, len(data))
    room.write(data)
    place = ctypes.addressof(ctypes.c_char.from_buffer(room))
    context = library.context(weights=place, weights_bytes=len(data))
    same(context(*arrays(args))[:1], [found])
    context.close()
    if not freeze:
        import safetensors.numpy

        named = safetensors.numpy.load(data)
        assert set(named) == set(exported("small").state_dict)
    other = tmp_path / "other"
    for content, code, text in (
        (data[:-1], client.FILE, f"has {len(data) - 1} bytes"),
        (data.replace(b"layer", b"lager"), client.FILE, "another than the one"),
    ):
        other.write_bytes(content)
        with pytest.raises(Failed, match=text) as raised:
            library.context(weights_path=str(other).encode())
        assert raised.value.code == code
    for options, text in (
        ({}, "options.weights_path says where"),
        ({"weights_path": b"/nowhere/at all"}, "/nowhere/at all cannot be opened"),
        ({"weights": place, "weights_bytes": 3}, "weights_bytes is 3"),
    ):
        with pytest.raises(Failed, match=text) as raised:
            library.context(**options)
        assert raised.value.code == client.FILE
    with pytest.raises(Failed, match="not aligned to 64"):
        library.context(weights=place + 8, weights_bytes=len(data))


# --- what is refused ------------------------------------------------------------------------------


def test_wrong_arguments(folder: Path) -> None:
    library = made(folder, "small", freeze=False)
    context = library.context()
    good = np.zeros((2, 3, 16), np.float32)
    outputs = context.outputs([good])
    for given, code, text in (
        (good.astype(np.float64), client.DTYPE, r"x must be of dtype f32 \(number 8\), .* 9"),
        (good[0], client.RANK, "x must have 3 dims, has 2"),
        (np.zeros((2, 3, 17), np.float32), client.SHAPE, "dim 2 of x must be 16, is 17"),
        (np.zeros((6, 3, 16), np.float32), client.RANGE,
         "dim 0 of x gives 6 for batch, which may be 1 to 5"),
        (np.zeros((0, 3, 16), np.float32), client.RANGE, "dim 0 of x gives 0 for batch"),
    ):
        with pytest.raises(Failed, match=text) as raised:
            context.run([given], outputs)
        assert raised.value.code == code
        with pytest.raises(Failed, match=text):
            context.outputs([given])
    context.run([good], outputs)

    def run(given: client.Tensor, taken: list[client.Tensor]) -> int:
        return library.run(context.pointer, (client.Tensor * 1)(given), (client.Tensor * 2)(*taken))

    def tensors() -> tuple[client.Tensor, list[client.Tensor]]:
        return client.tensor_of(good), [client.tensor_of(each) for each in outputs]

    for change, code, text in (
        (lambda x, y: setattr(x, "data", None), client.ARGUMENT, "x: data is NULL"),
        (lambda x, y: setattr(x, "shape", None), client.ARGUMENT, "x: shape is NULL"),
        (lambda x, y: setattr(x, "data", x.data + 2), client.ARGUMENT, "not aligned to 4"),
        (lambda x, y: setattr(x, "bytes", 383), client.BYTES, "x needs 384 bytes, has 383"),
        (lambda x, y: setattr(y[0], "bytes", -1), client.BYTES, "result[0] needs 24 bytes"),
        (lambda x, y: setattr(y[1], "data", None), client.ARGUMENT, "result[1]: data is NULL"),
        (lambda x, y: setattr(y[1], "dtype", 8), client.DTYPE, "result[1] must be of dtype i64"),
        (lambda x, y: setattr(y[0], "rank", 1), client.RANK, "result[0] must have 2 dims"),
        (lambda x, y: setattr(y[0], "data", x.data + 380), client.OVERLAP,
         "the memory of result[0] is also that of x"),
        (lambda x, y: setattr(y[1], "data", y[0].data + 8), client.OVERLAP,
         "the memory of result[1] is also that of result[0]"),
    ):
        given, taken = tensors()
        change(given, taken)
        assert run(given, taken) == code, text
        assert text in library.message(context.pointer).decode()
    for call in (library.run, library.shapes):
        assert call(context.pointer, None, None) == client.ARGUMENT
        assert call(None, None, None) == client.ARGUMENT
    given, taken = tensors()
    given.shape = (ctypes.c_int64 * 3)(-(1 << 63), 1 << 62, 16)
    assert run(given, taken) == client.RANGE
    assert run(*tensors()) == 0
    context.close()
    library.destroy(None)
    assert library.set_threads(None, 2) == client.ARGUMENT


def test_a_context_that_is_busy(folder: Path) -> None:
    library = made(folder, "small", freeze=False)
    context = library.context()
    x = np.ones((2, 3, 16), np.float32)
    outputs = context.outputs([x])
    given = (client.Tensor * 1)(client.tensor_of(x))
    taken = (client.Tensor * 2)(*map(client.tensor_of, outputs))
    wrong = set()
    slow = library.context()
    many = np.ones((5, 1000, 16), np.float32)
    places = slow.outputs([many])
    large = (client.Tensor * 1)(client.tensor_of(many))
    into = (client.Tensor * 2)(*map(client.tensor_of, places))
    begun = threading.Barrier(2)

    def work() -> None:
        begun.wait()
        for _ in range(200):
            wrong.add(library.run(slow.pointer, large, into))

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    here = {library.run(slow.pointer, large, into) for _ in range(200)}
    thread.join()
    assert here | wrong <= {0, client.BUSY} and 0 in here | wrong
    assert library.run(slow.pointer, large, into) == 0
    same(places, slow(many))
    assert library.run(context.pointer, given, taken) == 0
    context.close()
    slow.close()


def test_wrong_options(folder: Path) -> None:
    library = made(folder, "small", freeze=False)
    for options, code, text in (
        ({"threads": 2000}, client.THREADS, "threads is 2000"),
        ({"threads": -1}, client.THREADS, "threads is -1"),
        ({"sizes": (6, 24)}, client.RANGE, "options.sizes has 6 for batch, which may be 1 to 5"),
        ({"cpu": b"pentium"}, client.CPU, "no code for pentium"),
        ({"memory": 64, "memory_bytes": 100}, client.MEMORY, "memory_bytes is 100"),
        ({"memory": 65, "memory_bytes": 1 << 30}, client.ARGUMENT, "not aligned to 64"),
    ):
        with pytest.raises(Failed, match=text) as raised:
            library.context(**options)
        assert raised.value.code == code
    options = client.Options(abi=2)
    options.message = ctypes.c_char_p(8)  # where nothing is
    options.message_bytes = 64
    where = ctypes.c_void_p()
    assert library.create(ctypes.byref(options), ctypes.byref(where)) == client.ARGUMENT
    assert library.bytes(ctypes.byref(options)) == -client.ARGUMENT
    assert library.create(None, None) == client.ARGUMENT
    context = library.context()
    assert library.set_threads(context.pointer, 0) == client.THREADS
    assert library.message(context.pointer) == b"threads is 0: 1 to 1024"
    context.close()


def test_memory_of_the_callers(folder: Path) -> None:
    """A context for small sizes is small, and refuses larger calls; memory may be anyone's."""
    library = made(folder, "small", freeze=False)
    small = (ctypes.c_int64 * 2)(2, 4)
    options = client.Options(abi=1, threads=2, sizes=small)
    size = library.bytes(ctypes.byref(options))
    assert 0 < size < library.bytes(None)
    room = mmap.mmap(-1, size + 4096)
    place = ctypes.addressof(ctypes.c_char.from_buffer(room))
    ctypes.memset(place, 0xCD, size + 4096)
    context = library.context(threads=2, sizes=(2, 4), memory=place, memory_bytes=size)
    args = (torch.randn(2, 4, 16),)
    same(context(*arrays(args)), expected(exported("small")(*args)))
    with pytest.raises(Failed, match=r"needs \d+ bytes, and the context has \d+") as raised:
        context(np.zeros((5, 1000, 16), np.float32))
    assert raised.value.code == client.RANGE
    assert library.set_threads(context.pointer, 100) == client.MEMORY
    assert library.set_threads(context.pointer, 1) == 0
    same(context(*arrays(args)), expected(exported("small")(*args)))
    context.close()
    assert room[size:] == b"\xcd" * 4096


class _Pick(nn.Module):
    def forward(self, x: Any, i: Any) -> Any:
        return x[i] + 1


def test_an_index_out_of_range(folder: Path) -> None:
    program = export(_Pick(), (torch.arange(4.0), torch.tensor([1, 3])))
    made = aot(program, folder, name="pick")
    context = Library(made.library, "pick").context()
    x = np.arange(4, dtype=np.float32)
    same(context(x, np.array([0, -1])), [np.array([1, 4], np.float32)])
    for _ in range(2):
        with pytest.raises(Failed, match=r"(?s)index 4 .*test_library\.py:\d+") as raised:
            context(x, np.array([0, 4]))
        assert raised.value.code == client.VALUE
    same(context(x, np.array([2, 1])), [np.array([3, 2], np.float32)])
    context.close()


@pytest.mark.parametrize(("function", "text"), [
    (lambda x: torch.sort(x)[0], r"by NumPy.* sort \(.*test_library\.py:\d+\)"),
    (lambda x: torch.fft.fft(x).real, "by NumPy.*fft"),
    (lambda x: torch.complex(x, x), "complex64, which the C interface"),
])
def test_what_a_library_cannot_do(function: Any, text: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=text):
        aot(export(function, (torch.randn(4),)), tmp_path, name="m")
    assert not list(tmp_path.iterdir())


def test_what_no_library_is_made_of(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="not of Linear"):
        aot(nn.Linear(2, 2), tmp_path)
    with pytest.raises(ExportError, match=r"writes to num_batches_tracked.*model\.eval\(\)"):
        aot(export(nn.BatchNorm1d(4).train(), (torch.randn(3, 4),)), tmp_path)


def test_names_and_sizes_are_asked_for(tmp_path: Path) -> None:
    program = export(lambda x: x + 1, (torch.randn(4),), dynamic_shapes={"x": {0: "n"}})
    with pytest.raises(ExportError, match=r"'n' has no largest value.*sizes=\{'n': 64\}"):
        aot(program, tmp_path, name="m")
    for name in ("", "1st", "a-b", "int", "graphc_x", "x" * 65, "é"):
        with pytest.raises(ValueError, match="cannot begin C functions' names"):
            aot(program, tmp_path, name=name, sizes={"n": 8})
    with pytest.raises(ExportError, match="names 'm', which is no free size"):
        aot(program, tmp_path, name="m", sizes={"m": 8})
    with pytest.raises(ValueError, match="no target"):
        aot(program, tmp_path, name="m", sizes={"n": 8}, targets=["z80"])
    with pytest.raises(ValueError, match="weights must be"):
        aot(program, tmp_path, name="m", weights="somewhere")
    assert not list(tmp_path.iterdir())
    made = aot(program, tmp_path, sizes={"n": (2, 8)})
    assert made.library.name == "lib_lambda.so" or made.library.name.startswith("lib")


# --- processes ------------------------------------------------------------------------------------


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


# --- memory ---------------------------------------------------------------------------------------


def at_the_end(array: np.ndarray) -> tuple[np.ndarray, Any]:
    """The array in memory behind which nothing may be touched."""
    libc = ctypes.CDLL(None, use_errno=True)
    pages = -(-array.nbytes // mmap.PAGESIZE) + 1
    room = mmap.mmap(-1, pages * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(room))
    last = start + (pages - 1) * mmap.PAGESIZE
    assert libc.mprotect(ctypes.c_void_p(last), mmap.PAGESIZE, 0) == 0
    kind = (ctypes.c_uint8 * array.nbytes).from_address(last - array.nbytes)
    placed = np.frombuffer(kind, array.dtype).reshape(array.shape)
    placed[...] = array
    return placed, room


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


def test_names_end_no_comment_and_no_text(tmp_path: Path) -> None:
    """What a model calls its results is anybody's text."""
    key = 'a*/ int x; /* \\ "q" %s \n ??/ \x03\x00 é'
    program = export(lambda x: {key: x + 1}, (torch.zeros(2),))
    made = aot(program, tmp_path, name="m")
    text = made.header.read_text()
    first = text.index("*/")
    assert text[first + 2 :].startswith("\n#ifndef GRAPHC_M_H") and "\\" not in text[:first]
    library = Library(made.library, "m")
    (entry,) = library.entries("output")
    assert entry[0] == f"result[{key!r}]"
    context = library.context()
    x = np.zeros(2, np.float32)
    with pytest.raises(Failed) as raised:
        context.run([x], [np.zeros((1, 2), np.float32)])
    assert raised.value.text == f"result[{key!r}] must have 1 dims, has 2"
    context.close()


class _Other(nn.Module):
    """Another graph where a size is 1."""

    def forward(self, x: Any) -> Any:
        return x.sum(0) if x.shape[0] > 1 else x[0] * 3


class _Fewer(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.squeeze(0) + 1


def test_a_graph_of_its_own_for_a_size_of_one(tmp_path: Path) -> None:
    program = export(_Other(), (torch.randn(3, 4),), dynamic_shapes={"x": {0: Dim("n", max=6)}})
    library = Library(aot(program, tmp_path, name="other").library, "other")
    assert library.named_sizes() == [("n", 1, 6)]
    context = library.context()
    for n in (1, 2, 6, 1):
        x = torch.randn(n, 4)
        same(context(*arrays((x,))), expected(program(x)))
    context.close()
    program = export(_Fewer(), (torch.randn(3, 4),), dynamic_shapes={"x": {0: Dim("n", max=6)}})
    with pytest.raises(ExportError, match=r"where n is 1.*other kinds.*\(2, \.\.\.\)"):
        aot(program, tmp_path, name="fewer")
    library = Library(aot(program, tmp_path, name="fewer", sizes={"n": (2, 6)}).library, "fewer")
    assert library.named_sizes() == [("n", 2, 6)]


def test_sizes_that_follow_another(tmp_path: Path) -> None:
    n = Dim("n", max=5)
    program = export(
        lambda x, y: x.sum() + y, (torch.randn(2), torch.randn(5)),
        dynamic_shapes={"x": {0: n}, "y": {0: 2 * n + 1}},
    )
    library = Library(aot(program, tmp_path, name="follows").library, "follows")
    assert library.entries("input")[1][2] == [-(1 << 63)]
    context = library.context()
    for size in (1, 3, 5):
        args = (torch.randn(size), torch.randn(2 * size + 1))
        same(context(*arrays(args)), expected(program(*args)))
    for sizes, code, text in (
        ((2, 6), client.SHAPE, "dim 0 of y is 6, which no value of n gives"),
        ((2, 7), client.SHAPE, "dim 0 of y gives 3 for n, which is 2 elsewhere"),
    ):
        with pytest.raises(Failed, match=text) as raised:
            context(*(np.zeros(each, np.float32) for each in sizes))
        assert raised.value.code == code
    context.close()


def test_a_model_that_takes_nothing_big(tmp_path: Path) -> None:
    """No inputs, empty tensors, results that are all copies."""
    weight = torch.arange(3)
    program = export(lambda x, y: (x, y.sum(0), weight), (torch.zeros(0, 3), torch.zeros(0, 2)))
    library = Library(aot(program, tmp_path, name="empty").library, "empty")
    context = library.context()
    x, y = np.zeros((0, 3), np.float32), np.zeros((0, 2), np.float32)
    found = context(x, y)
    same(found, [x, np.zeros(2, np.float32), np.arange(3)])
    context.close()
    program = export(lambda: torch.full((2, 2), 3.0), ())
    library = Library(aot(program, tmp_path, name="alone").library, "alone")
    context = library.context()
    same(context(), [np.full((2, 2), 3, np.float32)])
    context.close()


def test_loops_and_branches(tmp_path: Path) -> None:
    """A loop that ends by its values looks at no signals: there is no Python to have any."""
    def steps(x: Any, n: Any) -> Any:
        def more(i: Any, x: Any) -> Any:
            return (i < n) & (x.sum() < 1000)

        return torch._higher_order_ops.while_loop(
            more, lambda i, x: (i + 1, x * 1.5 + 1), (torch.tensor(0), x)
        )

    args = (torch.arange(4.0), torch.tensor(5))
    program = export(steps, args)
    library = Library(aot(program, tmp_path, name="steps").library, "steps")
    context = library.context()
    for n in (0, 3, 100):
        given = (args[0], torch.tensor(n))
        same(context(*arrays(given)), expected(program(*given)))
    context.close()


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


def test_the_same_model_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    program = exported("small")
    first = aot(program, tmp_path / "a", name="m")
    second = aot(program, tmp_path / "b", name="m")
    assert first.library.read_bytes() == second.library.read_bytes()
    assert first.header.read_text() == second.header.read_text()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from graphc.__main__ import main

    exported("small").save(tmp_path / "m.gcx")
    folder = tmp_path / "out"
    arguments = ["aot", str(tmp_path / "m.gcx"), "--out", str(folder), "--name", "m"]
    assert main([*arguments, "--size", "length=8", "--weights", "file"]) == 0
    assert sorted(each.name for each in folder.iterdir()) == ["libm.so", "m.h", "m.safetensors"]
    assert "libm.so" in capsys.readouterr().out
    assert Library(folder / "libm.so", "m").named_sizes()[1] == ("length", 2, 8)
    assert main([*arguments[:-1], "7up"]) == 2
    assert "cannot begin" in capsys.readouterr().err


@pytest.mark.slow
def test_lenet_has_the_size_of_its_weights(folder: Path) -> None:
    made(folder, "lenet")
    weights = sum(each.numel() for each in LeNet().parameters()) * 4
    assert (folder / "liblenet.so").stat().st_size < 3 * weights
