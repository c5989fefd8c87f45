"""What packages that are built on torch ask of it, piece by piece (test_packages.py runs some)."""

import dataclasses
from collections import OrderedDict
from typing import Any

import pytest

import graphc
from graphc import nn


def test_handles_of_hooks_are_of_one_kind() -> None:
    from graphc.utils.hooks import RemovableHandle

    table: OrderedDict[int, str] = OrderedDict()
    extra: OrderedDict[int, int] = OrderedDict()
    handle = RemovableHandle(table, extra_dict=extra)
    table[handle.id], extra[handle.id] = "hook", 1
    handle.remove()
    handle.remove()
    assert not table and not extra
    module, weight = nn.Linear(1, 1), graphc.ones(2, requires_grad=True)
    for made in (module.register_forward_hook(print), weight.register_hook(print)):
        assert isinstance(made, RemovableHandle)
        made.remove()
    assert module(graphc.ones(1, 1)).shape == (1, 1)  # prints nothing, and works


def test_no_module_is_a_script_module() -> None:
    assert not isinstance(nn.Linear(1, 1), graphc.jit.ScriptModule)
    assert graphc.ScriptModule is graphc.jit.ScriptModule
    assert issubclass(graphc.ScriptModule, nn.Module)


def test_a_dtype_is_no_dataclass() -> None:
    assert not dataclasses.is_dataclass(graphc.float32)


class Plain(graphc.optim.Optimizer):
    """As people write them: no decorator, and a closure that calls backward()."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                p.data.add_(p.grad, alpha=-group["lr"])
        return loss


class StandIn(graphc.optim.Optimizer):
    """Wraps an optimizer without being one: no super().__init__()."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        return self.optimizer.step(closure)


@pytest.mark.parametrize("compiled", [False, True])
def test_an_optimizer_of_ones_own(compiled: bool) -> None:
    weight = nn.Parameter(graphc.tensor([1.0, 2.0]))
    optimizer = StandIn(Plain([weight]))

    def closure() -> Any:
        weight.grad = None
        loss = (weight * weight).sum()
        loss.backward()
        return loss

    def step() -> Any:
        return optimizer.step(closure)

    run = graphc.compile(step) if compiled else step
    losses = [run().item() for _ in range(3)]
    assert losses == pytest.approx([5.0, 3.2, 2.048])


class Twice(nn.Module):
    """Two results from two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        h = self.first(x)
        return h, self.second(h).sum(), (self.second(x) * 0).sum()


def test_what_an_unused_result_hangs_on_has_no_gradient() -> None:
    model = Twice()
    run = graphc.compile(model)
    for _ in range(2):
        run(graphc.ones(1, 2))[0].sum().backward()
        assert model.first.weight.grad is not None and model.second.weight.grad is None
    run(graphc.ones(1, 2))[2].backward()
    assert model.second.weight.grad is not None and not model.second.weight.grad.any()


def test_factors_by_keyword() -> None:
    i, a, b = graphc.randn(2, 3, 5), graphc.randn(2, 3, 4), graphc.randn(2, 4, 5)
    want = i * 0.5 + 2 * (a @ b)
    assert graphc.allclose(i.baddbmm(batch1=a, batch2=b, beta=0.5, alpha=2), want, atol=1e-6)
    assert graphc.allclose(graphc.addmm(i[0], a[0], mat2=b[0]), i[0] + a[0] @ b[0], atol=1e-6)
    for given, named in (((a[0],), {}), ((a[0], b[0]), {"mat1": a[0]}), ((a[0],), {"mat3": b[0]})):
        with pytest.raises(TypeError, match="addmm"):
            graphc.addmm(i[0], *given, **named)


def test_names_of_devices_that_are_not_here() -> None:
    assert str(graphc.device("mps")) == "mps" and graphc.device("xla:1").index == 1
    with pytest.raises(RuntimeError, match="Expected one of cpu, cuda"):
        graphc.device("foo")
    for use in (lambda d: graphc.ones(1, device=d), graphc.ones(1).to, nn.Linear(1, 1).to):
        with pytest.raises(RuntimeError, match="'mps' is not supported"):
            use("mps")
    with pytest.raises(RuntimeError, match="'mps' is not supported"), graphc.device("mps"):
        pass
    parsed = graphc._C._nn._parse_to("cpu", graphc.float64, True)
    assert parsed == (graphc.device("cpu"), graphc.float64, True, None)

