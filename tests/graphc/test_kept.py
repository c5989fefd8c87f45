"""Programs that an earlier process has kept: found where nothing has changed, and only there."""

import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc import backends, config
from graphc.backends.numpy.ops import TABLE
from graphc.engine import pipeline
from graphc.ir import ops
from graphc.ir.digest import graph_digest
from graphc.ir.dtypes import f32, f64
from graphc.ir.graph import Builder, Expr, Graph
from graphc.ir.interpret import evaluate
from graphc.ir.types import TensorType

BACKEND: Any = backends.get("llvm")
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="programs are kept on Linux, x86-64",
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Programs are kept here."""
    monkeypatch.setattr(BACKEND, "keeps", True)
    directory = tmp_path / "cache"
    with config.override(cache_dir=directory, check=0, debug=0, dump=None):
        yield directory


def graph(
    value: float = 2.0, size: int = 6, dtype: Any = f32, double: bool = False
) -> Graph:
    """(x * value).sum(), of so many numbers."""
    builder = Builder()
    x = Expr(builder, builder.input(TensorType(dtype, (size,)), "x"))
    y = x * value if not double else (x + x) * value
    return builder.build([ops.sum(y, dims=(0,), keepdim=False).node], "given")


def found(given: Graph) -> bool:
    """Whether the code is kept, which it is from then on; it computes what it has to."""
    built = pipeline.build(given, config=config.current())
    type_ = given.inputs[0].tensor_type
    inputs = [np.arange(type_.static_shape[0]).astype(type_.dtype.numpy)]
    (want,) = evaluate(given, inputs, TABLE)
    out = np.full((), np.nan, type_.dtype.numpy)
    built.run(inputs, [out])
    assert out == want
    return "kept" in built.times


def programs(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.program"))


def test_a_second_build_finds_it_and_says_the_same(folder: Path) -> None:
    def f(x: Any) -> Any:
        return (x * 2).relu().sum(0), torch.tensor([1.0, 5.0, 3.0]) + x

    x = torch.arange(12.0).reshape(4, 3)
    reports, results = [], []
    for _ in range(2):
        g = torch.compile(f)
        results.append([t.numpy() for t in g(x)])
        reports.append(torch.explain(g, x))
    one, two = (report.parts[0].built for report in reports)
    assert "kept" in two.times and "kept" not in one.times
    assert one.executable.library.image == two.executable.library.image
    assert str(one.fused) == str(two.fused)
    assert reports[0].kernels_text == reports[1].kernels_text
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_the_code_depends_on_is_in_the_key(folder: Path) -> None:
    digests = {
        graph_digest(g) for g in (
            graph(), graph(3.0), graph(size=7), graph(dtype=f64), graph(double=True),
            graph(-0.0), graph(0.0),
        )
    }
    assert len(digests) == 7
    assert graph_digest(graph()) == graph_digest(graph())
    assert not found(graph()) and found(graph())
    assert not found(graph(3.0)) and not found(graph(size=7)) and not found(graph(double=True))
    with config.override(random="counter"):
        assert not found(graph())
    with config.override(threads=3):
        assert found(graph())


@pytest.mark.parametrize("watched", [{"check": 1}, {"debug": 2}, {"dump": Path("dumps")}])
def test_who_looks_sees_it_compiled(
    folder: Path, watched: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    found(graph())
    with config.override(**watched):
        assert not found(graph())


def test_off_keeps_nothing(folder: Path) -> None:
    with config.override(cache_dir=None):
        assert not found(graph()) and not found(graph())
    assert not folder.exists()


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[:-3],
    "longer": lambda data: data + b"x",
    "empty": lambda data: b"",
    "flipped": lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
    "of another kind": lambda data: b"graphc object 1\n" + data[16:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_a_miss(folder: Path, damage: str) -> None:
    found(graph())
    assert programs(folder)
    for path in programs(folder):
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert not found(graph()) and found(graph())


def test_a_folder_that_others_may_write_is_not_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found(graph())
    os.chmod(folder, 0o777)
    monkeypatch.setattr(BACKEND, "_kept", {})  # as in a new process
    assert not found(graph()) and not found(graph())


def test_a_failing_check_names_the_line_as_it_is_now(folder: Path) -> None:
    x, good, bad = torch.arange(4.0), torch.tensor([1, 3]), torch.tensor([1, 9])
    for lines in (3, 8):
        names: dict[str, Any] = {}
        path = folder.parent / "given.py"
        path.write_text("\n" * lines + "def f(x, i):\n    return x[i] * 2\n")
        exec(compile(path.read_text(), str(path), "exec"), names)
        f = torch.compile(names["f"])
        np.testing.assert_array_equal(f(x, good).numpy(), [2, 6])
        built = torch.explain(f, x, good).parts[0].built
        assert ("kept" in built.times) == (lines == 8)
        with pytest.raises(IndexError, match="9"):
            f(x, bad)
        with pytest.raises(IndexError, match=f"given.py:{lines + 2}"):
            built.run([x.numpy(), bad.numpy()], [np.zeros(2, np.float32)])


def test_a_program_that_is_not_the_one_that_was_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphc.engine import stages

    found(graph())
    real = stages.staged
    monkeypatch.setattr(
        stages, "staged", lambda given, *rest: real(graph(5.0), *rest)
    )
    built = pipeline.build(graph(), config=config.current())
    out = np.zeros((), np.float32)
    built.run([np.ones(6, np.float32)], [out])
    assert out == 12
    with pytest.raises(RuntimeError, match="graphc cache clear"):
        _ = built.executable.program


def test_constants_and_a_backward_are_kept(folder: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    x = torch.arange(10.0).reshape(2, 5)
    seen = []
    for _ in range(2):
        model.zero_grad()
        compiled = torch.compile(model)
        compiled(x).sum().backward()
        seen.append([p.grad.numpy().copy() for p in model.parameters()])
        times = torch.explain(compiled, x).parts[0].built.times
    assert "kept" in times
    for a, b in zip(*seen, strict=True):
        np.testing.assert_array_equal(a, b)


def test_threads_that_build_the_same_at_once(folder: Path) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with config.override(cache_dir=folder):
                for _ in range(5):
                    found(graph())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and len(programs(folder)) in (1, 2)


_SCRIPT = """
import sys
import graphc as torch
nn = torch.nn
model = nn.Sequential(nn.Conv1d(1, 2, 2), nn.Flatten(), nn.Linear(4, 2))  # weights to lay out
opt = torch.optim.SGD(model.parameters(), lr=0.5)
@torch.compile
def step(x):
    opt.zero_grad()
    loss = model(x).square().sum()
    loss.backward()
    opt.step()
    return loss
torch.manual_seed(0)
for p in model.parameters():
    torch.nn.init.uniform_(p)
x = torch.ones(4, 1, 3)
print([float(step(x)) for _ in range(3)])
print([name for name in ("llvmlite", "networkx", "graphc.engine.stages") if name in sys.modules])
# a forward and a backward graph, and a prologue of constants: each asks what the machine is like
torch.compile(model)(x).sum().backward()
convolution = torch.nn.Conv2d(16, 64, 8)
with torch.no_grad():
    torch.compile(convolution)(torch.ones(1, 16, 9, 9))
print("llvmlite" in sys.modules)
"""


def test_another_process_needs_no_compiler(folder: Path) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "GRAPHC_CACHE_DIR": str(folder), "PYTHONPATH": str(root)}
    for name in ("GRAPHC_DEBUG", "GRAPHC_CHECK", "GRAPHC_DUMP"):
        environment.pop(name, None)

    def run(count: int) -> list[str]:
        started = [
            subprocess.Popen(
                [sys.executable, "-c", _SCRIPT], env=environment, stdout=subprocess.PIPE, text=True,
            ) for _ in range(count)
        ]
        return [process.communicate()[0] for process in started]

    first, second = run(2)  # at once: both write
    assert first == second and "llvmlite" in first
    (third,) = run(1)
    numbers, modules, llvm = third.splitlines()
    assert numbers == first.splitlines()[0] and modules == "[]" and llvm == "False"

