"""optimizer.step() outside of compiled code as one native call: eager mode's bits, always."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import Tensor, config, optim
from graphc.engine.update.rows import Batch
from graphc.optim import whole_step

SHAPES = ((3, 4), (7,), (), (0, 3), (5, 1, 2), (130, 51))
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: optim.SGD(p, 0.1),
    "SGD momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9, dampening=0.3, weight_decay=0.1),
    "SGD nesterov": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, maximize=True),
    "Adam": lambda p: optim.Adam(p, 0.1, foreach=True),
    "Adam all": lambda p: optim.Adam(p, 0.1, (0.3, 0.2), 1e-3, 1, amsgrad=True, maximize=True),
    "AdamW": lambda p: optim.AdamW(p, 0.1, fused=True),
    "RMSprop": lambda p: optim.RMSprop(p, 0.1),
    "RMSprop all": lambda p: optim.RMSprop(
        p, 0.1, weight_decay=0.2, momentum=0.9, centered=True, capturable=True
    ),
    "Adagrad": lambda p: optim.Adagrad(p, 0.1, lr_decay=0.1, weight_decay=0.1),
    "Adadelta": lambda p: optim.Adadelta(p, 0.9, weight_decay=0.1, maximize=True),
    "Adamax": lambda p: optim.Adamax(p, 0.1, weight_decay=0.1),
    "ASGD": lambda p: optim.ASGD(p, 0.1, t0=3, weight_decay=0.1),
    "NAdam": lambda p: optim.NAdam(p, 0.1, weight_decay=0.1),
    "NAdam decoupled": lambda p: optim.NAdam(
        p, 0.1, weight_decay=0.1, decoupled_weight_decay=True
    ),
    "RAdam": lambda p: optim.RAdam(p, 0.1, weight_decay=0.1),
    "Rprop": lambda p: optim.Rprop(p, 0.1),
}


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many rows each native call has updated; steps are native from the second on."""
    calls: list[int] = []
    run = Batch.run

    def counted(self: Batch) -> None:
        calls.append(len(self._rows))
        run(self)

    monkeypatch.setattr(Batch, "run", counted)
    with config.override(steps="1"):
        yield calls


def leaves(dtype: Any = graphc.float32, shapes: Any = SHAPES) -> list[Tensor]:
    draw = np.random.default_rng(0)
    return [
        graphc.tensor(draw.standard_normal(shape), dtype=dtype, requires_grad=True)
        for shape in shapes
    ]


def give(params: list[Tensor], step: int, special: bool = False) -> None:
    """New gradients. `special`: with what is no number among them."""
    draw = np.random.default_rng(step + 1)
    for param in params:
        value = draw.standard_normal(tuple(param.shape))
        if special and value.size > 6:
            value.reshape(-1)[[1, 3, 5]] = np.nan, np.inf, -np.inf
        param.grad = graphc.tensor(value, dtype=param.dtype)


def seen(params: list[Tensor], optimizer: Any) -> list[Any]:
    """All that a step writes: bits and counts of writes."""
    found: list[Any] = []
    for param in params:
        for name, value in {"": param, **optimizer.state[param]}.items():
            # a NaN's sign is nobody's promise
            bits = np.where(np.isnan(value.detach().numpy()), np.nan, value.detach().numpy())
            found.append((name, bits.tobytes(), value._version))
    return found


def both(run: Callable[[], list[Any]]) -> None:
    """The same, in eager mode and as native code."""
    found = run()
    with config.override(steps="0"):
        assert found == run()


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [graphc.float32, graphc.float64], ids=["f32", "f64"])
def test_bits(name: str, dtype: Any, native: list[int]) -> None:
    """Rates change at each step, gradients are special and missing."""

    def run() -> list[Any]:
        params = leaves(dtype)
        optimizer = OPTIMIZERS[name](params)
        rates = optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
        found = []
        for i in range(7):
            give(params, i, special=i == 5)
            if i in (3, 4):
                params[i].grad = None
            optimizer.step()
            rates.step()
            found.append(seen(params, optimizer))
        return found

    both(run)
    # counts of steps differ from the fourth on: then the rows are in two calls
    assert sum(native) == len(SHAPES) * 6 - 2


def test_a_schedule_compiles_nothing(native: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    from graphc.engine.update import steps

    made: list[Any] = []
    record = steps.record
    monkeypatch.setattr(
        steps, "record", lambda *asked: made.append(asked[0]) or record(*asked)
    )
    monkeypatch.setattr(steps, "_rules", {})
    first, second = leaves(), leaves(shapes=((2, 9),))
    one, other = optim.Adam(first, 0.1), optim.Adam([
        {"params": second, "lr": 0.3, "betas": (0.8, 0.7)}
    ])
    for i in range(5):
        give(first, i)
        give(second, i)
        for optimizer in one, other:
            optimizer.step()
            optimizer.param_groups[0]["lr"] *= 0.9
    assert len(native) == 8
    assert len(made) == 1


def test_groups_and_what_is_changed_between_steps(native: list[int]) -> None:
    def run() -> list[Any]:
        params = leaves()
        optimizer = optim.SGD([
            {"params": params[:2], "lr": 0.3}, {"params": params[2:3], "momentum": 0.5}
        ], 0.1, momentum=0.9)
        found = []
        for i in range(14):
            give(params, i)
            if i == 3:
                optimizer.add_param_group({"params": params[3:], "weight_decay": 0.3})
            if i == 5:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            if i == 7:
                optimizer.state[params[0]]["momentum_buffer"] = graphc.ones(3, 4)
            if i == 8:
                params[1].data = graphc.full((7,), 3.0)
            if i == 9:
                optimizer.state = {param: dict(optimizer.state[param]) for param in params}
            if i == 10:
                optimizer.state[params[1]]["momentum_buffer"] = graphc.full((7,), 2.0)
            if i == 11:
                optimizer.param_groups[1]["momentum"] = 0
            if i == 12:
                params[5].grad = params[5].grad.t().contiguous().t()
            optimizer.step()
            found.append(seen(params, optimizer))
        return found

    both(run)
    assert len(native) > 20


def test_hooks_closures_and_clipping(native: list[int]) -> None:
    def run() -> list[Any]:
        params = leaves(shapes=((4, 3), (3,)))
        optimizer = optim.AdamW(params, 0.1)
        told: list[str] = []
        optimizer.register_step_pre_hook(lambda *_: told.append("before"))
        optimizer.register_step_post_hook(lambda *_: told.append("after"))
        x = graphc.ones(2, 4)

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = (x @ params[0] + params[1]).square().sum()
            loss.backward()
            graphc.nn.utils.clip_grad_norm_(params, 1.0)
            told.append("closure")
            return loss

        losses = [optimizer.step(closure).item() for _ in range(4)]
        return [losses, told, seen(params, optimizer)]

    both(run)
    assert native == [2, 2, 2]


def test_the_scaler_of_gradients(native: list[int]) -> None:
    def run() -> list[Any]:
        params = leaves(shapes=((4, 3), (3,)))
        optimizer = optim.SGD(params, 0.1, momentum=0.9)
        scaler = graphc.amp.GradScaler("cpu", init_scale=4.0)
        for i in range(4):
            scaler.scale(graphc.ones(()))
            give(params, i, special=i == 2)
            scaler.step(optimizer)
            scaler.update()
        return [scaler.get_scale(), seen(params, optimizer)]

    both(run)
    assert native


def shared(params: list[Tensor]) -> list[Tensor]:
    whole = graphc.arange(12.0)
    return [whole[:8].requires_grad_(), whole[4:].requires_grad_()]


def turned(params: list[Tensor]) -> list[Tensor]:
    return [graphc.arange(12.0).reshape(3, 4).t().requires_grad_()]


def of_halves(params: list[Tensor]) -> list[Tensor]:
    return [graphc.arange(12.0, dtype=graphc.float16).requires_grad_()]


def of_complex(params: list[Tensor]) -> list[Tensor]:
    return [graphc.ones(5, dtype=graphc.complex64).requires_grad_()]


@pytest.mark.parametrize("change", [shared, turned, of_halves, of_complex])
def test_what_stays_eager(change: Callable[[Any], list[Tensor]], native: list[int]) -> None:
    def run() -> list[Any]:
        params = change([])
        optimizer = optim.Adam(params, 0.1)
        for i in range(5):
            give(params, i)
            optimizer.step()
        return seen(params, optimizer)

    both(run)
    assert native == []


def test_a_gradient_in_the_memory_of_a_parameter(native: list[int]) -> None:
    def run() -> list[Any]:
        params = leaves(shapes=((6,), (6,)))
        optimizer = optim.SGD(params, 0.1, momentum=0.5, weight_decay=0.1)
        for i in range(5):
            give(params, i)
            if i > 2:
                params[1].grad = params[0].detach()
            optimizer.step()
        return seen(params, optimizer)

    both(run)
    assert native == [2, 2]


def test_other_options(native: list[int]) -> None:
    def run(**options: Any) -> list[Any]:
        params = leaves(shapes=((6,),))
        optimizer = optim.Adam(params, **options)
        for i in range(4):
            give(params, i)
            optimizer.step()
        return seen(params, optimizer)

    both(lambda: run(lr=graphc.tensor(0.1)))
    assert native == []
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):  # as in torch
        run(differentiable=True)
    assert native == []
    both(lambda: run(lr=1, weight_decay=0, betas=(0.0, 0.5)))
    assert native == [1, 1, 1]


def test_classes_of_the_user(native: list[int]) -> None:
    class Own(optim.SGD):
        def _graphc_update(self, group: Any, param: Tensor, grad: Tensor) -> None:
            param.sub_(grad)

    class Around(optim.SGD):
        def step(self, closure: Any = None) -> Any:
            super().step(closure)
            with graphc.no_grad():
                self.param_groups[0]["params"][0].mul_(2)

    def run(kind: Any) -> list[Any]:
        params = leaves(shapes=((6,),))
        optimizer = kind(params, 0.1)
        for i in range(4):
            give(params, i)
            optimizer.step()
        return seen(params, optimizer)

    both(lambda: run(Own))
    assert native == []
    both(lambda: run(Around))
    assert native == [1, 1, 1]


def test_backwards_see_the_writes(native: list[int]) -> None:
    (param,) = leaves(shapes=((6,),))
    optimizer = optim.SGD([param], 0.1)
    compiled = graphc.compile(lambda w: (w * w).sum())
    for i in range(3):
        give([param], i)
        optimizer.step()
    product, value, kept = (param * param).sum(), param.detach().clone(), compiled(param)
    give([param], 3)
    optimizer.step()
    assert native == [1, 1, 1]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.backward()
    assert not graphc.equal(value, param)


def test_who_watches_sees_operators(native: list[int]) -> None:
    from graphc.utils.flop_counter import FlopCounterMode

    (param,) = leaves(shapes=((6,),))
    optimizer = optim.SGD([param], 0.1)
    for i in range(4):
        give([param], i)
        with FlopCounterMode(display=False):
            optimizer.step()
    assert native == []


def test_errors_are_those_of_eager_mode(native: list[int]) -> None:
    (param,) = leaves(shapes=((6,),))
    optimizer = optim.Adam([param], 0.1)
    for i in range(3):
        give([param], i)
        optimizer.step()
    optimizer.state[param]["step"].fill_(-1)
    give([param], 3)
    before = param.detach().numpy().copy()
    with pytest.raises(ZeroDivisionError):
        optimizer.step()
    assert native == [1, 1]
    assert np.array_equal(before, param.detach().numpy())


def test_steps_are_counted_before_they_are_compiled(
    native: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_step, "FIRST", 100)
    monkeypatch.setattr(whole_step, "LATER", 100)
    (param,) = leaves(shapes=((6,),))
    optimizer = optim.SGD([param], 0.1)
    with config.override(steps="auto"):
        for i in range(20):
            give([param], i)
            optimizer.step()
    assert len(native) == 20 - -(-100 // whole_step.OPERATORS)


@pytest.mark.parametrize("name", ["AdamW", "Adam all", "SGD momentum"])
def test_the_first_step_of_large_parameters(
    name: str, native: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operators one by one would need memory for what is between them."""
    monkeypatch.setattr(whole_step, "NUMBERS", 1)
    found = []
    for steps in ("auto", "0"):
        params = leaves(shapes=(*SHAPES, (40, 90)))
        optimizer = OPTIMIZERS[name](params)
        with config.override(steps=steps):
            give(params, 0)
            params[1].grad = None
            optimizer.step()
            begun = [*native]
            give(params, 1, special=True)
            optimizer.step()
        found.append(seen(params, optimizer))
        assert bool(begun) == (name != "SGD momentum"), "SGD makes its state of the gradient"
    for ours, eager in zip(*found, strict=True):
        np.testing.assert_equal(ours, eager)


def test_many_threads_of_optimizers(native: list[int]) -> None:
    """Each thread its own, all the same native code."""
    import threading

    def run(found: dict[int, Any], number: int) -> None:
        with config.override(steps="1"):
            params = leaves()
            optimizer = optim.Adam(params, 0.1)
            for i in range(20):
                give(params, i)
                optimizer.step()
            found[number] = seen(params, optimizer)

    results: dict[int, Any] = {}
    threads = [threading.Thread(target=run, args=(results, i)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with config.override(steps="0"):
        run(alone := {}, 0)
    assert len(results) == 4
    assert all(result == alone[0] for result in results.values())


_AGAIN = """
import sys
import graphc
from graphc import config, optim
from graphc.engine.update import steps
with config.override(steps="1"):
    param = graphc.ones(3, requires_grad=True)
    optimizer = optim.AdamW([param])
    for _ in range(3):
        param.grad = graphc.ones(3)
        optimizer.step()
print(len(steps._plans[id(optimizer)][1]._made), "llvmlite" in sys.modules, param.tolist())
"""


def test_another_process_needs_no_compiler(tmp_path: Path) -> None:
    def run() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", _AGAIN], capture_output=True, text=True, check=True,
            env={"GRAPHC_CACHE_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
            cwd=Path(__file__).parents[2],
        )
        return done.stdout.split(maxsplit=2)

    first, second = run(), run()
    assert first[:2] == ["1", "True"]
    assert second == ["1", "False", first[2]]


def test_rates_of_numpy(native: list[int]) -> None:
    def run() -> list[Any]:
        params = leaves(shapes=((6,), (2, 3)))
        optimizer = optim.ASGD(params, np.float64(0.1))
        for i in range(4):
            give(params, i)
            optimizer.param_groups[0]["lr"] = 0.1 * np.cos(i / 3)
            optimizer.step()
        return seen(params, optimizer)

    both(run)
    assert native == [2, 2, 2]
