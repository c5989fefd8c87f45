"""What looks at programs and what carries them elsewhere: compare, GRAPHC_CHECK=3, export, the
profiler, autocast, random streams, torch.accelerator; on the device, and on "meta"."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

import graphc as torch
import graphc.nn.functional as F
from graphc import config, nn
from graphc.export import export, load
from graphc.frontend import placement
from graphc.frontend.values import Eager
from graphc.inspect.explain import explain
from graphc.inspect.timing import Timing
from graphc.inspect.value_check import ValueChangedError
from graphc.profiler import ProfilerActivity, profile
from graphc.utils.checkpoint import checkpoint
from graphc.utils.flop_counter import FlopCounterMode
from tests.inspect.pages import checked

from .backend import Executable

HERE = "apart"


def layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


# --- doubt ------------------------------------------------------------------------------------


def branches(x: Any) -> Any:
    y = x.sin()
    return y * 2 if y.sum() > 0 else y


@pytest.mark.parametrize("function", [
    lambda x: (x.lgamma() @ x.t()).softmax(1).sort(0)[0], branches,
    lambda x: F.dropout(x, 0.5) + torch.rand(5, 3, device=x.device),
    lambda x: x[torch.tensor([1, 9], device=x.device)] * 2,  # raises where the host waits
    lambda x: (x.to("cpu").sin() + 1).to(x.device).cos(),
], ids=lambda f: "")
def test_compare(function: Any) -> None:
    found = torch.compare(function, torch.randn(5, 3, device=HERE))
    assert found.agrees and not found.notes, str(found)


def test_compare_puts_a_training_step_back() -> None:
    model = layers().to(HERE)
    optimizer = torch.optim.Adam(model.parameters())
    before = model[0].weight.tolist()

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    found = torch.compare(step, torch.randn(5, 3, device=HERE))
    assert found.agrees and not found.notes, str(found)
    assert model[0].weight.tolist() == before and not optimizer.state


def test_compare_of_meta_tensors() -> None:
    assert torch.compare(lambda x: (x.sin() + 1).cos(), torch.ones(5, 3, device="meta")).agrees


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's compiled code for x[5,3] is off by one."""
    run = Executable.run

    def plus_one(self: Executable, inputs: Any, outputs: Any, dims: Any = ()) -> None:
        run(self, inputs, outputs, dims)
        for buffer in outputs if [b.shape for b in inputs] == [(5, 3)] else ():
            buffer.memory.queue.put(lambda b=buffer: b.memory.numbers(b).__iadd__(1))

    monkeypatch.setattr(Executable, "run", plus_one)


@pytest.mark.usefixtures("wrong")
def test_a_wrong_kernel_of_the_device_is_found() -> None:
    x = torch.ones(5, 3, device=HERE)
    with config.override(check=3), pytest.raises(ValueChangedError, match="15 of 15 elements"):
        torch.compile(lambda x: (x * 2 + 1).abs())(x)


def test_every_check_holds_on_the_device() -> None:
    model = layers().to(HERE)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    with config.override(check=3):
        compiled = torch.compile(step)
        losses = [compiled(torch.ones(5, 3, device=HERE)).item() for _ in range(4)]
    assert losses == sorted(losses, reverse=True)


# --- export -----------------------------------------------------------------------------------


def test_an_exported_model_stays_on_its_device(tmp_path: Path) -> None:
    model, x = layers().to(HERE), torch.randn(5, 3)
    want = layers()(x).detach()
    program = export(model, (x.to(HERE),), dynamic_shapes={"input": {0: "batch"}})
    assert {str(t.device) for t in program.state_dict.values()} == {"apart:0"}
    torch.testing.assert_close(program(x.to(HERE)), want.to(HERE))
    assert program(torch.ones(9, 3, device=HERE)).shape == (9, 2)
    program.save(tmp_path / "model.gcx")
    read = load(tmp_path / "model.gcx")
    torch.testing.assert_close(read(x), want)
    with pytest.raises(RuntimeError, match="at least two devices, apart:0 and cpu!"):
        read(x.to(HERE))
    torch.testing.assert_close(read.module().to(HERE)(x.to(HERE)), want.to(HERE))


def test_a_model_without_values_cannot_be_exported() -> None:
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        export(layers().to("meta"), (torch.ones(5, 3, device="meta"),))


# --- looking on -------------------------------------------------------------------------------


def test_the_profiler_times_operators_of_the_device() -> None:
    model, x = layers().to(HERE), torch.ones(5, 3, device=HERE)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        model(x)
    calls = {event.key: event.count for event in found.key_averages()}
    assert calls["aten::mm"] == 2 and calls["aten::relu"] == 1
    seen = len(found.key_averages())
    model(x)
    assert len(found.key_averages()) == seen


def test_operations_are_counted_on_the_device() -> None:
    model = layers().to(HERE)
    with FlopCounterMode(display=False) as counter:
        model(torch.ones(5, 3, device=HERE))
    assert counter.get_total_flops() == 2 * 5 * (3 * 4 + 4 * 2)


def test_explain_counts_draws_on_the_host() -> None:
    x = torch.ones(5, 3, device=HERE)
    text = str(explain(torch.compile(lambda x: F.dropout(x, 0.5) + torch.rand_like(x)), x))
    assert "one graph" in text and "rng_bernoulli" in text, text


# --- autocast ---------------------------------------------------------------------------------


def test_autocast_is_of_one_type_of_device() -> None:
    model, there = layers(), layers().to(HERE)
    x = torch.ones(5, 3)
    compiled = torch.compile(there)
    for _ in range(2):
        with torch.autocast(HERE, dtype=torch.bfloat16):
            assert torch.is_autocast_enabled(HERE) and not torch.is_autocast_enabled("cpu")
            assert there(x.to(HERE)).dtype is torch.bfloat16 is compiled(x.to(HERE)).dtype
            assert model(x).dtype is torch.float32
            with torch.autocast("cpu", dtype=torch.float16):
                assert model(x).dtype is torch.float16
                assert there(x.to(HERE)).dtype is torch.bfloat16
        assert there(x.to(HERE)).dtype is torch.float32 is compiled(x.to(HERE)).dtype
    assert torch.get_autocast_dtype(HERE) is torch.float16
    with pytest.raises(RuntimeError, match="unsupported autocast device_type 'meta'"):
        torch.autocast("meta")


# --- random streams ---------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_draws_the_same_again(reentrant: bool) -> None:
    x = torch.arange(1.0, 13.0).to(HERE).requires_grad_()
    for _ in range(2):  # the first draw, and one of a stream that has moved
        x.grad = None
        y = checkpoint(lambda t: F.dropout(t, 0.5) * t, x, use_reentrant=reentrant)
        after = torch.rand(3, device=HERE).tolist()
        y.sum().backward()
        torch.testing.assert_close(x.grad, torch.where(y != 0, 4 * x, torch.zeros_like(x)))
        assert torch.rand(3, device=HERE).tolist() != after


def test_a_compiled_checkpoint_draws_the_same_again() -> None:
    def step(x: Any) -> Any:
        y = checkpoint(lambda t: F.dropout(t, 0.5) * t, x, use_reentrant=False)
        y.sum().backward()
        return y

    compiled = torch.compile(step, fullgraph=True)
    for _ in range(3):
        x = torch.arange(1.0, 13.0).to(HERE).requires_grad_()
        y = compiled(x)
        want = torch.where(y != 0, 4 * x, torch.zeros_like(x))
        torch.testing.assert_close(x.grad, want.detach())


def test_generators_carry_their_state() -> None:
    mine = torch.Generator(HERE).manual_seed(5)
    state = mine.get_state()
    assert state.device.type == "cpu" and mine.device == torch.device("apart:0")
    first = torch.rand(4, generator=mine, device=HERE).tolist()
    twin, again = copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))
    second = torch.rand(4, generator=mine, device=HERE).tolist()
    for other in (twin, again):
        assert other.device == mine.device
        assert torch.rand(4, generator=other, device=HERE).tolist() == second
    mine.set_state(state)
    assert torch.rand(4, generator=mine, device=HERE).tolist() == first
    with pytest.raises(TypeError, match=r"expected a torch.ByteTensor.*on apart:0"):
        mine.set_state(state.to(HERE))


def test_fork_rng_of_devices() -> None:
    for given, kept in ({}, True), ({"devices": [0]}, True), ({"devices": []}, False):
        torch.manual_seed(2)
        torch.rand(2, device=HERE)
        with torch.random.fork_rng(**given):
            inside = torch.rand(3, device=HERE).tolist()
        assert (torch.rand(3, device=HERE).tolist() == inside) is kept


def test_the_accelerator() -> None:
    assert torch.accelerator.is_available() and torch.accelerator.device_count() == 1
    assert torch.accelerator.current_accelerator() == torch.device("apart")
    torch.ones(4, device=HERE)[torch.tensor([9], device=HERE)]
    with pytest.raises(IndexError, match="9 is out of bounds"):
        torch.accelerator.synchronize()
    torch.accelerator.synchronize(0)


# --- what a second device costs the first ------------------------------------------------------


def test_versions_from_before_there_was_a_second_device_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = torch.ones(3)

    def function(x: Any) -> Any:
        torch.manual_seed(3)
        return x * (2 if kept.device.type == "cpu" else 3) + torch.rand(2)

    compiled = torch.compile(function)
    x = torch.ones(2)
    with monkeypatch.context() as alone:
        alone.setattr(placement, "_places", {})
        alone.setattr(Eager, "elsewhere", None)
        first = compiled(x)
    torch.rand(2, device=HERE)
    assert torch.equal(compiled(x), first) and compiled.compile_count == 1
    # the call has seeded the device, too
    drawn = torch.rand(2, device=HERE).tolist()
    torch.manual_seed(3)
    assert torch.rand(2, device=HERE).tolist() == drawn
    kept.data = torch.ones(3, device=HERE)
    torch.testing.assert_close(compiled(x), first + x)


def test_numbers_and_new_tensors_are_where_the_user_put_them() -> None:
    x, y = torch.ones(3), torch.ones(3, device=HERE)
    for made in (
        x * 2, torch.zeros(3), torch.arange(3), torch.tensor([1.0, 2.0, 3.0]), x.new_zeros(3),
        torch.zeros_like(x), torch.full((3,), 2.0), torch.rand(3), torch.eye(3)[0], x.clone(),
    ):
        with pytest.raises(RuntimeError, match="at least two devices"):
            made + y
    assert (torch.tensor(2.0) * y).device == y.device == (y * 2 + 1).device
    assert (F.one_hot(torch.tensor([0, 2], device=HERE)) + 1).device == y.device


def test_what_only_the_cpu_or_only_values_can_do() -> None:
    for device in (HERE, "meta"):
        with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
            torch.ones(2, device=device).pin_memory()
    empty = nn.Linear(3, 2, device="meta")
    with pytest.warns(UserWarning, match=r"for (weight|bias): .*which is a no-op.*assign=True"):
        empty.load_state_dict(nn.Linear(3, 2).state_dict())
    empty.load_state_dict(nn.Linear(3, 2).state_dict(), assign=True)
    assert empty.weight.device.type == "cpu"


def test_explanations_are_measured_there(tmp_path: Path) -> None:
    compiled = torch.compile(lambda x, w: torch.softmax(x @ w, 1))
    x, w = torch.ones(4, 3, device="apart"), torch.ones(3, 2, device="apart")
    compiled(x, w)
    for given in ((x, w), ()):
        found = torch.explain(compiled, *given)
        found.save_html(tmp_path / "page.html")
        (timing,) = found.timings
        assert isinstance(timing, Timing) and timing.given is bool(given) and timing.whole > 0
        checked((tmp_path / "page.html").read_text())
    (said,) = torch.summary(x)
    assert said.device == "apart:0" and said.mean == 1.0
