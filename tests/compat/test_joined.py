"""`run --compile`: a distribution's arithmetic is one compiled call, and means what it did."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.compat.modes import _joined
from graphc.distributions import Categorical, Normal
from graphc.frontend.joined import Joined

ROOT = Path(__file__).parents[2]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of functions that were compiled."""
    names: list[str] = []

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        run = torch.compile(function)

        def compiler(_: Any) -> Any:
            def call(*args: Any) -> Any:
                names.append(function.__name__)
                return run(*args)

            return call

        return _joined(function, compiler, ticks=False)

    monkeypatch.setattr(Joined, "wrap", staticmethod(wrap))
    monkeypatch.setattr(Joined, "made", {})
    yield names


def result(function: Callable[[Any], Any], values: Any) -> Any:
    """(result, gradient)"""
    x = torch.tensor(values, requires_grad=True)
    y = function(x)
    y.sum().backward()
    return y.detach().numpy(), x.grad.numpy()


def chosen(x: Any, **given: Any) -> Any:
    m = Categorical(**{k: f(x) for k, f in given.items()})
    return m.log_prob(torch.zeros(m.batch_shape, dtype=torch.int64))


CASES: dict[str, Callable[[Any], Any]] = {
    "probs": lambda x: chosen(x, probs=lambda x: x.softmax(-1)),
    "unnormalised": lambda x: chosen(x, probs=lambda x: x.abs() + 1),
    "logits": lambda x: chosen(x, logits=lambda x: x),
    "entropy": lambda x: Categorical(x.softmax(-1)).entropy(),
    "entropy of logits": lambda x: Categorical(logits=x).entropy(),
    "probs alone": lambda x: Categorical(x.exp()).probs.square(),
    "logits alone": lambda x: Categorical(x.exp()).logits.square(),
    "several": lambda x: Categorical(logits=x).log_prob(
        torch.zeros(3, *x.shape[:-1], dtype=torch.int64)
    ),
    "expanded": lambda x: Categorical(x.exp()).expand((2, *x.shape[:-1])).logits,
    "normal": lambda x: Normal(x, x.exp()).log_prob(torch.ones(x.shape)),
    "normal and numbers": lambda x: Normal(x, 2.0).log_prob(torch.tensor(0.5)),
    "of a value": lambda x: Normal(0.0, 2.0).log_prob(x),
}


SIZES = ((3,), (2, 3), (1, 1), (2, 0, 3))


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(
    name: str, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for shape in SIZES[1:2] if name != "probs" else SIZES:
        values = np.linspace(-2, 3, int(np.prod(shape)), dtype=np.float32).reshape(shape)
        del compiled[:]
        y, g = result(CASES[name], values)
        assert compiled
        with monkeypatch.context() as without:
            without.setattr(Joined, "wrap", None)
            want, gradient = result(CASES[name], values)
        np.testing.assert_allclose(y, want, rtol=2e-6, atol=2e-6)
        np.testing.assert_allclose(g, gradient, rtol=2e-5, atol=2e-6)


def test_a_parameter_that_is_written_to_before_the_other_form_is_asked(
    compiled: list[str],
) -> None:
    x = torch.tensor([1.0, 3.0], requires_grad=True)
    m = Categorical(x)
    with torch.no_grad():
        m.probs.copy_(torch.tensor([0.5, 0.5]))
    assert m.logits.tolist() == pytest.approx([np.log(0.5)] * 2)
    m = Categorical(x)
    m.probs = torch.tensor([0.1, 0.9])
    assert m.logits.tolist() == pytest.approx([np.log(0.1), np.log(0.9)])


def test_without_a_history_nothing_is_compiled(compiled: list[str]) -> None:
    x = torch.tensor([1.0, 3.0], requires_grad=True)
    with torch.no_grad():
        assert Categorical(x).logits.tolist() == pytest.approx(np.log([0.25, 0.75]))
    Categorical(x.detach()).log_prob(torch.tensor(1))
    assert not compiled


def test_arguments_are_checked(compiled: list[str]) -> None:
    x = torch.tensor([1.0, 3.0], requires_grad=True)
    m = Categorical(x)
    with pytest.raises(ValueError, match="support"):
        m.log_prob(torch.tensor(2))
    with pytest.raises(ValueError, match="support"):
        m.log_prob(torch.tensor(0.5))
    with pytest.raises(ValueError, match="constraint Simplex"):
        Categorical(torch.tensor([float("nan"), 1.0], requires_grad=True))
    with pytest.raises(ValueError, match=r"constraint IndependentConstraint\(Real"):
        Categorical(logits=torch.tensor([float("nan"), 1.0], requires_grad=True))
    unchecked = Categorical(x, validate_args=False)
    with pytest.raises((IndexError, RuntimeError)):
        unchecked.log_prob(torch.tensor(2))
    assert unchecked.log_prob(torch.tensor(1)).item() == pytest.approx(np.log(0.75))


def test_copies_and_second_derivatives(compiled: list[str]) -> None:
    x = torch.tensor([1.0, 3.0], requires_grad=True)
    m = copy.copy(Categorical(x))
    assert m.logits.tolist() == pytest.approx(np.log([0.25, 0.75]))
    first, = torch.autograd.grad(Categorical(x).log_prob(torch.tensor(0)), x, create_graph=True)
    second, = torch.autograd.grad(first.sum(), x)
    # log p - log (p + q)
    np.testing.assert_allclose(second.numpy(), [-1 + 2 / 16, 2 / 16], rtol=1e-5)


def test_a_watch_ends_with_the_program(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import atexit, sys\n"
        "def last():\n"
        "    print(sys.getprofile())\n"
        "atexit.register(last)\n"  # runs behind what is registered later
        "import torch\n"
        "from torch import nn\n"
        "model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())\n"
        "for i in range(13):\n"  # a watch begins behind 24 calls and passes
        "    model(torch.ones(1, 2)).sum().backward()\n"
        "assert sys.getprofile() is not None\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "graphc", "run", "--compile", str(script)], cwd=ROOT,
        capture_output=True, text=True, timeout=120,
    )
    assert run.stdout == "None\n" and run.stderr == ""
