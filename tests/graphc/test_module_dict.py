"""Writes to a Module's __dict__ itself, past its __setattr__: compiled functions see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import graphc
from tests.graphc.scenario import compare, identity, run
from tests.reference import torch

CHANGES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]] = {
    "an attribute of the class is shadowed": (
        lambda m, torch: m.__dict__.__setitem__("factor", 5.0),
        lambda m: m.__dict__.__delitem__("factor"),
    ),
    "a method is shadowed": (
        lambda m, torch: m.__dict__.update(extra=lambda: 9.0), lambda m: m.__dict__.pop("extra"),
    ),
    "forward is shadowed": (
        lambda m, torch: m.layer.__dict__.update(forward=lambda x: x * 2),
        lambda m: m.layer.__dict__.pop("forward"),
    ),
    "an absent attribute appears": (
        lambda m, torch: vars(m).update(bonus=4.0), lambda m: vars(m).pop("bonus"),
    ),
    "an attribute disappears": (
        lambda m, torch: m.__dict__.pop("scale"), lambda m: m.__dict__.update(scale=2.0),
    ),
    "a submodule is shadowed": (
        lambda m, torch: m.__dict__.update(layer=lambda x: x * 3),
        lambda m: m.__dict__.pop("layer"),
    ),
    "a parameter is shadowed": (
        lambda m, torch: m.layer.__dict__.update(weight=torch.ones(2, 2)),
        lambda m: m.layer.__dict__.pop("weight"),
    ),
    "the parameters are others": (
        lambda m, torch: m.layer.__dict__.update(
            _parameters={"weight": torch.zeros(2, 2), "bias": None}
        ),
        lambda m: m.layer.__dict__["_parameters"].update(bias=m.spare),
    ),
    "the hooks are others": (
        lambda m, torch: m.layer.__dict__.update(_forward_hooks={0: lambda m, a, out: out * 2}),
        lambda m: m.layer.__dict__["_forward_hooks"].clear(),
    ),
    "object.__setattr__": (
        lambda m, torch: object.__setattr__(m, "factor", 6.0),
        lambda m: object.__delattr__(m, "factor"),
    ),
    "another __dict__": (
        lambda m, torch: setattr(m, "__dict__", dict(m.__dict__, factor=6.0)),
        lambda m: m.__dict__.update(factor=7.0),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_as_in_torch(name: str) -> None:
    change, back = CHANGES[name]

    def script(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
        class Net(nn.Module):
            factor = 2.0

            def __init__(self):
                super().__init__()
                torch.manual_seed(0)
                self.layer = nn.Linear(2, 2)
                self.spare = torch.ones(2)
                self.scale = 3.0

            def extra(self):
                return 1.0

            def forward(self, x):
                y = self.layer(x) * self.factor + self.extra() + getattr(self, "scale", 7.0)
                return y + self.bonus if hasattr(self, "bonus") else y

        net = Net()
        c = compile(net)
        out = []
        for i in range(6):
            if i == 2:
                change(net, torch)
            if i == 4:
                back(net)
            out.append(c(torch.ones(1, 2)))
        return out

    expected = run(script, torch, identity)
    compare(expected, run(script, graphc, identity), 1e-5)
    compare(expected, run(script, graphc, graphc.compile), 1e-5)
