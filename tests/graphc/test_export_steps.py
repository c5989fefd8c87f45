"""Exported training steps: the bits of the compiled function, state by name, files, free sizes."""

from __future__ import annotations

import copy
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.export import Dim, ExportedStep, ExportError, aot, export_step, load
from graphc.ir.kernel import Routine, leaves
from tests.graphc.exported_steps import (
    STEPS,
    Trainer,
    batches,
    bits,
    made,
    plain,
    small,
    state_of,
    trained,
    verified,
)

SLOW = [
    ("plain", "adam"), ("plain", "rmsprop"), ("several", "adamw"), ("clipped", "adamw"),
    ("autocast", "adamw"),
]
CASES = [("plain", "adamw"), ("plain", "momentum"), ("accumulating", "adamw")]
CASES += [pytest.param(*case, marks=pytest.mark.slow) for case in SLOW]  # type: ignore[misc]


@pytest.mark.parametrize(("name", "optimizer"), CASES)
def test_a_hundred_steps_have_the_compiled_bits(
    name: str, optimizer: str, tmp_path: Path
) -> None:
    """... and the export itself has changed nothing."""
    net, opt = made(optimizer)
    data = batches(8)
    step = STEPS[name](net, opt)
    before = state_of(net, opt), copy.deepcopy(opt.state_dict())
    exported = export_step(step, data[0])
    assert (state_of(net, opt), opt.state_dict()) == before
    assert all(p.grad is None for p in net.parameters())
    exported.save(tmp_path / "step.gcx")
    torch.manual_seed(1)
    exported.manual_seed(1)
    count = 100 if (name, optimizer) == ("plain", "adamw") else 12
    turns = [data[i % len(data)] for i in range(count)]
    want = trained(torch.compile(step), turns)
    assert trained(exported, turns) == want
    state = {k: bits(v) for k, v in exported.state_dict().items()}
    expected = state_of(net, opt)
    assert {name: state[name] for name in expected} == expected
    loaded = load(tmp_path / "step.gcx")
    assert isinstance(loaded, ExportedStep)
    loaded.manual_seed(1)
    assert trained(loaded, turns[:4]) == want[:4]


def test_no_step_is_pythons() -> None:
    net, opt = made("adamw")
    exported = export_step(plain(net, opt), batches(1)[0])
    program = exported.lower().program
    host = [s for s in leaves(program.steps) if isinstance(s, Routine) and not s.claimed]
    assert host == []


def test_the_state_has_the_names_of_the_state_dicts() -> None:
    net, opt = made("adamw")
    exported = export_step(plain(net, opt), batches(1)[0])
    kinds: dict[str, list[str]] = {}
    for entry in exported.entries:
        kinds.setdefault(entry.kind, []).append(entry.name)
    assert kinds["parameter"] == [name for name, _ in net.named_parameters()]
    assert kinds["buffer"] == [name for name, _ in net.named_buffers()]
    assert "optimizer.state.conv.weight.exp_avg_sq" in kinds["optimizer"]
    assert "optimizer.state.head.bias.step" in kinds["optimizer"]
    assert kinds["generator"] == ["generator"]
    assert "optimizer.param_groups.0.lr" in kinds["number"]
    assert exported.numbers["optimizer.param_groups.0.betas.0"] == 0.9
    written = {entry.name for entry in exported.entries if entry.written}
    assert {"conv.weight", "norm.num_batches_tracked", "generator"} <= written
    assert "optimizer.param_groups.0.lr" not in written


def test_stop_save_resume(tmp_path: Path) -> None:
    net, opt = made("adamw")
    data = batches(12)
    exported = export_step(plain(net, opt), data[0])
    twin = export_step(plain(net, opt), data[0])
    whole = trained(exported, data)
    assert trained(twin, data[:5]) == whole[:5]
    twin.save(tmp_path / "half.gcx")
    state = {name: tensor.clone() for name, tensor in twin.state_dict().items()}
    assert trained(load(tmp_path / "half.gcx"), data[5:]) == whole[5:]
    fresh = export_step(plain(*made("adamw")), data[0])
    trained(fresh, data[3:6])
    fresh.load_state_dict(state)
    assert trained(fresh, data[5:]) == whole[5:]
    net.load_state_dict({name: state[name] for name in net.state_dict()})
    assert bits(net.conv.weight) == bits(state["conv.weight"])


def test_a_rate_that_is_an_argument_or_set() -> None:
    net, opt = small()
    data = batches(6)

    def step(x: Any, y: Any, lr: float) -> Any:
        opt.param_groups[0]["lr"] = lr
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss, lr * 2

    exported = export_step(step, (*data[0], 0.1))
    turns = [(*pair, 0.1 / (i + 1)) for i, pair in enumerate(data)]
    compiled = torch.compile(step)
    want = trained(compiled, turns)
    assert trained(exported, turns) == want
    assert exported.numbers["optimizer.param_groups.0.lr"] == turns[-1][2]
    with pytest.raises(TypeError, match="lr must be a float"):
        exported(*data[0], torch.tensor(0.1))

    net, opt = small()
    by_setting = export_step(plain(net, opt), data[0])
    step_of = torch.compile(plain(net, opt))
    for i, pair in enumerate(data):
        by_setting.numbers["optimizer.param_groups.0.lr"] = rate = 0.05 * (i + 1)
        opt.param_groups[0]["lr"] = rate
        assert bits(by_setting(*pair)) == bits(step_of(*pair))


@pytest.mark.parametrize("schedule", [
    "one cycle", *(pytest.param(name, marks=pytest.mark.slow)
                   for name in ("cosine", "lambda", "sequence"))
])
def test_a_schedule_is_a_table(schedule: str, tmp_path: Path) -> None:
    net, opt = small()
    rates = torch.optim.lr_scheduler
    plan = {
        "cosine": lambda: rates.CosineAnnealingLR(opt, 7),
        "lambda": lambda: rates.LambdaLR(opt, lambda epoch: 1 / (1 + epoch)),
        "sequence": lambda: rates.SequentialLR(
            opt, [rates.LinearLR(opt, 0.1, 1.0, 4), rates.ExponentialLR(opt, 0.9)], [4]
        ),
        "one cycle": lambda: rates.OneCycleLR(opt, 0.1, total_steps=20),
    }[schedule]()

    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        plan.step()
        return loss, plan.get_last_lr()[0]

    data = batches(10)
    with pytest.raises(ExportError, match=r"calls=N"):
        export_step(step, data[0])
    before = copy.deepcopy({k: v for k, v in vars(plan).items() if k in ("last_epoch", "_last_lr")})
    exported = export_step(step, data[0], calls=10)
    assert before == {k: vars(plan)[k] for k in before}
    exported.save(tmp_path / "step.gcx")
    want = trained(torch.compile(step), data)
    assert trained(exported, data) == want
    with pytest.raises(ValueError, match="10 calls, and this is call 11"):
        exported(*data[0])
    loaded = load(tmp_path / "step.gcx")
    assert trained(loaded, data[:3]) == want[:3]
    rest = load(tmp_path / "step.gcx")
    rest.load_state_dict(loaded.state_dict())
    assert rest.calls == 3 and trained(rest, data[3:]) == want[3:]


def test_state_of_pythons_objects(tmp_path: Path) -> None:
    mine, theirs = Trainer(), Trainer()
    x = torch.ones(3, 4)
    exported = export_step(mine.step, (x,))
    assert mine.steps == 0 and bits(mine.average) == bits(torch.zeros(()))
    compiled = torch.compile(theirs.step)
    assert trained(exported, [(x,)] * 5) == trained(compiled, [(x,)] * 5)
    exported.save(tmp_path / "step.gcx")
    loaded = load(tmp_path / "step.gcx")
    assert loaded.numbers["steps"] == 5
    assert bits(loaded.state_dict()["average"]) == bits(theirs.average)
    assert trained(loaded, [(x,)] * 2) == trained(compiled, [(x,)] * 2)


def test_free_sizes() -> None:
    net, opt = small()
    data = batches(1)[0]
    free = {"x": {0: Dim("batch", max=32)}, "y": {0: Dim("batch", max=32)}}
    exported = export_step(plain(net, opt), data, dynamic_shapes=free)
    step = plain(net, opt)
    for rows in (6, 2, 17, 1, 6):
        pair = batches(1, rows)[0]
        assert np.allclose(exported(*pair).numpy(), step(*pair).detach().numpy(), atol=1e-5)
    with pytest.raises(ValueError, match="batch"):
        exported(*batches(1, 33)[0])


def test_a_size_of_1_that_the_step_cannot_take() -> None:
    net, opt = made("adamw")
    net.norm = nn.BatchNorm1d(4 * 16)
    net.forward = lambda x: net.head(net.norm(F.max_pool2d(net.conv(x), 2).flatten(1)))
    pair = batches(1)[0]
    free = ({0: Dim("batch")}, {0: Dim("batch")})
    exported = export_step(plain(net, opt), pair, dynamic_shapes=free)
    assert exported.signature.ranges["batch"].least == 2
    with pytest.raises(ValueError, match="at batch = 1 the step raises ValueError: Expected more "):
        exported(*batches(1, 1)[0])
    free = ({0: Dim("batch", min=1)}, {0: Dim("batch", min=1)})
    with pytest.raises(ExportError, match="'batch' is to be 1 to any size, but at batch = 1"):
        export_step(plain(net, opt), pair, dynamic_shapes=free)
    assert all(p.grad is None for p in net.parameters()) and not opt.state


def test_a_second_graph_for_size_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What Python makes of a size, a constant of its own, a result of another rank."""
    torch.manual_seed(0)
    table = torch.arange(1000.0)

    def made_one() -> tuple[Any, Any, Any]:
        torch.manual_seed(0)
        net = nn.Linear(4, 2)
        opt = torch.optim.Adam(net.parameters(), lr=0.1)

        def step(x: Any, scale: float) -> Any:
            opt.zero_grad()
            loss = F.dropout(net(x)).square().sum() * (scale / x.shape[0])
            if x.shape[0] == 1:
                loss = loss + (table * net.bias[0]).mean()
            loss.backward()
            opt.step()
            return loss, x.squeeze(), x.shape[0], x.shape[0] * scale

        return net, opt, step

    net, _, step = made_one()
    x = torch.randn(7, 4)
    exported = export_step(step, (x[:3], 0.5), dynamic_shapes=({0: Dim("n", min=1)}, None))
    assert [variant.ones for variant in exported.contents.variants] == [set(), {"n"}]
    assert {"n": 1} in exported.contents.checked and len(exported.contents.goldens) == 2
    exported.save(tmp_path / "step.gcx")
    code, said = verified(tmp_path / "step.gcx", capsys)
    assert code == 0 and "call 1 (n = 1)" in said and said.count("ok ") == 4
    loaded = load(tmp_path / "step.gcx")
    for each in (exported, loaded):
        each.manual_seed(5)
    torch.manual_seed(5)
    for rows in (3, 1, 7, 1, 1, 2):
        for each in (exported, loaded):
            found, want = each(x[:rows], 0.25), None
            torch.testing.assert_close(found[1], x[:rows].squeeze())
            assert found[2:] == (rows, rows * 0.25)
        want = step(x[:rows], 0.25)
        torch.testing.assert_close(found[0], want[0].detach(), atol=1e-5, rtol=1e-4)
    state = loaded.state_dict()
    torch.testing.assert_close(state["weight"], net.weight.detach(), atol=1e-4, rtol=1e-3)
    with pytest.raises(ExportError, match="1 to 8 for 'n', which was exported for 2 to any size"):
        aot(loaded, tmp_path, sizes={"n": (1, 8)})  # a library has the first graph alone


def test_random_numbers_by_a_counter(tmp_path: Path) -> None:
    net, opt = made("momentum")
    data = batches(3)
    by_counter = export_step(plain(net, opt), data[0], random="counter")
    by_stream = export_step(plain(net, opt), data[0])
    by_counter.save(tmp_path / "step.gcx")
    for each in (by_counter, by_stream):
        each.manual_seed(3)
    found = trained(by_counter, data)
    assert found != trained(by_stream, data)
    loaded = load(tmp_path / "step.gcx")
    assert loaded.contents.generator == {"weight": "generator", "algorithm": "counter"}
    loaded.manual_seed(3)
    assert trained(loaded, data) == found


def test_threads_take_turns() -> None:
    """Calls of several threads are some order of calls: here all are the same."""
    net, opt = small()
    pair = batches(1)[0]
    exported = export_step(plain(net, opt), pair)
    one_by_one = export_step(plain(net, opt), pair)
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.extend(trained(exported, [pair] * 10)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(trained(one_by_one, [pair] * 40))
