"""Exported training steps: the bits of the compiled function, state by name, files, refusals."""

from __future__ import annotations

import copy
import dataclasses
import json
import random
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.__main__ import main
from graphc.export import Dim, ExportedStep, ExportError, aot, checking, export_step, load
from graphc.export.portable import portable
from graphc.export.steps import build, program
from graphc.frontend.errors import TraceError
from graphc.ir.kernel import Routine, leaves
from graphc.ir.text import parse_graph, print_graph


class Net(nn.Module):
    """Convolution, batch norm, dropout, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.25)
        self.head = nn.Linear(4 * 16, 10)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.head(self.drop(x.flatten(1)))


def batches(count: int, rows: int = 6) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    return [
        (torch.from_numpy(rng.standard_normal((rows, 1, 8, 8)).astype(np.float32)),
         torch.from_numpy(rng.integers(0, 10, rows)))
        for _ in range(count)
    ]


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
}


def plain(net: Any, opt: Any) -> Any:
    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss

    return step


def clipped(net: Any, opt: Any) -> Any:
    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
        opt.zero_grad()
        return loss.item(), norm

    return step


def autocast(net: Any, opt: Any) -> Any:
    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss

    return step


def accumulating(net: Any, opt: Any) -> Any:
    """Nobody clears the gradients: each call adds to what it finds."""
    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss

    return step


def several(net: Any, opt: Any) -> Any:
    """A call is two small batches."""
    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        for rows in (slice(0, 3), slice(3, 6)):
            loss = F.cross_entropy(net(x[rows]), y[rows]) / 2
            loss.backward()
        opt.step()
        return loss

    return step


STEPS = {"plain": plain, "clipped": clipped, "autocast": autocast, "accumulating": accumulating,
         "several": several}


def made(optimizer: str) -> tuple[Any, Any]:
    torch.manual_seed(0)
    net = Net()
    return net, OPTIMIZERS[optimizer](net.parameters())


def bits(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().numpy().tobytes()
    return [bits(part) for part in value] if isinstance(value, tuple) else value


def trained(step: Any, data: Any) -> list[Any]:
    return [bits(step(*pair)) for pair in data]


def state_of(net: Any, opt: Any) -> dict[str, Any]:
    """What state_dict() of an exported step says, of the objects themselves."""
    found = {name: bits(value) for name, value in net.state_dict().items()}
    for name, parameter in net.named_parameters():
        for key, value in opt.state.get(parameter, {}).items():
            found[f"optimizer.state.{name}.{key}"] = bits(value)
    return found


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


def small() -> tuple[Any, Any]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    return net, torch.optim.AdamW(net.parameters(), lr=0.01)


class Trainer:
    """State of its own: a counter, an average."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Linear(4, 2)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.steps = 0
        self.average = torch.zeros(())

    def step(self, x: Any) -> Any:
        self.opt.zero_grad()
        loss = self.net(x).square().mean() * (1 + self.steps * 0.1)
        loss.backward()
        self.opt.step()
        self.steps += 1
        self.average = 0.9 * self.average + 0.1 * loss.detach()
        return loss, self.steps


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


# --- what goes wrong -----------------------------------------------------------------------------


def test_wrong_calls_change_nothing() -> None:
    net, opt = made("adamw")
    x, y = batches(1)[0]
    exported = export_step(plain(net, opt), (x, y))
    before = {name: bits(value) for name, value in exported.state_dict().items()}
    for wrong, error, text in (
        ((x,), TypeError, "needs y"),
        ((x, y, x), TypeError, "takes 2 arguments"),
        ((x.double(), y), ValueError, "x must be f32"),
        ((x[:, :, :4], y), ValueError, "x must be f32"),
        ((x.clone().requires_grad_(), y), RuntimeError, "no autograd"),
        ((x, y + 100), IndexError, "102|10[0-9]"),
    ):
        with pytest.raises(error, match=text):
            exported(*wrong)
    assert {name: bits(value) for name, value in exported.state_dict().items()} == before
    torch.manual_seed(6)
    exported.manual_seed(6)
    assert trained(exported, [(x, y)]) == trained(torch.compile(plain(net, opt)), [(x, y)])


def test_states_that_do_not_fit() -> None:
    exported = export_step(plain(*made("adamw")), batches(1)[0])
    state = exported.state_dict()
    before = {name: bits(value) for name, value in state.items()}
    step = "optimizer.state.head.bias.step"
    for change, text in (
        ({"head.bias": torch.zeros(11)}, r"head.bias has the sizes \[11\], not \[10\]"),
        ({"generator": torch.zeros(626)}, "generator is f32, not i64"),
        ({"head.bias": torch.zeros(10, dtype=torch.int64)}, "head.bias is i64, not f32"),
        ({step: "x"}, f"{step} is a str"),
        ({"more": torch.zeros(1)}, "unknown: more"),
    ):
        with pytest.raises(RuntimeError, match=text):
            exported.load_state_dict({**state, "head.weight": state["head.weight"] + 1, **change})
    with pytest.raises(RuntimeError, match=r"missing: .*head\.bias"):
        exported.load_state_dict({"conv.bias": state["conv.bias"]})
    assert {name: bits(value) for name, value in exported.state_dict().items()} == before
    exported.load_state_dict({"conv.bias": np.full(4, 0.5)}, strict=False)
    assert bits(exported.state_dict()["conv.bias"]) == np.full(4, 0.5, np.float32).tobytes()


def refused(body: Callable[..., Any], *args: Any) -> str:
    with pytest.raises((ExportError, TraceError)) as caught:
        export_step(body, args)
    assert "Cure:" in str(caught.value)
    return str(caught.value)


def test_what_a_file_cannot_hold() -> None:
    """Each by its name, its line, and what to do."""
    net = nn.Linear(4, 2)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    losses: list[Any] = []
    trainer = Trainer()
    x = torch.ones(3, 4)

    def loss_of(x: Any) -> Any:
        opt.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        opt.step()
        return loss

    def appends(x: Any) -> None:
        losses.append(loss_of(x))

    def prints(x: Any) -> Any:
        loss = loss_of(x)
        print("a step")
        return loss

    def asks(x: Any) -> Any:
        loss = loss_of(x)
        return 1 if loss > 3 else 2

    def draws(x: Any) -> Any:
        return loss_of(x * random.random())

    def names(x: Any) -> Any:
        trainer.kind = "trained"
        return loss_of(x)

    def keeps(x: Any) -> Any:
        trainer.last = loss_of(x).detach()

    def decides(x: Any) -> Any:
        trainer.steps += 1
        return loss_of(x) if trainer.steps > 3 else loss_of(2 * x)

    def writes(x: Any) -> Any:
        loss = loss_of(x)
        x.zero_()
        return loss

    here = Path(__file__).name
    for body, name in (
        (appends, "losses"), (prints, "print"), (draws, "random"), (names, "kind"),
        (keeps, "last"), (decides, "steps"), (writes, "'x'"),
    ):
        said = refused(body, x)
        assert name in said, said
        if body in (appends, prints, names, decides):
            assert here in said, said
    assert here in refused(asks, x)
    assert losses == [] and trainer.steps == 0 and not hasattr(trainer, "kind")
    assert (x == 1).all()


def test_another_optimizers_first_step() -> None:
    """Two models, two optimizers, one step: names begin with the variables'."""
    torch.manual_seed(0)
    maker, judge = nn.Linear(2, 3), nn.Linear(3, 1)
    first = torch.optim.Adam(maker.parameters(), lr=0.01)
    second = torch.optim.SGD(judge.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        first.zero_grad()
        second.zero_grad()
        loss = judge(maker(x)).square().mean()
        loss.backward()
        first.step()
        second.step()
        return loss

    x = torch.ones(4, 2)
    exported = export_step(step, (x,))
    names = list(exported.state_dict())
    assert {"maker.weight", "judge.bias", "first.state.maker.weight.exp_avg"} <= set(names)
    assert {"first.param_groups.0.lr", "second.param_groups.0.lr"} <= set(names)
    assert trained(exported, [(x,)] * 4) == trained(torch.compile(step), [(x,)] * 4)


def tampered(path: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The file with another manifest."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename == "manifest.json":
                manifest = json.loads(data)
                change(manifest)
                data = json.dumps(manifest).encode()
            new.writestr(entry, data)
    return target


HOSTILE: dict[str, Callable[[dict[str, Any]], None]] = {
    "no step": lambda m: m.update(step=None),
    "a list": lambda m: m.update(step=[]),
    "another entry": lambda m: m["step"].update(more=1),
    "calls": lambda m: m["step"].update(calls=-1),
    "a generator that is a weight": lambda m: m["kinds"].update({"0.bias": "generator"}),
    "a text as a number": lambda m: m["step"]["settings"].update(lr="0.1"),
    "an unknown source": lambda m: m["step"]["computed"].update(
        {"number.0": ["source", "nothing"]}
    ),
    "an unknown operation": lambda m: m["step"]["computed"].update({"number.0": ["eval", ["x"]]}),
    "an operation that grows": lambda m: m["step"]["computed"].update(
        {"number.0": ["lshift", ["constant", 1], ["constant", 10**9]]}
    ),
    "too deep": lambda m: m["step"]["computed"].update({"number.0": deep(300)}),
    "nothing computed": lambda m: m["step"].update(computed={}),
    "no table": lambda m: m["step"]["tables"].update(x="0.weight"),
    "a decision": lambda m: m["step"].update(decided=[{"expression": ["constant", []]}]),
    "an update of nothing": lambda m: m["step"]["updates"].update(x=["constant", 1]),
    "a result": lambda m: m["graphs"][0].update(results={"item": 1000}),
    "a computed result": lambda m: m["graphs"][0].update(results={"computed": ["source", "y"]}),
    "random": lambda m: m["step"].update(random="dice"),
    "kind": lambda m: m.update(kind="program"),
    "a write of nothing": lambda m: m["graphs"][0]["writes"].append(
        {"output": 0, "weight": "nothing"}
    ),
}


def deep(levels: int) -> Any:
    found: Any = ["constant", 1]
    for _ in range(levels):
        found = ["neg", found]
    return found


def test_hostile_manifests(tmp_path: Path) -> None:
    net, opt = small()
    export_step(plain(net, opt), batches(1)[0]).save(tmp_path / "good.gcx")
    load(tampered(tmp_path / "good.gcx", tmp_path / "same.gcx", lambda m: None))
    for name, change in HOSTILE.items():
        bad = tampered(tmp_path / "good.gcx", tmp_path / "bad.gcx", change)
        with pytest.raises(ExportError):
            load(bad)
            pytest.fail(name)


def test_a_power_that_is_too_large(tmp_path: Path) -> None:
    """What a file computes in Python is bounded as it is computed, too."""
    net, opt = small()
    x, y = batches(1)[0]
    export_step(plain(net, opt), (x, y)).save(tmp_path / "good.gcx")
    power = ["pow", ["constant", 10], ["constant", 10**9]]
    path = tampered(tmp_path / "good.gcx", tmp_path / "bad.gcx",
                    lambda m: m["step"]["computed"].update({"number.0": power}))
    with pytest.raises(ValueError, match="too large"):
        load(path)(x, y)


# --- compared with eager mode, and verified ------------------------------------------------------


def wrongly(old: str, new: str) -> Callable[..., Any]:
    """What makes a graph for a file of a recorded one, with another operator in it."""
    def wrong(graph: Any, labels: Any) -> Any:
        text = print_graph(graph)
        assert old in text
        return portable(parse_graph(text.replace(old, new)), labels)

    return wrong


def test_a_step_that_differs_from_eager_mode_is_not_exported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In its results, or in what it leaves behind; and nothing has changed."""
    pair = batches(1)[0]
    for optimizer, old, new, text in (
        ("adamw", "= rsqrt", "= sqrt", "the result is off in 1 of 1|which the step writes"),
        ("momentum", "= relu", "= abs", "the exported graph differs from the step in eager mode"),
    ):
        net, opt = made(optimizer)
        step = plain(net, opt)
        before = state_of(net, opt)
        generator = bits(torch.get_rng_state())
        with monkeypatch.context() as patch:
            patch.setattr(build, "portable", wrongly(old, new))
            with pytest.raises(ExportError, match=text):
                export_step(step, pair)
            export_step(step, pair, check=False)
        assert state_of(net, opt) == before and bits(torch.get_rng_state()) == generator


def verified(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main(["verify", str(path)])
    return code, capsys.readouterr().out


@pytest.mark.parametrize("name", ["plain", "clipped", "accumulating"])
def test_verify_runs_the_recorded_call_of_a_step(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the state that it found, also where calls have changed that since."""
    net, opt = made("adamw")
    data = batches(3)
    path = tmp_path / "step.gcx"
    export_step(STEPS[name](net, opt), data[0]).save(path)
    code, said = verified(path, capsys)
    assert code == 0 and said.count("ok ") == 2 and "compared with eager mode" in said
    loaded = load(path)
    trained(loaded, data)
    loaded.save(path)
    again = load(path)
    assert again.contents.goldens[0].state["head.bias"].tobytes() == bits(net.head.bias)
    assert {k: bits(v) for k, v in again.state_dict().items()} == {
        k: bits(v) for k, v in loaded.state_dict().items()
    }
    trained(again, data)
    again.save(path)
    code, said = verified(path, capsys)
    assert code == 0 and said.count("ok ") == 2


def test_verify_finds_another_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A weight, a moment, a number: what a call makes of them is not what was recorded."""
    net, opt = made("adamw")
    exported = export_step(plain(net, opt), batches(1)[0])
    for name, change in (
        ("head.weight", lambda a: a + 0.1), ("optimizer.state.head.weight.exp_avg", lambda a: a + 1)
    ):
        arrays = dict(exported.contents.weights.arrays)
        arrays[name] = change(arrays[name]).astype(arrays[name].dtype)
        contents = exported.snapshot()
        weights = dataclasses.replace(contents.weights, arrays=arrays)
        ExportedStep(dataclasses.replace(contents, weights=weights)).save(tmp_path / "step.gcx")
        code, said = verified(tmp_path / "step.gcx", capsys)
        assert code == 1 and said.count("FAIL") == 2


def test_recorded_calls_of_numbers_and_free_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = Trainer()
    mine.steps = 3
    exported = export_step(mine.step, (torch.ones(3, 4),), dynamic_shapes=({0: Dim("n", max=40)},))
    assert exported.contents.checked == ({"n": 3}, {"n": 1}, {"n": 2}, {"n": 40})
    golden = exported.contents.goldens[0]
    assert golden.numbers["steps"] == 3 and golden.written["steps"] == 4
    assert golden.outputs[1].dtype == np.int64 and "average" in golden.written
    exported(torch.ones(5, 4))
    exported.save(tmp_path / "step.gcx")
    assert verified(tmp_path / "step.gcx", capsys)[0] == 0
    path = tampered(tmp_path / "step.gcx", tmp_path / "other.gcx",
                    lambda m: m["goldens"][0]["numbers"].update(steps=4))
    code, said = verified(path, capsys)
    assert code == 1 and said.count("FAIL") == 2 and "result 0 is off in 1 of 1" in said


def test_large_states_keep_what_is_small_of_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checking, "GOLDEN", 4_000)
    monkeypatch.setattr(program, "GOLDEN", 4_000)
    net, opt = made("adamw")
    pair = batches(1)[0]
    exported = export_step(plain(net, opt), pair)
    golden = exported.contents.goldens[0]
    assert {"conv.bias", "norm.running_var"} <= golden.written.keys()
    assert "head.weight" not in golden.written
    exported.save(tmp_path / "step.gcx")
    assert verified(tmp_path / "step.gcx", capsys)[0] == 0
    exported(*pair)
    exported.save(tmp_path / "step.gcx")
    assert load(tmp_path / "step.gcx").contents.goldens == ()


# --- decisions upon tensors ----------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["momentum", "adamw", "rmsprop"])
@pytest.mark.parametrize("unscaled", [False, True])
def test_a_scaler_skips_steps(optimizer: str, unscaled: bool, tmp_path: Path) -> None:
    """What it found decides inside the graph: a skipped step leaves all as it was, to the bit."""
    net, opt = made(optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)

    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        if unscaled:
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        return loss

    exported = export_step(step, batches(1)[0])
    assert scaler._scale is None and scaler._per_optimizer_states == {}
    exported.save(tmp_path / "step.gcx")
    loaded = load(tmp_path / "step.gcx")
    torch.manual_seed(1)
    loaded.manual_seed(1)
    for i, (x, y) in enumerate(batches(12)):
        x = x * float("inf") if i in (0, 5, 6) else x
        before = {k: bits(v) for k, v in loaded.state_dict().items()}
        found, want = loaded(x, y), step(x, y).detach()
        np.testing.assert_allclose(found.numpy(), want.numpy(), atol=1e-3)
        state = loaded.state_dict()
        assert state["scaler.scale"].item() == scaler.get_scale()
        assert state["scaler._growth_tracker"].item() == scaler._get_growth_tracker()
        kept = [n for n in before if n.startswith(("head", "conv", "optimizer.state"))]
        same = [n for n in kept if bits(state[n]) == before[n]]
        assert (same == kept) if i in (0, 5, 6) else len(same) < len(kept) / 2
    assert scaler.get_scale() == 512.0


def test_a_scaler_of_somebody_elses_optimizer_is_refused() -> None:
    """What its step does besides writing to tensors could not be taken back."""
    net, _ = small()

    class Counting(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            self.count = getattr(self, "count", 0) + 1
            return super().step(closure)

    opt = Counting(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")

    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        scaler.scale(F.cross_entropy(net(x), y)).backward()
        scaler.step(opt)
        scaler.update()

    assert "item()" in refused(step, *batches(1)[0])
    assert scaler._scale is None and not opt.state


@pytest.mark.parametrize("kind", ["equal", "ema", "multi ema", "own"])
def test_averaged_models(kind: str, tmp_path: Path) -> None:
    """The first call copies, those after it average, in one graph."""
    utils = torch.optim.swa_utils
    net, opt = made("momentum")
    options: dict[str, Any] = {
        "equal": {}, "ema": {"avg_fn": utils.get_ema_avg_fn(0.9)},
        "multi ema": {"multi_avg_fn": utils.get_ema_multi_avg_fn(0.9), "use_buffers": True},
        "own": {"avg_fn": lambda mean, now, n: mean + (now - mean) / n},
    }[kind]
    averages = utils.AveragedModel(net, **options)

    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        averages.update_parameters(net)
        return loss

    data = batches(6)
    exported = export_step(step, data[0])
    assert averages.n_averaged == 0
    exported.save(tmp_path / "step.gcx")
    loaded = load(tmp_path / "step.gcx")
    torch.manual_seed(1)
    loaded.manual_seed(1)
    for pair in data:
        np.testing.assert_allclose(loaded(*pair).numpy(), step(*pair).detach().numpy(), atol=1e-4)
    state = loaded.state_dict()
    assert state["averages.n_averaged"].item() == 6
    for name, value in averages.module.state_dict().items():
        found = state[f"averages.module.{name}"].numpy()
        np.testing.assert_allclose(found, value.numpy(), atol=1e-3)
