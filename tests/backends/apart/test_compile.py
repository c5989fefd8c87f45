"""compile() on a device: versions, training steps, segments; against eager mode on the CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn.functional as F
from graphc import nn
from graphc.engine import stages
from graphc.inspect.explain import explain

HERE = "apart"


def equal(got: Any, want: Any) -> None:
    for a, b in zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]:
        assert a.device == torch.device(f"{HERE}:0")
        np.testing.assert_allclose(a.detach().cpu(), b.detach(), rtol=1e-4, atol=1e-5)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The backends of what is built."""
    names: list[str] = []
    finish = stages._finish

    def noted(*args: Any) -> Any:
        names.append(args[5].memory.place)
        return finish(*args)

    monkeypatch.setattr(stages, "_finish", noted)
    return names


def test_a_function_has_a_version_for_each_device(built: list[str]) -> None:
    def function(x: Any, w: Any) -> Any:
        y = (x @ w).relu()
        return y, y.t(), y[1:, 0], y.sum(), torch.zeros(2, device=x.device)

    compiled = torch.compile(function, fullgraph=True)
    torch.manual_seed(0)
    x, w = torch.randn(4, 3), torch.randn(3, 5)
    want = function(x, w)
    for _ in range(3):
        got = compiled(x.to(HERE), w.to(HERE))
        equal(got, want)
        assert (
            got[0].stride() == want[0].stride() and got[1]._graphc_storage is got[0]._graphc_storage
        )
        assert compiled(x, w)[0].device.type == "cpu"
    assert built == [f"{HERE}:0", "cpu"]
    transposed = x.t().contiguous().t()
    equal(compiled(transposed.to(HERE).t().contiguous().t(), w.to(HERE)), want)


def test_sizes_numbers_and_state() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))
            self.calls = 0

        def forward(self, x: Any, scale: float) -> Any:
            self.seen += x.sum()
            self.calls += 1
            return x * scale

    model = Counter().to(HERE)
    compiled, plain = torch.compile(model), Counter()
    for i, size in enumerate((3, 5, 9, 4)):
        x = torch.arange(float(size))
        equal(compiled(x.to(HERE), 0.5 + i), plain(x, 0.5 + i))
        assert model.seen.item() == plain.seen.item() and model.calls == i + 1


def test_a_write_to_an_argument_and_to_its_view() -> None:
    def function(x: Any) -> Any:
        x[1].mul_(3)
        x.t()[0].zero_()
        return x.sum()

    compiled = torch.compile(function)
    for _ in range(3):
        x = torch.arange(12.0).reshape(3, 4)
        there = x.to(HERE)
        equal((compiled(there), there), (function(x), x))
        wide = torch.arange(24.0).reshape(3, 8)
        part = wide.to(HERE)
        equal((compiled(part[:, ::2]), part), (function(wide[:, ::2]), wide))


MODEL = nn.Sequential(
    nn.Conv2d(1, 2, 3, stride=2, padding=1), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(),
    nn.Linear(8, 3),
)
OPTIMIZERS: list[Callable[[Any], Any]] = [
    lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
    lambda p: torch.optim.AdamW(p, 0.01),
    lambda p: torch.optim.RMSprop(p, 0.01),
]


def losses(device: str, how: str, make: Callable[[Any], Any]) -> list[float]:
    """Of five steps: eager, the model compiled, the step compiled, the step in segments."""
    torch.manual_seed(0)
    model = copy.deepcopy(MODEL).to(device)
    optimizer = make(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    x, target = torch.randn(4, 1, 4, 4).to(device), torch.tensor([0, 2, 1, 1], device=device)
    called = torch.compile(model) if how == "model" else model

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        out = called(x)
        if how == "segments" and out.sum() > 1e6:
            out = out * 2
        loss = F.cross_entropy(out, target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    run = torch.compile(step, fullgraph=how == "step") if how in ("step", "segments") else step
    found = []
    for _ in range(5):
        found.append(run(x).item())
        schedule.step()
    return found


@pytest.mark.parametrize("number", range(len(OPTIMIZERS)))
def test_training(number: int) -> None:
    want = losses("cpu", "eager", OPTIMIZERS[number])
    assert want[-1] < want[0]
    for how in ("eager", "model", "step", "segments"):
        got = losses(HERE, how, OPTIMIZERS[number])
        np.testing.assert_allclose(got, want, rtol=1e-4, err_msg=how)


def test_devices_meet_between_segments() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        host = y.cpu() + 1
        z = host.to(x.device) * y
        return z, host.sum()

    compiled = torch.compile(function)
    for _ in range(3):
        got = compiled(torch.arange(3.0).to(HERE))
        want = function(torch.arange(3.0))
        equal(got[0], want[0])
        assert got[1].device.type == "cpu" and got[1].item() == want[1].item()
    bad = torch.compile(lambda x, y: x * 2 + y)
    both = rf"on the same device.*({HERE}:0 and cpu|cpu and {HERE})"
    for _ in range(2):
        with pytest.raises(RuntimeError, match=both):
            bad(torch.ones(3, device=HERE), torch.ones(3))
    message = f"backend 'numpy' does not run on tensors on {HERE}:0"
    with pytest.raises(RuntimeError, match=message):
        torch.compile(lambda x: x + 1, backend="numpy")(torch.ones(3, device=HERE))


def test_a_captured_tensor_that_moves_is_noticed() -> None:
    layer = nn.Linear(3, 2)
    compiled = torch.compile(lambda x: layer(x).sum())
    x = torch.ones(4, 3)
    want = compiled(x).item()
    layer.to(HERE)
    assert compiled(x.to(HERE)).item() == pytest.approx(want)
    layer.cpu()
    assert compiled(x).item() == pytest.approx(want)


def test_a_decision_upon_a_device_is_guarded() -> None:
    kept = torch.ones(3)
    compiled = torch.compile(lambda x: x * 2 if kept.device.type == "cpu" else x * 3)
    x = torch.ones(2)
    assert compiled(x).tolist() == [2, 2]
    kept.data = torch.ones(3, device=HERE)
    assert compiled(x).tolist() == [3, 3]
    kept.data = torch.ones(3)
    assert compiled(x).tolist() == [2, 2]


def test_compiled_functions_of_meta_tensors() -> None:
    compiled = torch.compile(lambda x: (x @ x).relu())
    for _ in range(2):
        assert compiled(torch.ones(3, 3, device="meta")).shape == (3, 3)
    with pytest.raises(RuntimeError, match="cannot be called on meta tensors"):
        torch.ones((), device="meta").item()


def test_gradients_of_a_compiled_function() -> None:
    def function(w: Any) -> Any:
        return (w**3).sum(), w * 2

    compiled = torch.compile(function)
    for _ in range(2):
        w = torch.arange(1.0, 4.0).to(HERE).requires_grad_()
        first, second = compiled(w)
        (g,) = torch.autograd.grad(first, w, create_graph=True)
        (g.sum() + second.sum()).backward()
        assert w.grad.tolist() == [8, 14, 20] and w.grad.device.type == HERE


def test_random_numbers_and_dropout_go_on_where_eager_mode_stopped() -> None:
    def function(x: Any) -> Any:
        return F.dropout(x, 0.5) + torch.rand(x.shape, device=x.device)

    compiled = torch.compile(function)
    x = torch.ones(16, device=HERE)
    torch.manual_seed(1)
    want = [function(x).cpu() for _ in range(4)]
    torch.manual_seed(1)
    for i in range(4):
        np.testing.assert_allclose((compiled if i % 2 else function)(x).cpu(), want[i], rtol=1e-6)


def test_a_check_in_compiled_code_appears_when_the_host_waits() -> None:
    compiled = torch.compile(lambda x, at: x[at] * 2)
    x = torch.arange(4.0).to(HERE)
    assert compiled(x, torch.tensor([1, 3], device=HERE)).tolist() == [2, 6]
    bad = compiled(x, torch.tensor([1, 9], device=HERE))
    with pytest.raises(IndexError, match="9 is out of bounds"):
        bad.cpu()


def test_explain_says_where_it_runs() -> None:
    text = str(explain(torch.compile(lambda x: torch.i0(x) * 2), torch.ones(8, device=HERE)))
    assert "on the host" in text


def test_seeding_all_devices_in_one_graph_of_the_cpu() -> None:
    torch.rand(2, device="meta")  # a device that has a generator, and draws nothing

    def draw(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return x + torch.rand(2)

    compiled = torch.compile(draw, fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(2)), draw(torch.ones(2)))


def test_seeding_another_device_in_a_compiled_function() -> None:
    def draw(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return x + torch.rand(2, device=HERE).cpu()

    draw(torch.ones(2))  # makes the device's generator
    compiled = torch.compile(draw)
    for _ in range(3):
        torch.manual_seed(8)
        assert torch.equal(compiled(torch.ones(2)), draw(torch.ones(2)))


def test_packed_sequences() -> None:
    """Lengths and batch_sizes stay on the CPU, the order lies where the data does."""
    tools = nn.utils.rnn
    torch.manual_seed(0)
    there = copy.deepcopy(lstm := nn.LSTM(3, 4, 2, bidirectional=True)).to(HERE)

    def step(layer: Any, x: Any, lengths: Any) -> Any:
        packed = tools.pack_padded_sequence(x, lengths, enforce_sorted=False)
        output, last = layer(packed)
        padded, found = tools.pad_packed_sequence(output)
        layer.zero_grad()
        (padded.square().sum() + last[1].sum()).backward()
        assert packed.batch_sizes.device.type == found.device.type == "cpu"
        assert packed.sorted_indices is not None
        return padded, last[0], packed.sorted_indices, *(p.grad for p in layer.parameters())

    compiled = torch.compile(step)
    for lengths in ([3, 6, 1, 4], [6, 2, 2, 5], [2, 6, 6, 3]):
        x, given = torch.randn(6, 4, 3), torch.tensor(lengths)
        want = step(lstm, x, given)
        equal(step(there, x.to(HERE), given), want)
        equal(compiled(there, x.to(HERE), given), want)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_layer_over_packed_sequences_is_one_graph(ordered: bool) -> None:
    """What batch_sizes decide is made on the host as a call begins, and taken there."""
    tools = nn.utils.rnn
    torch.manual_seed(0)
    there = copy.deepcopy(lstm := nn.LSTM(3, 4, 2, bidirectional=True)).to(HERE)
    compiled = torch.compile(there, fullgraph=True)

    def step(layer: Any, run: Any, x: Any, lengths: Any) -> Any:
        x = x.detach().clone().requires_grad_()
        packed = tools.pack_padded_sequence(x, lengths, enforce_sorted=ordered)
        output, last = run(packed)
        assert output.batch_sizes.device.type == "cpu"
        padded, _ = tools.pad_packed_sequence(output)
        layer.zero_grad()
        (padded.square().sum() + last[1].sum()).backward()
        return padded, last[0], x.grad, *(p.grad for p in layer.parameters())

    for lengths in ([6, 4, 3, 1], [6, 2, 2, 1], [5, 5, 5, 5], [3, 1, 1, 1]):
        x, given = torch.randn(6, 4, 3), torch.tensor(lengths if ordered else lengths[::-1])
        equal(step(there, compiled, x.to(HERE), given), step(lstm, lstm, x, given))


@pytest.mark.parametrize("demands", [0, 1])
def test_a_compiled_step_waits_for_nothing(demands: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An optimizer's counts of steps are CPU tensors: what is written to them the host knows."""
    reads: list[Any] = []
    kind: Any = type(torch.ones(1, device=HERE)._graphc_array.memory)
    read = kind.read
    monkeypatch.setattr(kind, "read", lambda self, b: (reads.append(b), read(self, b))[1])

    def trained(device: str) -> tuple[Any, list[float]]:
        torch.manual_seed(0)
        model = nn.Linear(3, 2).to(device)
        optimizer = torch.optim.Adam(model.parameters(), 0.1)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            if demands and loss.item() > 1e6:
                loss = loss * 2
            loss.backward()
            optimizer.step()
            return loss

        run = torch.compile(step, fullgraph=not demands)
        run.always_compiled = True
        x = torch.ones(4, 3).to(device)
        for i in range(6):
            if i == 4:  # a user's own write is seen
                for state in optimizer.state.values():
                    state["step"].fill_(40.0)
            run(x)
            if i == 2:
                reads.clear()
        assert len(reads) == (3 * demands if device == HERE else 0)  # of calls 4 to 6
        counts = [state["step"].item() for state in optimizer.state.values()]
        return model.weight.detach().cpu(), counts

    want, got = trained("cpu"), trained(HERE)
    assert got[1] == want[1] == [42.0, 42.0]
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4)
