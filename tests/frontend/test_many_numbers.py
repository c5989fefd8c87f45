"""Functions that go another way where there is much to do: the values are the ones of few."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as torch


@pytest.mark.parametrize("shape, dim", [((3, 65), 1), ((2, 131, 3), 1), ((1000,), 0), ((2, 64), 1)])
def test_logcumsumexp_by_pairs(shape, dim):
    rng = np.random.default_rng(0)
    x = (5 * rng.standard_normal(shape)).astype(np.float32)
    x.reshape(-1)[::17] = -np.inf
    wanted = np.logaddexp.accumulate(x.astype(np.float64), dim)
    for run in (torch.logcumsumexp, torch.compile(torch.logcumsumexp)):
        found = run(torch.tensor(x), dim)
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-5)
    x = (3 * rng.standard_normal(shape)).astype(np.float32)
    w = torch.tensor(x).requires_grad_()
    torch.logcumsumexp(w, dim).sum().backward()
    result = np.logaddexp.accumulate(x.astype(np.float64), dim)
    later = np.flip(np.cumsum(np.flip(np.exp(-result), dim), dim), dim)
    np.testing.assert_allclose(w.grad.numpy(), np.exp(x) * later, rtol=1e-3, atol=1e-4)


def test_logcumsumexp_of_special_values():
    x = torch.full((3, 100), float("-inf"))
    assert x.logcumsumexp(1).isneginf().all()
    x[0, 50], x[1, 60] = float("nan"), float("inf")
    found = x.logcumsumexp(1)
    assert found[0, 50:].isnan().all() and found[0, :50].isneginf().all()
    assert (found[1, 60:] == float("inf")).all() and found[1, :60].isneginf().all()
    assert x.bfloat16().logcumsumexp(1).dtype is torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("right", [False, True])
def test_searchsorted_by_bisection_and_by_counting(dtype, right):
    torch.manual_seed(0)
    edges = (torch.randn(50) * 9).to(dtype).sort().values
    values = torch.cat([(torch.randn(40) * 9).to(dtype), edges]).view(9, 10)
    if dtype.is_floating_point:
        values[0, :3] = torch.tensor([float("nan"), float("inf"), float("-inf")])
    found = torch.searchsorted(edges, values, right=right)
    counting = torch.compile(lambda e, v: torch.searchsorted(e, v, right=right))
    assert found.dtype is torch.int64 and torch.equal(found, counting(edges, values))
    assert torch.bucketize(values, edges, right=right, out_int32=True).dtype is torch.int32
    assert torch.searchsorted(edges[:0], values).unique().tolist() == [0]
    assert torch.searchsorted(edges.to("meta"), values.to("meta")).device.type == "meta"


@pytest.mark.parametrize(
    "shapes", [((30, 5), (40, 5)), ((3, 1, 26, 4), (2, 9, 4)), ((30, 0), (9, 0))]
)
def test_cdist_by_a_product(shapes):
    torch.manual_seed(0)
    a, b = (torch.randn(*shape, requires_grad=True) for shape in shapes)
    far = "donot_use_mm_for_euclid_dist"
    found, wanted = torch.cdist(a, b), torch.cdist(a, b, compute_mode=far)
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), atol=1e-4)
    if shapes[0][-1]:
        up = torch.randn(*found.shape)
        gradients = [torch.autograd.grad(y, (a, b), up) for y in (found, wanted)]
        for x, y in zip(*gradients, strict=True):
            np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-3, atol=1e-3)


def test_cdist_of_equal_rows_and_nan():
    x = torch.arange(90.0).view(30, 3).requires_grad_()
    found = torch.cdist(x, x)
    found.sum().backward()
    assert found.diagonal().eq(0).all() and x.grad.isfinite().all()
    with torch.no_grad():
        x[0, 0] = float("nan")
    assert torch.cdist(x, x)[0].isnan().all()


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("name", ["tril", "triu"])
def test_triangles_of_many_numbers(name, recorded):
    """They begin with operators on nothing: positions."""
    x = np.random.default_rng(0).standard_normal((300, 400)).astype(np.float32)
    wanted = getattr(np, name)(x, 2)
    for _ in range(3):
        given = torch.from_numpy(x.copy()).requires_grad_(recorded)
        found = getattr(torch, name)(given, 2)
        np.testing.assert_array_equal(found.detach().numpy(), wanted)
        if recorded:
            found.sum().backward()
            np.testing.assert_array_equal(given.grad.numpy(), getattr(np, name)(np.ones_like(x), 2))
