"""An optimizer's step under a recording: what is watched, and what it hangs on."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.engine.capture import updates_again
from graphc.engine.capture.recorded_sites import Site
from graphc.optim import per_parameter

_MAKERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, dampening=0.1),
    "Adam": lambda params: torch.optim.Adam(params, lr=0.1, weight_decay=0.1),
    "Adagrad": lambda params: torch.optim.Adagrad(params, lr=0.1),
    "ASGD": lambda params: torch.optim.ASGD(params, lr=0.1),
    "Rprop": lambda params: torch.optim.Rprop(params, lr=0.1),
}


def parameters(count: int) -> list[Any]:
    rng = np.random.default_rng(0)
    made = [torch.nn.Parameter(torch.from_numpy(rng.standard_normal(3))) for _ in range(count)]
    for param in made:
        param.grad = torch.from_numpy(rng.standard_normal(3))
    return made


def stepping(optimizer: Any) -> Any:
    def step() -> None:
        optimizer.step()

    return torch.compile(step, fullgraph=True)


def same(a: list[Any], b: list[Any]) -> bool:
    return [p.tolist() for p in a] == [p.tolist() for p in b]


@pytest.mark.parametrize("name", _MAKERS)
def test_more_parameters_are_no_more_lines_to_watch(name: str) -> None:
    def counted(count: int) -> int:
        """Lines' events that the recording looked at."""
        seen = 0

        def look(frame: Any, event: str, argument: Any) -> None:
            nonlocal seen
            seen += event == "call" and frame.f_code is watched

        optimizer = _MAKERS[name](parameters(count))
        watched = Site.__getitem__.__code__
        sys.setprofile(look)
        try:
            stepping(optimizer)()
        finally:
            sys.setprofile(None)
        return seen

    assert counted(2) == counted(5) > 0


@pytest.mark.parametrize("name", _MAKERS)
def test_steps_are_those_of_eager_mode(name: str) -> None:
    ours, theirs = parameters(3), parameters(3)
    compiled, eager = _MAKERS[name](ours), _MAKERS[name](theirs)
    step = stepping(compiled)
    for _ in range(4):
        step()
        eager.step()
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=1e-12)
    assert step.compile_count == 1


def _seeded(arrays: list[Any]) -> list[Any]:
    """Parameters with gradients of their own."""
    rng = np.random.default_rng(1)
    made = [torch.nn.Parameter(array) for array in arrays]
    for param in made:
        param.grad = torch.from_numpy(rng.standard_normal(param.shape)).to(param.dtype)
    return made


def _of_shapes() -> list[Any]:
    rng = np.random.default_rng(0)
    shapes = ((3,), (3, 4), (3, 4), (), (5,), (1,), (2, 3, 4), (), (3, 4))
    return _seeded([torch.tensor(rng.standard_normal(shape)) for shape in shapes])


def _of_types() -> list[Any]:
    rng = np.random.default_rng(0)
    kinds = (torch.float32, torch.float64, torch.float32, torch.float64)
    return _seeded([torch.tensor(rng.standard_normal((2, 3)), dtype=kind) for kind in kinds])


def _of_layouts() -> list[Any]:
    image = torch.arange(1.0, 37.0).reshape(2, 3, 3, 2)
    last = [image.clone().contiguous(memory_format=torch.channels_last) for _ in range(2)]
    gaps = [torch.arange(1.0, 13.0).reshape(3, 4)[:, :2] for _ in range(2)]
    return _seeded([image, *last, *gaps, *[each.t() for each in gaps]])


def _of_one_memory() -> list[Any]:
    base = torch.arange(1.0, 13.0)
    return _seeded([base[:3], base[2:5], base[8:11], torch.ones(3), torch.zeros(3)])


def _with_one_gradient() -> list[Any]:
    made = _of_shapes()
    made[2].grad = made[1].grad
    made[8].grad = made[8].detach()
    made[4].grad = None
    return made


_FULL: dict[str, Callable[[Any], Any]] = {
    **_MAKERS,
    "SGD with momentum": lambda params: torch.optim.SGD(
        params, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1
    ),
    "AMSGrad": lambda params: torch.optim.AdamW(params, lr=0.1, amsgrad=True, maximize=True),
    "a rate that is a tensor": lambda params: torch.optim.Adam(params, lr=torch.tensor(0.1)),
    "Adadelta": torch.optim.Adadelta,
    "Adafactor": torch.optim.Adafactor,
    "Adamax": torch.optim.Adamax,
    "NAdam": torch.optim.NAdam,
    "RAdam": torch.optim.RAdam,
    "RMSprop": lambda params: torch.optim.RMSprop(params, momentum=0.9, centered=True),
    "Muon": lambda params: torch.optim.Muon([p for p in params if p.ndim == 2]),
}


@pytest.mark.parametrize("made", [
    _of_shapes, _of_types, _of_layouts, _of_one_memory, _with_one_gradient
])
@pytest.mark.parametrize("name", _FULL)
def test_updates_done_again_are_those_of_their_python(
    name: str, made: Callable[[], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same graph, node by node, as of updates each of which runs, and the same numbers."""
    if name == "Muon" and made is _of_one_memory:
        return  # it takes matrices alone
    found = []
    for kinds in (updates_again._TENSORS, ()):  # of none is an update done again
        monkeypatch.setattr(updates_again, "_TENSORS", kinds)
        params = made()
        step = stepping(_FULL[name](params))
        step()
        step()
        found.append((
            torch.explain(step).graph_text,
            [p.detach().numpy().tobytes() for p in params], step.compile_count,
        ))
    assert found[0] == found[1]


@pytest.mark.usefixtures("only_the_cpu")
def test_updates_of_other_shapes_are_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the first, and the first of a number; Adafactor's are no loops over elements."""

    def counted(optimizer: Any) -> int:
        seen = 0

        def look(frame: Any, event: str, argument: Any) -> None:
            nonlocal seen
            seen += event == "call" and frame.f_code is watched

        watched = updates_again.Again._record.__code__
        sys.setprofile(look)
        try:
            stepping(optimizer)()
        finally:
            sys.setprofile(None)
        return seen

    params = _of_shapes()
    assert counted(torch.optim.Adam(params)) == len(params) - 2
    assert counted(torch.optim.Adafactor(params)) == 3


def _options(optimizer: Any) -> None:
    optimizer.param_groups[0]["weight_decay"] = 0.5


def _maximize(optimizer: Any) -> None:
    optimizer.param_groups[0]["maximize"] = True


def _rate(optimizer: Any) -> None:
    optimizer.param_groups[0]["lr"] = 0.25


def _rate_tensor(optimizer: Any) -> None:
    optimizer.param_groups[0]["lr"] = torch.tensor(0.25, dtype=torch.float64)


def _no_state(optimizer: Any) -> None:
    optimizer.state.clear()


def _other_state(optimizer: Any) -> None:
    optimizer.load_state_dict(optimizer.state_dict())


def _own_buffer(optimizer: Any) -> None:
    for state in optimizer.state.values():
        for key, value in list(state.items()):
            state[key] = value.clone() + 1


def _one_without_gradient(optimizer: Any) -> None:
    optimizer.param_groups[0]["params"][1].grad = None


def _one_less(optimizer: Any) -> None:
    del optimizer.param_groups[0]["params"][0]


def _new_group(optimizer: Any) -> None:
    (more,) = parameters(1)
    optimizer.add_param_group({"params": [more], "lr": 0.5})


_CHANGES = (
    _options, _maximize, _rate, _rate_tensor, _no_state, _other_state, _own_buffer,
    _one_without_gradient, _one_less, _new_group,
)


@pytest.mark.parametrize("change", _CHANGES)
@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_what_is_changed_between_steps_is_seen(
    name: str, change: Callable[[Any], None]
) -> None:
    ours, theirs = parameters(3), parameters(3)
    compiled, eager = _MAKERS[name](ours), _MAKERS[name](theirs)
    step = torch.compile(lambda: compiled.step())
    for i in range(4):
        if i == 2:
            change(compiled)
            change(eager)
        step()
        eager.step()
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=1e-12)


def test_a_users_own_update_is_watched() -> None:
    class Mine(torch.optim.SGD):
        factor = 2.0

        def _graphc_update(self, group: Any, param: Any, grad: Any) -> None:
            super()._graphc_update(group, param, grad * self.factor)

    class Stated(torch.optim.Adam):
        start = 0.0

        def _graphc_new_state(self, param: Any, store: str = "state", **makers: Any) -> Any:
            state = super()._graphc_new_state(param, store, **makers)
            state["exp_avg"].add_(self.start)
            return state

    for kind, name in ((Mine, "factor"), (Stated, "start")):
        ours, theirs = parameters(2), parameters(2)
        compiled, eager = kind(ours, lr=0.1), kind(theirs, lr=0.1)
        step = torch.compile(lambda compiled=compiled: compiled.step())
        for value in (2.0, 2.0, 3.0):
            setattr(kind, name, value)
            step()
            eager.step()
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=1e-12)


def test_a_step_that_raises_leaves_nothing() -> None:
    ours = parameters(2)
    optimizer = torch.optim.Adam(ours, lr=0.1)
    before = [p.tolist() for p in ours]

    def step() -> None:
        optimizer.step()
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        torch.compile(step, fullgraph=True)()
    theirs = parameters(2)
    torch.optim.Adam(theirs, lr=0.1).step()
    assert same(ours, theirs) or [p.tolist() for p in ours] == before


def test_updates_read_what_a_recording_is_told_of() -> None:
    """The contract of PerParameter._graphc_update, which lets nobody watch its lines."""
    folder = Path(inspect.getfile(per_parameter)).parent
    allowed = {
        "_graphc_new_state", "_graphc_has_state", "_graphc_forget_state", "_graphc_undamped",
        "_graphc_state",
    }
    seen = 0
    for file in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name in {
                "_graphc_update", "_graphc_undamped", "_graphc_state"
            }:
                asked = {
                    each.attr for each in ast.walk(node)
                    if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name)
                    and each.value.id == "self"
                }
                assert asked <= allowed, (file.name, asked - allowed)
                seen += bool(asked)
    assert seen >= 10
