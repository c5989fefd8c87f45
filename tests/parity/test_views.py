"""What shares memory with what: writes through every alias are seen where PyTorch's are."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")

# (make an alias or a copy of a [4, 3, 2] tensor)
ALIASES: dict[str, Callable[[Any, Any], Any]] = {
    "view": lambda t, x: x.view(12, 2),
    "reshape view": lambda t, x: x.reshape(24),
    "reshape copy": lambda t, x: x.transpose(0, 1).reshape(24),
    "flatten": lambda t, x: x.flatten(),
    "flatten copy": lambda t, x: x.mT.flatten(),
    "ravel": lambda t, x: x.ravel(),
    "unflatten": lambda t, x: x.unflatten(0, (2, 2)),
    "int": lambda t, x: x[1],
    "slice": lambda t, x: x[1:3, ::2],
    "ellipsis": lambda t, x: x[..., 0],
    "none": lambda t, x: x[None],
    "everything": lambda t, x: x[...],
    "tensor index": lambda t, x: x[t.tensor([0, 1])],
    "0-d tensor index": lambda t, x: x[t.tensor(1)],
    "list index": lambda t, x: x[[0, 1]],
    "mask": lambda t, x: x[x > 0],
    "bool": lambda t, x: x[True],
    "transpose": lambda t, x: x.transpose(0, 2),
    "permute": lambda t, x: x.permute(2, 0, 1),
    "mT": lambda t, x: x.mT,
    "squeeze": lambda t, x: x.squeeze(),
    "unsqueeze": lambda t, x: x.unsqueeze(1),
    "select": lambda t, x: x.select(1, 0),
    "narrow": lambda t, x: x.narrow(0, 1, 2),
    "unbind": lambda t, x: x.unbind()[2],
    "split": lambda t, x: x.split(2)[1],
    "chunk": lambda t, x: x.chunk(2)[0],
    "tensor_split": lambda t, x: x.tensor_split(3)[0],
    "diagonal": lambda t, x: x.diagonal(),
    "diagonal of view": lambda t, x: x[1:].permute(1, 0, 2).diagonal(1),
    "unfold": lambda t, x: x.unfold(0, 2, 2),
    "as_strided": lambda t, x: x.as_strided((3,), (2,), 1),
    "as_strided of view": lambda t, x: x[1].as_strided((2,), (1,)),
    "movedim": lambda t, x: x.movedim(0, 2),
    "detach": lambda t, x: x.detach(),
    "data": lambda t, x: x.data,
    "contiguous": lambda t, x: x.contiguous(),
    "contiguous copy": lambda t, x: x.mT.contiguous(),
    "clone": lambda t, x: x.clone(),
    "to same": lambda t, x: x.to(t.float32),
    "to other": lambda t, x: x.to(t.float64),
    "float": lambda t, x: x.float(),
    "cpu": lambda t, x: x.cpu(),
    "view dtype": lambda t, x: x.view(t.float32),
    "type_as": lambda t, x: x.type_as(x),
    "as_tensor": lambda t, x: t.as_tensor(x),
    "tensor": lambda t, x: t.tensor(x.tolist()),
    "numpy": lambda t, x: t.from_numpy(x.numpy()),
    "numpy view": lambda t, x: t.from_numpy(x.numpy()[1:]),
    "as_tensor numpy": lambda t, x: t.as_tensor(x.numpy()),
    "deepcopy": lambda t, x: copy.deepcopy(x),
    "broadcast_tensors": lambda t, x: t.broadcast_tensors(x, t.ones(1))[0],
    "roll": lambda t, x: x.roll(0, 0),
    "flip": lambda t, x: x.flip(0),
    "repeat": lambda t, x: x.repeat(1, 1, 1),
    "tril": lambda t, x: x.tril(),
    "relu": lambda t, x: x.relu(),
    "cat of one": lambda t, x: t.cat([x]),
    "atleast_2d": lambda t, x: t.atleast_2d(x),
    "chain": lambda t, x: x[1:].transpose(0, 1)[..., 1].unsqueeze(0),
    "positive": lambda t, x: +x,
}


@pytest.mark.parametrize("name", list(ALIASES))
def test_shares_memory(name: str) -> None:
    results = []
    for t in (torch, graphc):
        x = t.arange(24, dtype=t.float32).view(4, 3, 2) - 5
        alias = ALIASES[name](t, x)
        alias.mul_(2)
        changed = x.clone()
        x.add_(100)
        results.append([changed, x, alias])
    for want, have in zip(*results, strict=True):
        np.testing.assert_array_equal(have.numpy(), want.numpy())
    assert results[1][2].shape == tuple(results[0][2].shape)


@pytest.mark.parametrize("name", list(ALIASES))
def test_version(name: str) -> None:
    """The version counter is shared exactly where torch shares it."""
    versions = []
    for t in (torch, graphc):
        x = t.arange(24, dtype=t.float32).view(4, 3, 2).clone()
        alias = ALIASES[name](t, x)
        before = x._version
        alias.add_(1)
        versions.append(x._version - before)
    assert versions[1] == versions[0]


def test_numpy_shares_memory() -> None:
    array = np.zeros((2, 3), np.float32)
    x = graphc.from_numpy(array)
    x[0, 1] = 5
    assert array[0, 1] == 5
    array[1] = 7
    assert x[1].tolist() == [7, 7, 7]
    y = x.t()
    y.numpy()[0, 0] = 9
    assert array[0, 0] == 9
    assert np.shares_memory(np.asarray(x), array)


def test_read_only_numpy() -> None:
    array = np.zeros(3, np.float32)
    array.flags.writeable = False
    x = graphc.from_numpy(array)
    with pytest.raises(RuntimeError, match="read-only"):
        x.add_(1)
    assert (x + 1).tolist() == [1, 1, 1]


def test_constants_cannot_be_written_to() -> None:
    """0-d operands are cached; none may leak into a result that the user can change."""
    x = graphc.zeros(3)
    y = graphc.where(graphc.tensor(True), 2.0, 3.0)
    y.add_(1)
    assert graphc.where(graphc.tensor(True), 2.0, 3.0).item() == 2.0
    z = graphc.full((), 2.0)
    z.mul_(3)
    assert (x + 2.0).tolist() == [2, 2, 2]
    w = graphc.tensor(2.0)
    w.add_(1)
    assert (x + 2.0).tolist() == [2, 2, 2]
    x.fill_(2.0)
    x.add_(1)
    assert graphc.full((), 2.0).item() == 2.0


WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "view": lambda t, y: y.view(6).mul_(2),
    "slice": lambda t, y: y[1:].mul_(y[:1].detach().clone()),
    "setitem": lambda t, y: y.__setitem__((0, 1), y[1, 1] * 3),
    "transposed": lambda t, y: y.t().add_(t.arange(2.0)),
    "diagonal": lambda t, y: y.diagonal().mul_(5),
    "masked": lambda t, y: y.__setitem__(y > 0, 0.5),
    "index": lambda t, y: y.__setitem__(t.tensor([1, 0]), y * 2),
    "select chain": lambda t, y: y[1][2:].mul_(y[0, 0].clone()),
    "expand source": lambda t, y: y[0].copy_(y[1, 0].expand(3)),
    "zero part": lambda t, y: y[:, 0].zero_(),
    "index_add_": lambda t, y: y.index_add_(1, t.tensor([0, 2]), y[:, :2] * 2),
    "masked_fill_": lambda t, y: y.masked_fill_(t.tensor([True, False, True]), 3),
    "clamp_": lambda t, y: y.clamp_(max=0.5),
    "squeeze view": lambda t, y: y.unsqueeze(0).squeeze(0)[0].neg_(),
}


@pytest.mark.parametrize("name", list(WRITES))
def test_gradient_of_write(name: str) -> None:
    array = np.random.default_rng(3).standard_normal((2, 3)).astype(np.float32)
    found = []
    for t in (torch, graphc):
        x = t.tensor(array, requires_grad=True)
        y = x * 2
        early = y[0]
        WRITES[name](t, y)
        ((y * t.arange(6.0).view(2, 3)).sum() + early.sum()).backward()
        found.append((y.detach().numpy(), x.grad.numpy()))
    for want, have in zip(*found, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)


def test_fill_of_expanded() -> None:
    for t in (torch, graphc):
        x = t.zeros(3)
        x.expand(2, 3).fill_(5)
        assert x.tolist() == [5, 5, 5]
        x.expand(2, 3).zero_()
        assert x.tolist() == [0, 0, 0]


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "detached slice": lambda x: x[1:, ::2].detach(),
    "transposed": lambda x: x.t().detach(),
    "copy of transposed": lambda x: x.t().clone(),
    "leaf slice": lambda x: x[:3, 1:4].data,
}


@pytest.mark.parametrize("name", list(LAYOUTS))
def test_strided_views_of_any_layout(name: str) -> None:
    """diagonal, unfold and as_strided are views of tensors that are not row-major, too."""
    found = []
    for t in (torch, graphc):
        x = t.arange(20.0).view(4, 5)
        y = LAYOUTS[name](x)
        y.diagonal().mul_(-1)
        y.diagonal(1).add_(100)
        y.unfold(0, 2, 2).add_(0.5)
        y.as_strided((2, 2), (1, 2)).sub_(1000)
        found.append((x, y, y.unfold(1, 2, 1), y.as_strided((3,), (2,), 1)))
    for want, have in zip(*found, strict=True):
        np.testing.assert_array_equal(have.numpy(), want.numpy())
