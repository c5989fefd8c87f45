"""unbind, split and chunk, which eager mode recalls: the same views, histories and errors."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as torch
from graphc.frontend import recalled_parts

reference = pytest.importorskip("torch")

CALLS = {
    "unbind": lambda x: x.unbind(),
    "unbind, last": lambda x: x.unbind(dim=-1),
    "split": lambda x: x.split(2),
    "split, by name": lambda x: x.split(2, dim=1),
    "split, sizes": lambda x: x.split([1, 3], 1),
    "chunk": lambda x: x.chunk(3, -1),
    "of a view": lambda x: x[1:].unbind(1),
}


def outcome(package, call, tracked):
    x = package.arange(12.0).reshape(3, 4).clone()
    if tracked:
        x.requires_grad_()
    parts = call(x * 1 if tracked else x)
    found = [(p.detach().numpy().tolist(), tuple(p.stride()), p._is_view()) for p in parts]
    names = [type(p.grad_fn).__name__ for p in parts]
    if tracked:
        sum((p * (i + 1)).sum() for i, p in enumerate(parts)).backward()
        found.append(x.grad.numpy().tolist())
    return found, names


@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_again(name, tracked):
    wanted = outcome(reference, CALLS[name], tracked)
    for _ in range(3):
        assert outcome(torch, CALLS[name], tracked) == wanted


@pytest.mark.usefixtures("only_the_cpu")
def test_they_are_recalled(monkeypatch):
    monkeypatch.setattr(recalled_parts, "_known", {})
    x = torch.arange(12.0).reshape(3, 4)
    first = x.split(2, dim=1)
    monkeypatch.setattr(torch.frontend.functions.parts, "slice_dim", None)
    again = x.split(2, dim=1)
    assert [p.tolist() for p in again] == [p.tolist() for p in first]
    again[0].fill_(7)
    np.testing.assert_array_equal(x[:, :2].numpy(), 7)
    assert x._version == 1


@pytest.mark.parametrize("package", [torch, reference])
def test_writes_to_one_of_several_are_refused(package):
    for _ in range(3):
        x = package.ones(2, 2, requires_grad=True) * 2
        part = x.unbind(0)[0]
        with pytest.raises(RuntimeError, match="multiple views"):
            part.add_(1)


@pytest.mark.parametrize("package", [torch, reference])
def test_wrong_arguments(package):
    x = package.ones(2, 3)
    for _ in range(2):
        with pytest.raises(IndexError):
            x.unbind(2)
        with pytest.raises(RuntimeError):
            x.split([1, 1], 1)
        with pytest.raises(RuntimeError):
            x.chunk(0)
    assert package.ones(0, 3).unbind(0) == ()
