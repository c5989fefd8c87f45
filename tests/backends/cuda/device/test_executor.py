"""How programs run on a GPU: what is sent, what is waited for, what is allocated, what is compiled;
the loops, branches and failed Checks of whole programs, launch by launch and as graphs."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc import config, nn
from graphc.backends.cuda.backend import CudaBackend
from graphc.backends.cuda.code import Code
from graphc.backends.cuda.errors import CudaContextLost
from graphc.backends.cuda.source import Source, Stage
from graphc.inspect.explain import explain
from graphc.ir.device_array import DeviceArray

from ..emulated_device import ByToolchain, CountingDriver

GRAPHS = ("0", "1", "auto")


@pytest.fixture
def driver(cuda: CudaBackend) -> Iterator[CountingDriver]:
    found = cuda.memory.driver
    assert isinstance(found, CountingDriver)
    found.synchronise()
    yield found


def step_of(model: Any, optimizer: Any) -> Callable[[Any, Any], Any]:
    def step(x: Any, target: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    return step


def trained(device: str, graphs: str, each: Callable[[], None] = lambda: None) -> Any:
    """The losses of a few steps of a small network, and its weights."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 0.05)
    rng = np.random.default_rng(0)
    with config.override(cuda_graphs=graphs):
        run = torch.compile(step_of(model, optimizer), fullgraph=True)
        losses = []
        for _ in range(5):
            x = torch.tensor(rng.standard_normal((4, 6)).astype("f4")).to(device)
            losses.append(run(x, torch.tensor([0, 2, 1, 1]).to(device)))
            each()
    return [loss.item() for loss in losses], [p.detach().cpu().numpy() for p in model.parameters()]


@pytest.mark.parametrize("graphs", GRAPHS)
def test_a_training_step_waits_for_nothing_and_allocates_nothing(
    graphs: str, driver: CountingDriver
) -> None:
    seen: list[dict[str, int]] = []

    def each() -> None:
        seen.append(dict(driver.calls))
        driver.calls.clear()

    driver.calls.clear()
    got = trained("cuda", graphs, each)
    want = trained("cpu", graphs)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4)
    for a, b in zip(got[1], want[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    nodes = sum(calls.get("add_launch", 0) for calls in seen)
    for calls in seen[3:]:
        assert not calls.get("wait") and not calls.get("allocate"), seen
        if graphs == "1":
            assert calls["launch_graph"] == 1 and not calls.get("launch"), calls
            assert 0 < calls["update_launch"] < nodes
        elif graphs == "0":
            assert calls["launch"] > 8 and not nodes


def scaled(x: Any) -> Any:
    """Enough launches for a graph: sums over another dim each time."""
    for dim in (0, 1) * 5:
        x = (x - x.sum(dim, keepdim=True) * 0.01).softmax(dim)
    return x


def test_a_graph_is_made_at_the_second_call_and_follows_its_buffers(
    driver: CountingDriver
) -> None:
    compiled = torch.compile(scaled)
    xs = [torch.randn(5, 7) for _ in range(5)]
    there = [x.to("cuda") for x in xs]
    results, calls = [], []
    for x in there:
        driver.calls.clear()
        results.append(compiled(x))  # each stays, so each is elsewhere
        calls.append(dict(driver.calls))
    nodes = calls[1]["add_launch"]
    assert "launch_graph" not in calls[0] and calls[0]["launch"] >= nodes >= 8
    for later in calls[2:]:
        assert later["launch_graph"] == 1 and 0 < later["update_launch"] <= 2
    for got, x in zip(results, xs, strict=True):
        np.testing.assert_allclose(got.cpu(), scaled(x), rtol=1e-4)
    text = str(explain(compiled, there[0]))
    assert f"{nodes} launches, 1 CUDA graph (GRAPHC_CUDA_GRAPHS=auto)" in text


@pytest.mark.parametrize("graphs", GRAPHS)
def test_loops_branches_and_what_the_host_computes(
    graphs: str, driver: CountingDriver
) -> None:
    def recurrent(x: Any, w: Any) -> Any:
        h = x[0] * 0
        for t in range(x.shape[0]):  # becomes a scan
            h = (x[t] @ w + h).tanh()
        return h

    def repeated(x: Any, w: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            return i + 1, (y @ w).sin()

        return torch.while_loop(
            lambda i, y: y.abs().sum() + i < 40, body, (torch.zeros((), device=x.device), x[0])
        )

    def chosen(x: Any, w: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x @ w, lambda x: x - w.sum(), (x[0],))

    def cut(x: Any, w: Any) -> Any:
        return torch.i0(scaled(x[0] @ w)) + scaled(w)

    torch.manual_seed(0)
    x, w = torch.randn(33, 4, 4), torch.randn(4, 4) * 0.5
    with config.override(cuda_graphs=graphs):
        for function in (recurrent, repeated, chosen, cut):
            compiled = torch.compile(function, fullgraph=True)
            for given in (x, -x, x * 0.1):
                want = function(given, w)
                got = compiled(given.to("cuda"), w.to("cuda"))
                for a, b in zip(
                    *((r,) if isinstance(r, torch.Tensor) else r for r in (got, want)),
                    strict=True,
                ):
                    np.testing.assert_allclose(a.cpu(), b, rtol=1e-4, atol=1e-5)
            text = str(explain(compiled, x.to("cuda"), w.to("cuda")))
            waits = {repeated: "a loop's flag", chosen: "a branch's flag", cut: "i0 in NumPy"}
            assert ("the host waits for" in text) == (function in waits)
            assert waits.get(function, "") in text


def test_sizes_change_from_call_to_call() -> None:
    compiled = torch.compile(scaled, dynamic=True)
    for rows in (5, 40, 3, 300, 40):
        x = torch.randn(rows, 6)
        np.testing.assert_allclose(compiled(x.to("cuda")).cpu(), scaled(x), rtol=1e-4, atol=1e-6)


def test_threads_have_leases_of_their_own() -> None:
    compiled = torch.compile(scaled)
    xs = [torch.randn(6, 9) for _ in range(4)]
    compiled(xs[0].to("cuda"))
    found: dict[int, np.ndarray] = {}

    def work(number: int) -> None:
        for _ in range(5):
            found[number] = compiled(xs[number].to("cuda")).cpu().numpy()

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for number, x in enumerate(xs):
        np.testing.assert_allclose(found[number], scaled(x), rtol=1e-4)


# --- what fails ---------------------------------------------------------------------------------


@pytest.mark.parametrize("graphs", GRAPHS)
def test_a_failed_check_leaves_what_the_user_sees(graphs: str) -> None:
    def step(table: Any, at: Any, x: Any) -> Any:
        table.index_put_((at,), x[at] * 2)
        x.add_(1)
        return table.sum()

    with config.override(cuda_graphs=graphs):
        compiled = torch.compile(step, fullgraph=True)
        table, x = torch.zeros(4, device="cuda"), torch.arange(4.0).to("cuda")
        good = torch.tensor([1, 3], device="cuda")
        for _ in range(3):
            compiled(table, good, x)
        before = table.tolist(), x.tolist()
        compiled(table, torch.tensor([2, 4], device="cuda"), x)
        compiled(table, good, x)  # begun behind it: it does nothing
        with pytest.raises(IndexError, match=r"index 4 is out of bounds.*size 4\n.*test_executor"):
            torch.accelerator.synchronize()
        assert (table.tolist(), x.tolist()) == before
        compiled(table, good, x)
        assert x.tolist() == [item + 1 for item in before[1]]


def decided(x: Any) -> Any:
    y = x * 2
    return y + 1 if y.sum() > 0 else y


@pytest.mark.parametrize("function", [lambda x: torch.i0(x).sum(), decided], ids=["host", "item"])
def test_what_failed_before_a_call_is_the_users(function: Callable[[Any], Any]) -> None:
    """Also where the call waits in its middle, or is recorded: it does not run again without."""
    compiled, x = torch.compile(function), torch.ones(3, device="cuda")
    for _ in range(4):  # recorded, built, and run
        x[torch.tensor([9], device="cuda")]
        with pytest.raises(IndexError, match="index 9 is out of bounds"):
            compiled(x)
            torch.accelerator.synchronize()
        np.testing.assert_allclose(compiled(x).cpu(), function(torch.ones(3)), rtol=1e-6)


def test_graphs_end_with_their_function(driver: CountingDriver) -> None:
    x = torch.ones(3, 4, device="cuda")

    def graphs() -> int:
        gc.collect()
        return sum(isinstance(each, dict) for each in driver._things.values())

    before, nodes = graphs(), driver.calls["add_launch"]
    with config.override(cuda_graphs="1"):
        compiled = torch.compile(scaled)
        compiled(x)
    assert driver.calls["add_launch"] > nodes and graphs() == before + 2  # and what is launched
    del compiled
    assert graphs() == before


def test_behind_a_lost_context_nothing_is_begun(driver: CountingDriver) -> None:
    x = torch.ones(4, device="cuda")
    (x + 1).tolist()
    try:
        driver._lost = CudaContextLost("a call", "CUDA_ERROR_ILLEGAL_ADDRESS", "lost")
        begun = len(driver._streams[0].work)
        for call in (lambda: x + 1, lambda: x.tolist(), lambda: x.copy_(x + 2)):
            with pytest.raises(CudaContextLost, match="Cure"):
                call()
        assert len(driver._streams[0].work) == begun
    finally:
        driver._lost = None
    assert (x + 1).tolist() == [2, 2, 2, 2]


def test_tensors_of_the_cpu_are_told_where_to_go() -> None:
    with pytest.raises(RuntimeError, match=r"computes on tensors on cuda:0. Cure: move them"):
        torch.compile(lambda x: x + 1, backend="cuda")(torch.ones(3))


# --- code and memory ----------------------------------------------------------------------------

ADD = """extern "C" __global__ void {name}(float* x, i64* status) {{ x[0] += {number}; }}"""


def source(number: int) -> Source:
    return Source(ADD.format(name=f"add{number}", number=number), (Stage(f"add{number}", 1, 1, 0),))


def test_a_process_compiles_what_no_other_has(
    cuda: CudaBackend, driver: CountingDriver, tmp_path: Path
) -> None:
    compiler = ByToolchain(cuda.memory._code._compilers.toolchain)  # its images are the disk's

    def process() -> Code:
        code = Code(cuda.memory.device, compiler)
        code.directory = tmp_path
        return code

    first = process()
    assert [found.known for found in first.load([source(1), source(2), source(1)])] == [False] * 3
    assert len(compiler.compiled) == 1 and "add1" in compiler.compiled[0]
    assert [found.known for found in first.load([source(2), source(3)])] == [True, False]
    assert len(compiler.compiled) == 2 and "add2" not in compiler.compiled[1]
    second = process()
    found = second.load([source(3), source(1), source(2)])
    assert all(each.known for each in found) and len(compiler.compiled) == 2
    assert len(second._modules) == 2  # of three kernels, in two texts
    (kept,) = tmp_path.rglob(f"{compiler.key(source(1).text).hex()}.kernel")
    kept.unlink()
    assert [each.known for each in process().load([source(1), source(2)])] == [False, True]


def strided(rng: np.random.Generator, memory: Any, dtype: str) -> tuple[DeviceArray, np.ndarray]:
    """A view with gaps and its dims in another order, on the device and here."""
    shape = tuple(int(n) for n in rng.integers(1, 5, rng.integers(0, 5)))
    whole = rng.integers(0, 2 if dtype == "?" else 100, shape).astype(dtype)
    there = memory.allocate(shape, whole.dtype)
    memory.write(there, whole)
    index = tuple(slice(int(rng.integers(0, n)), None, int(rng.integers(1, 3))) for n in shape)
    order = tuple(int(d) for d in rng.permutation(len(shape)))
    return there[index].transpose(order), whole[index].transpose(order)


def test_copies_by_any_strides(cuda: CudaBackend) -> None:
    rng, memory = np.random.default_rng(3), cuda.memory
    for number in range(150):
        dtype = ("?", "i1", "f2", "f4", "i8", "c16")[number % 6]
        there, here = strided(rng, memory, dtype)
        np.testing.assert_array_equal(memory.read(there), here)
        made = memory.allocate((2, *here.shape), here.dtype)
        memory.copy(made, there)
        np.testing.assert_array_equal(memory.read(made), np.broadcast_to(here, (2, *here.shape)))
        values = rng.integers(0, 2, here.shape[1:]).astype(dtype)
        if here.shape:
            memory.write(there, values)
            np.testing.assert_array_equal(memory.read(there), np.broadcast_to(values, here.shape))
    wide = memory.allocate((2,) * 12, np.dtype("f4"))  # more dims than one launch walks
    values = np.arange(4096, dtype="f4").reshape((2,) * 12)
    memory.write(wide, values)
    np.testing.assert_array_equal(memory.read(wide.transpose(range(11, -1, -1))), values.T)


def test_a_copy_to_memory_that_it_reads(cuda: CudaBackend) -> None:
    memory, values = cuda.memory, np.arange(1000, dtype="f4")
    there = memory.allocate((1000,), values.dtype)
    memory.write(there, values)
    memory.copy(there[1:], there[:-1])
    values[1:] = values[:-1].copy()
    np.testing.assert_array_equal(memory.read(there), values)
    with pytest.raises(ValueError, match="does not broadcast"):
        memory.copy(there[:3], there[:2])
