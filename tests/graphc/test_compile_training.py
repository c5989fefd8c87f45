"""compile(): whole steps compile once, results equal eager mode, state stays the user's."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.engine.capture.recording import Recording


def model() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)).double()


def batch(n: int = 8, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.standard_normal((n, 6)))
    return x, torch.from_numpy(rng.integers(0, 3, n))


class HandWritten:
    """An optimizer in plain Python."""

    def __init__(self, params: Any, lr: float) -> None:
        self.params, self.lr = list(params), lr

    def zero_grad(self) -> None:
        for p in self.params:
            p.grad = None

    def step(self) -> None:
        with torch.no_grad():
            for p in self.params:
                p -= self.lr * p.grad


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "decay": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
    "by hand": lambda p: HandWritten(p, 0.1),
}


def make_step(net: Any, opt: Any, order: str) -> Any:
    def step(x: Any, y: Any) -> Any:
        if order == "before":
            opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        if order == "after":
            opt.zero_grad()
        if order == "zeros before next":
            opt.zero_grad(set_to_none=False)
        return loss

    return step


def losses(step: Any, steps: int = 5) -> list[float]:
    return [step(*batch(seed=i)).item() for i in range(steps)]


def states(net: Any) -> list[np.ndarray]:
    return [v.detach().numpy().copy() for v in net.state_dict().values()]


@pytest.mark.parametrize("order", ["before", "after", "zeros before next"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_compiles_once_and_equals_eager(name: str, order: str) -> None:
    if name == "by hand" and order == "zeros before next":
        pytest.skip("the hand-written optimizer has no set_to_none")
    nets = [model(), model()]
    found = []
    counts = []
    for i, net in enumerate(nets):
        step = make_step(net, OPTIMIZERS[name](net.parameters()), order)
        if i:
            step = torch.compile(step)
        found.append(losses(step))
        counts.append(getattr(step, "compile_count", 1))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)
    for a, b in zip(states(nets[0]), states(nets[1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    assert counts[1] == 1


@pytest.mark.parametrize("owner", ["optimizer", "module", "by hand"])
def test_clearing_gradients_is_no_look_at_them(
    owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a gradient is there before it is cleared makes no version, and no second recording;
    one that the step itself does not make is cleared at each call, too."""
    net, unused = model(), nn.Linear(2, 2).double()
    whole = nn.ModuleList([net, unused])
    clear = {
        "optimizer": torch.optim.Adam(whole.parameters()).zero_grad,
        "module": whole.zero_grad,
        "by hand": HandWritten(whole.parameters(), 0.1).zero_grad,
    }[owner]
    recorded: list[Any] = []
    record = Recording.run

    def counted(recording: Any, *given: Any) -> None:
        recorded.append(recording)
        record(recording, *given)

    monkeypatch.setattr(Recording, "run", counted)

    @torch.compile
    def step(x: Any, y: Any) -> Any:
        clear()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        return loss

    x, y = batch()
    expected: list[Any] = []
    for given in (None, None, 3.0, None, 2.0):
        for p in whole.parameters():
            p.grad = None if given is None else torch.full_like(p, given)
        step(x, y)
        assert all(p.grad is None for p in unused.parameters())
        expected.append([p.grad.tolist() for p in net.parameters()])
    assert all(found == expected[0] for found in expected)
    assert step.compile_count == 1 and len(recorded) == 1


def test_a_learning_rate_schedule_never_recompiles() -> None:
    found = []
    for compiled in (False, True):
        net = model()
        opt = torch.optim.Adam(net.parameters(), lr=0.05)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=6)
        step = make_step(net, opt, "before")
        step = torch.compile(step) if compiled else step
        values = []
        for i in range(6):
            values.append(step(*batch(seed=i)).item())
            schedule.step()
        found.append(values)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)
    assert step.compile_count == 1


def test_a_smaller_last_batch_compiles_once_more_and_no_third_size() -> None:
    net = model()
    step = torch.compile(make_step(net, torch.optim.SGD(net.parameters(), lr=0.1), "before"))
    twin = model()
    eager = make_step(twin, torch.optim.SGD(twin.parameters(), lr=0.1), "before")
    for i, n in enumerate([8, 8, 5, 8, 5, 7, 3, 12]):
        assert step(*batch(n, i)).item() == pytest.approx(eager(*batch(n, i)).item(), rel=1e-12)
    assert step.compile_count == 2


def test_compile_of_a_model_in_an_ordinary_loop() -> None:
    found = []
    for compiled in (False, True):
        net = model()
        opt = torch.optim.Adam(net.parameters(), lr=0.01)
        run = torch.compile(net) if compiled else net
        values = []
        for i in range(4):
            x, y = batch(seed=i)
            opt.zero_grad()
            loss = F.cross_entropy(run(x), y)
            loss.backward()
            opt.step()
            values.append(loss.item())
        found.append(values)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


def test_a_compiled_module_stays_a_module() -> None:
    net = model()
    compiled = torch.compile(net)
    assert isinstance(compiled, nn.Sequential)
    assert list(compiled.state_dict()) == [f"_orig_mod.{name}" for name in net.state_dict()]
    assert [id(p) for p in compiled.parameters()] == [id(p) for p in net.parameters()]
    assert compiled.train(False) is compiled
    assert net.training is False
    assert repr(compiled) == repr(net)
    assert len(compiled) == 3
    twin = copy.deepcopy(compiled)
    x, _ = batch()
    np.testing.assert_allclose(twin(x).detach().numpy(), net(x).detach().numpy(), rtol=1e-12)


def test_the_next_call_sees_what_the_user_did_between() -> None:
    net = model()
    run = torch.compile(net)
    x, _ = batch()

    def check() -> None:
        np.testing.assert_allclose(run(x).detach().numpy(), net(x).detach().numpy(), rtol=1e-12)

    check()
    net.load_state_dict({k: v * 2 for k, v in net.state_dict().items()})
    check()
    net[0].weight.data = torch.ones_like(net[0].weight)
    check()
    net[0].weight.data.mul_(0.5)
    check()
    net[2] = nn.Linear(16, 3).double()
    check()
    with torch.no_grad():
        net[0].bias.fill_(1.0)
    check()


def test_a_frozen_parameter_stops_training() -> None:
    net = model()
    step = torch.compile(make_step(net, torch.optim.SGD(net.parameters(), lr=0.1), "before"))
    step(*batch())
    net[0].weight.requires_grad_(False)
    net[0].weight.grad = None
    before = net[0].weight.detach().clone()
    step(*batch())
    assert torch.equal(before, net[0].weight)


def test_save_and_resume() -> None:
    net = model()
    opt = torch.optim.Adam(net.parameters(), lr=0.01)
    step = torch.compile(make_step(net, opt, "before"))
    for i in range(3):
        step(*batch(seed=i))
    kept = copy.deepcopy((net.state_dict(), opt.state_dict()))
    later = [step(*batch(seed=i)).item() for i in range(3, 6)]
    net.load_state_dict(kept[0])
    opt.load_state_dict(kept[1])
    again = [step(*batch(seed=i)).item() for i in range(3, 6)]
    assert later == again


def test_outputs_of_many_calls_are_all_kept() -> None:
    double = torch.compile(lambda x: x * 2 + 1)
    kept = [double(torch.full((1000,), float(i))) for i in range(100)]
    for i, value in enumerate(kept):
        assert (value.numpy() == 2 * i + 1).all()


def test_two_forwards_then_two_backwards() -> None:
    net = model()
    run = torch.compile(net)
    (x, _), (z, _) = batch(seed=1), batch(seed=2)
    first, second = run(x).sum(), run(z).square().sum()
    first.backward()
    second.backward()
    got = [p.grad.numpy().copy() for p in net.parameters()]
    net.zero_grad()
    net(x).sum().backward()
    net(z).square().sum().backward()
    for g, p in zip(got, net.parameters(), strict=True):
        np.testing.assert_allclose(g, p.grad.numpy(), rtol=1e-10, atol=1e-12)


def test_dropout_draws_from_the_generator() -> None:
    def f(x: Any) -> Any:
        return F.dropout(x, 0.5)

    x = torch.ones(64)
    torch.manual_seed(3)
    eager = [f(x).tolist() for _ in range(3)]
    torch.manual_seed(3)
    compiled = torch.compile(f)
    assert [compiled(x).tolist() for _ in range(3)] == eager


def test_batch_norm_updates_its_buffers() -> None:
    net, twin = nn.BatchNorm1d(6).double(), nn.BatchNorm1d(6).double()
    run = torch.compile(net)
    for i in range(3):
        x, _ = batch(seed=i)
        np.testing.assert_allclose(run(x).detach().numpy(), twin(x).detach().numpy(), rtol=1e-12)
    for a, b in zip(net.buffers(), twin.buffers(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)
    assert net.num_batches_tracked.item() == 3


def test_a_counter_and_a_hidden_state_on_self() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = 0
            self.register_buffer("h", torch.zeros(3))

        def forward(self, x: Any) -> Any:
            self.steps += 1
            self.h = self.h * 0.5 + x
            return self.h + self.steps

    eager, net = Net(), Net()
    run = torch.compile(net)
    for i in range(6):
        x = torch.full((3,), float(i))
        assert run(x).tolist() == eager(x).tolist()
    assert net.steps == 6
    assert net.h.tolist() == eager.h.tolist()


def test_a_failing_trace_changes_nothing() -> None:
    net = model()
    opt = torch.optim.Adam(net.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        if loss.item() > 0:
            return loss
        return None

    before = states(net)
    with pytest.raises(RuntimeError, match=r"item\(\)"):
        torch.compile(step, fullgraph=True)(*batch())
    assert all((a == b).all() for a, b in zip(before, states(net), strict=True))
    assert all(p.grad is None for p in net.parameters())
    assert not opt.state_dict()["state"]


def test_an_index_out_of_range_raises_and_changes_nothing() -> None:
    emb = nn.Embedding(5, 3)
    opt = torch.optim.SGD(emb.parameters(), lr=0.1)

    def step(i: Any) -> Any:
        opt.zero_grad()
        loss = emb(i).sum()
        loss.backward()
        opt.step()
        return loss

    run = torch.compile(step)
    run(torch.tensor([0, 4]))
    before = states(emb)
    for bad in ([0, 5], [-1, 2]):
        with pytest.raises((IndexError, RuntimeError), match="out of"):
            run(torch.tensor(bad))
    assert all((a == b).all() for a, b in zip(before, states(emb), strict=True))


def test_views_and_in_place_writes() -> None:
    def f(x: Any) -> Any:
        y = x.clone()
        y[1:3].mul_(2)
        y.t()[0] = 5
        z = y.view(-1)
        z[0] += 1
        return y

    x = torch.arange(12.0).reshape(4, 3)
    assert torch.compile(f)(x).tolist() == f(x).tolist()


def test_an_argument_written_in_place() -> None:
    def f(x: Any) -> Any:
        x.add_(1)
        return x

    x = torch.zeros(5)
    run = torch.compile(f)
    assert run(x) is x
    assert run(x) is x
    assert x.tolist() == [2.0] * 5


def test_numbers_are_run_time_inputs_from_their_second_value_on() -> None:
    @torch.compile
    def f(x: Any, scale: float, shift: int) -> Any:
        return x * scale + shift

    x = torch.ones(3)
    for scale, shift in ((1.5, 1), (2.5, 4), (-1.0, 0)):
        assert f(x, scale, shift).tolist() == (x * scale + shift).tolist()
    assert f.compile_count == 2


def test_a_changed_global_or_closure_is_seen() -> None:
    factor = 2.0

    def f(x: Any) -> Any:
        return x * factor

    run = torch.compile(f)
    x = torch.ones(2)
    assert run(x).tolist() == [2.0, 2.0]
    factor = 3.0
    assert run(x).tolist() == [3.0, 3.0]
