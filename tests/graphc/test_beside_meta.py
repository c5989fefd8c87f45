"""A tensor on another device, as `device="meta"` in a model's construction, slows the CPU's down by
nothing: what eager mode and compiled calls know of them serves on, and of no others."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as torch
from graphc.frontend import eager
from graphc.frontend.functions import indexing
from graphc.frontend.values import Eager

F = torch.nn.functional


pytestmark = pytest.mark.usefixtures("beside_meta")

CALLS = {
    "x + y": lambda x, y: x + y, "x + 1": lambda x, y: x + 1, "2 - x": lambda x, y: 2 - x,
    "exp": lambda x, y: x.exp(), "double": lambda x, y: x.double(), "x[0]": lambda x, y: x[0],
    "x[:, 1:3]": lambda x, y: x[:, 1:3], "view": lambda x, y: x.view(2, 8),
    "t": lambda x, y: x.transpose(0, 1), "softmax": lambda x, y: F.softmax(x, 1),
    "cat": lambda x, y: torch.cat([x, y]), "add_": lambda x, y: x.add_(y),
    "zero_": lambda x, y: x.zero_(), "copy_": lambda x, y: x.copy_(y),
    "x[1] = 2": lambda x, y: x.__setitem__(1, 2.0) or x, "fill_": lambda x, y: x.fill_(3),
    "dropout": lambda x, y: F.dropout(x, 0.0),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_are_short_and_right(name, monkeypatch):
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    wanted = CALLS[name](x.clone(), y).numpy().copy()
    for _ in range(2):
        CALLS[name](x.clone(), y)
    copies = [x.clone() for _ in range(2)]
    slow = []
    for place, what in ((eager, "_apply_eager"), (indexing, "read_index")):
        run = getattr(place, what)
        monkeypatch.setattr(place, what, lambda *a, run=run: slow.append(a) or run(*a))
    for z in copies:
        found = CALLS[name](z, y)
        assert found.device.type == "cpu" and not found._graphc_storage.away
        np.testing.assert_array_equal(found.numpy(), wanted)
    assert not slow or name in ("exp", "2 - x")  # which never were any shorter


def test_numbers_of_the_generator_are_the_same(monkeypatch):
    torch.manual_seed(0)
    found = [torch.randn(5), torch.rand(3), F.dropout(torch.ones(9), 0.5), torch.randint(9, (4,))]
    monkeypatch.setattr(Eager, "elsewhere", None)
    torch.manual_seed(0)
    wanted = [torch.randn(5), torch.rand(3), F.dropout(torch.ones(9), 0.5), torch.randint(9, (4,))]
    for a, b in zip(found, wanted, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", CALLS)
def test_tensors_there_stay_there(name):
    """Of the same types and sizes, after the calls are known."""
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    for _ in range(3):
        CALLS[name](x.clone(), y)
    found = CALLS[name](torch.empty(4, 4, device="meta"), torch.empty(4, 4, device="meta"))
    assert found.device.type == "meta"
    if name in ("x + y", "cat", "add_"):
        with pytest.raises(RuntimeError, match="not on the expected device meta"):
            CALLS[name](x.clone(), torch.empty(4, 4, device="meta"))


def test_gradients():
    w = torch.randn(4, 4, requires_grad=True)
    for _ in range(3):
        w.grad = None
        (w * w).sum().backward()
        np.testing.assert_array_equal(w.grad.numpy(), 2 * w.detach().numpy())
    there = torch.empty(4, 4, device="meta", requires_grad=True)
    (there * there).sum().backward()
    assert there.grad.device.type == "meta"


def test_compiled_calls_are_short(shortcut_calls):
    step = torch.compile(lambda x: torch.zeros(4) + x.exp())
    x = torch.randn(4)
    for _ in range(6):
        np.testing.assert_allclose(step(x).numpy(), np.exp(x.numpy()), rtol=1e-6)
    assert any(isinstance(each, torch.Tensor) for _, each in shortcut_calls)
    with torch.device("meta"):
        assert step(torch.empty(4)).device.type == "meta"
    assert step(x).device.type == "cpu"


def test_compiled_functions_draw_nothing_on_it():
    def function(x):
        drawn = torch.empty(3, device="meta").uniform_(), torch.nn.Linear(2, 3, device="meta")
        return x + drawn[0].shape[0] + drawn[1].weight.shape[1]

    torch.manual_seed(0)
    state = torch.get_rng_state()
    assert torch.compile(function)(torch.zeros(2)).tolist() == [5, 5]
    assert torch.equal(torch.get_rng_state(), state)
