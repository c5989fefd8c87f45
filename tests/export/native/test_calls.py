"""Libraries as callables: load_library."""

from __future__ import annotations

import gc
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
from graphc.export import Dim, ExportError, aot, export, load_library

from .common import library, same

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="libraries are for Linux")


class Rows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(1.0, 5.0))

    def forward(self, x: Any, y: Any) -> Any:
        return (x * self.weight).sum(1), y * 2, x.shape[0]


@pytest.fixture(scope="module")
def program() -> Any:
    return export(Rows().eval(), (torch.rand(3, 4), torch.arange(2)),
                  dynamic_shapes={"x": {0: Dim("n", max=500)}, "y": None})


@pytest.fixture(scope="module")
def made(program: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with librows.so."""
    folder = tmp_path_factory.mktemp("library")
    aot(program, folder, name="rows", freeze=False)
    return folder


def test_a_library_is_a_function(program: Any, made: Path) -> None:
    model = load_library(made)
    assert repr(model).startswith("NativeModel(rows(x: f32[n,4], y: i64[2]), x86-64")
    assert [port.name for port in model.outputs] == ["result[0]", "result[1]", "result[2]"]
    assert model.sizes == (("n", 1, 500),)
    y = torch.arange(2)
    for n in (1, 3, 500, 3):
        x = torch.rand(n, 4)
        rows, doubled, count = program(x, y)
        for found in (model(x, y), model(x, y=y.numpy()), model(y=y, x=x.numpy())):
            assert [type(each) for each in found] == [torch.Tensor] * 3
            same(found[:2], (rows, doubled))
            assert found[2].tolist() == count == n
    assert same(load_library(made / "librows.so", threads=3)(x, y)[0], rows) is None
    path = shutil.copy(made / "librows.so", made.parent / "renamed.so")
    with pytest.raises(ExportError, match=r"not called libNAME\.so\. Cure: name="):
        load_library(path)
    same(load_library(path, name="rows", sizes={"n": 3})(x, y)[0], rows)


def test_one_result_is_no_tuple(tmp_path: Path) -> None:
    model = load_library(library(tmp_path, lambda x: x + 1, torch.zeros(2, 2)))
    assert model(np.ones((2, 2), np.float32)).tolist() == [[2, 2], [2, 2]]
    nothing = load_library(library(tmp_path, lambda: torch.full((2,), 3.0), name="nothing"))
    assert nothing().tolist() == [3, 3]


def test_options(made: Path) -> None:
    x, y = torch.rand(3, 4), torch.arange(2)
    small = load_library(made, sizes={"n": 3}, cpu=load_library(made).cpu, threads=2)
    assert small(x, y)[2].item() == 3
    for options, error, text in (
        ({"sizes": {"m": 3}}, ValueError, "names 'm', which is no free size"),
        ({"sizes": {"n": 501}}, ValueError, "has 501 for n, which may be 1 to 500"),
        ({"cpu": "pentium"}, ExportError, "no code for pentium"),
        ({"threads": 5000}, ExportError, "threads is 5000"),
        ({"name": "other"}, ExportError, "has no function other_abi"),
        ({"weights": "w.safetensors"}, ExportError, "holds its weights itself"),
    ):
        with pytest.raises(error, match=text):
            load_library(made, **options)


def test_wrong_calls(made: Path) -> None:
    model = load_library(made)
    x, y = np.ones((2, 4), np.float32), np.arange(2)
    for error, text, call in (
        (TypeError, "3 arguments are given, the model has 2: x, y", lambda: model(x, y, y)),
        (TypeError, "1 arguments are given, the model has 2: x, y", lambda: model(x)),
        (TypeError, "'y' of rows is given twice", lambda: model(x, y, y=y)),
        (TypeError, "'z' of rows is given and it takes none of that name; it takes x, y",
         lambda: model(x, z=y)),
        (TypeError, "rows needs y", lambda: model(x=x)),
        (TypeError, r"y must be an array or a tensor, got a int\. Cure: numpy\.asarray\(x, 'int64'",
         lambda: model(x, 3)),
        (TypeError, "got a NoneType", lambda: model(x, None)),
        (ValueError, r"x must be f32\[n,4\], got f64\[2,4\]", lambda: model(x.astype(float), y)),
        (ValueError, r"x must be f32\[n,4\], got >f4\[2,4\]", lambda: model(x.astype(">f4"), y)),
        (ValueError, r"x must be f32\[n,4\], got uint16\[2,4\]",
         lambda: model(x.astype(np.uint16), y)),
        (ValueError, r"x must be f32\[n,4\], got f32\[8\]$", lambda: model(x.ravel(), y)),
        (ValueError, "dim 1 of x must be 4, is 3", lambda: model(x[:, :3], y)),
        (ValueError, "dim 0 of x gives 0 for n, which may be 1 to 500", lambda: model(x[:0], y)),
        (ValueError, "x is on meta", lambda: model(torch.empty(2, 4, device="meta"), y)),
    ):
        with pytest.raises(error, match=text):
            call()
    assert model(x, y)[0].tolist() == [10, 10]


def test_a_call_in_a_compiled_function_is_refused(made: Path) -> None:
    model = load_library(made)

    @torch.compile(fullgraph=True)
    def function(x: Any) -> Any:
        return model(x, torch.arange(2))[0] + 1

    with pytest.raises(Exception, match="compiled"):
        function(torch.rand(2, 4))


def test_an_index_out_of_range(tmp_path: Path) -> None:
    path = library(tmp_path, lambda x, i: x[i] + 1, torch.arange(4.0), torch.tensor([1, 3]))
    model = load_library(path)
    for error in (IndexError, RuntimeError):
        with pytest.raises(error, match=r"(?s)index 4 .*test_calls\.py:\d+"):
            model(torch.arange(4.0), torch.tensor([0, 4]))
    assert model(torch.arange(4.0), torch.tensor([0, 3])).tolist() == [1, 4]


def test_outputs_that_are_given(made: Path) -> None:
    model = load_library(made)
    x, y = np.ones((2, 4), np.float32), np.arange(2)
    rows, doubled, count = np.empty(2, np.float32), torch.zeros(2, dtype=torch.int64), np.empty(
        (), np.int64)
    assert model.run([x, y], [rows, doubled, count]) is None
    assert rows.tolist() == [10, 10] and doubled.tolist() == [0, 2] and count == 2
    fixed = rows.copy()
    fixed.flags.writeable = False
    room = np.empty(4, np.float32)
    needed = torch.zeros(2, requires_grad=True)
    for error, text, wrong in (
        (ValueError, r"result\[0\] may not be written", fixed),
        (ValueError, r"result\[0\] has the strides \(8,\) in bytes", room[::2]),
        (ValueError, r"result\[0\] must be f32\[n\], got f64\[2\]", np.empty(2)),
        (ValueError, r"result\[0\] has the shape \(1,\), and the result is \(2,\)", room[:1]),
        (ValueError, r"the memory of result\[0\] is also that of x", x[0, :2]),
        (TypeError, r"result\[0\] must be an array or a tensor, got a list", [0, 0]),
        (ValueError, r"result\[0\] must be f32\[n\]", np.float32(0)),
        (RuntimeError, "no autograd", needed),
    ):
        with pytest.raises(error, match=text):
            model.run([x, y], [wrong, doubled, count])
    with pytest.raises(TypeError, match="1 results are given, the model has 3"):
        model.run([x, y], [rows])


# --- threads, and what is left ------------------------------------------------------------------


def test_threads(program: Any, made: Path) -> None:
    model = load_library(made, threads=2)
    y = torch.arange(2)
    calls = [torch.rand(n, 4) for n in (1, 2, 300, 500) for _ in range(2)]
    wanted = [program(x, y)[0].numpy().tobytes() for x in calls]
    wrong: list[Any] = []
    begun = threading.Barrier(len(calls))

    def work(number: int) -> None:
        begun.wait()
        for _ in range(50):
            if model(calls[number], y)[0].numpy().tobytes() != wanted[number]:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert 1 <= len(model._free) <= len(calls)


def test_the_interpreter_goes_on(tmp_path: Path) -> None:
    """A long call in one thread does not hold the others."""
    def steps(x: Any, n: Any) -> Any:
        return torch._higher_order_ops.while_loop(
            lambda i, x: i < n, lambda i, x: (i + 1, x * 0.5 + 1), (torch.tensor(0), x)
        )

    model = load_library(library(tmp_path, steps, torch.zeros(4), torch.tensor(5)))
    x, n = np.zeros(4, np.float32), 1000
    done = threading.Event()

    def work() -> None:
        model(x, np.array(n))
        done.set()

    while True:  # long enough to be seen
        done.clear()
        thread = threading.Thread(target=work)
        thread.start()
        count = 0
        while not done.is_set():
            count += 1
        thread.join()
        if count > 100_000 or n > 1 << 30:
            break
        n *= 4
    assert count > 100_000


def test_a_library_that_was_made_again(tmp_path: Path) -> None:
    """At the same path: the old model goes on, and the new one is another."""
    path = library(tmp_path, lambda x: x + 1, torch.zeros(2))
    old = load_library(path)
    assert old(np.zeros(2, np.float32)).tolist() == [1, 1]
    library(tmp_path, lambda x: x + 2, torch.zeros(2))
    new = load_library(path)
    assert new(np.zeros(2, np.float32)).tolist() == [2, 2]
    assert old(np.zeros(2, np.float32)).tolist() == [1, 1]


def test_unloading(tmp_path: Path) -> None:
    path = library(tmp_path, lambda x: x * 3, torch.zeros(2), name="gone")

    def mapped() -> bool:
        return str(path) in Path("/proc/self/maps").read_text()

    model = load_library(path, threads=2)
    result = model(np.ones(2, np.float32))
    assert mapped()
    del model
    gc.collect()
    assert not mapped() and result.tolist() == [3, 3]
    ends = (load_library(path), load_library(path))
    del ends
    gc.collect()
    assert not mapped()


# --- files --------------------------------------------------------------------------------------


def test_weights_in_a_file(tmp_path: Path) -> None:
    program = export(Rows().eval(), (torch.rand(3, 4), torch.arange(2)))
    aot(program, tmp_path, name="apart", weights="file")
    x = np.ones((3, 4), np.float32)
    assert load_library(tmp_path)(x, np.arange(2))[0].tolist() == [10] * 3
    weights = (tmp_path / "apart.safetensors").rename(tmp_path / "w.safetensors")
    with pytest.raises(ExportError, match=r"weights.*file.*weights="):
        load_library(tmp_path)
    assert load_library(tmp_path, weights=weights)(x, np.arange(2))[0].tolist() == [10] * 3
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ExportError, match="and the weights of this library"):
        load_library(tmp_path, weights=weights)


def test_what_is_no_library(made: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_library(tmp_path / "libm.so")
    with pytest.raises(ExportError, match=r"holds none, and one libNAME\.so is wanted"):
        load_library(tmp_path)
    path = tmp_path / "librows.so"
    data = (made / "librows.so").read_bytes()
    for content, text in (
        (b"", "no shared library"), (b"text\n" * 100, "no shared library"),
        (data[: len(data) // 2], "ends too early"), (data[:-1], "ends too early"),
    ):
        path.write_bytes(content)
        with pytest.raises(ExportError, match=text):
            load_library(path)
    shutil.copy(made / "librows.so", path)
    shutil.copy(path, tmp_path / "libother.so")
    with pytest.raises(ExportError, match=r"holds libother\.so, librows\.so, and one"):
        load_library(tmp_path)
