"""Eager calls on few numbers that go a short way: counted, and held against the way of all others
(which tensors with a history take) and against NumPy."""

from __future__ import annotations

import operator
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.backends.numpy.ops import TABLE
from graphc.nn import functional as F

from .test_few_numbers import ROOT, too_many

nan, inf = float("nan"), float("inf")
SETUP = "N = torch.arange(4); C = torch.rand(4, 4); M = C > 0.5; D = X.device; P = X.data; " \
    "A2 = torch.rand(4, 2); Z = torch.view_as_complex(A2)"


def test_such_calls_are_few_functions() -> None:
    assert too_many({
        "N * 2": 6, "N + 1": 6, "3 - N": 6, "N % 2": 10, "N // 2": 8, "X ** X": 12,
        "A[N, N]": 12, "A[:, N]": 12, "C.__setitem__(..., B)": 12, "A.masked_scatter(M, B)": 16,
        "C.masked_scatter_(M, B)": 20, "A.index_add(0, N, B)": 58, "A.index_copy(0, N, B)": 40,
        "A.index_fill(0, N, 1.0)": 50, "A.scatter(1, N.view(4, 1), 1.0)": 64, "torch.diag(X)": 32,
        "torch.diag_embed(X)": 32, "torch.rot90(A)": 32, "torch.cartesian_prod(X, X)": 45,
        "torch.polar(X, X)": 60, "torch.complex(X, X)": 40, "A.quantile(0.5)": 330,
        "X.to('cpu')": 4, "X.to(D)": 4, "X.to(torch.float32)": 4, "X.data": 4,
        "C.relu_()": 9, "C.tril_()": 45, "torch.arange(0, 8, 2)": 18,
        "torch.finfo(X.dtype).min": 3, "torch.LongTensor([1, 2])": 18, "torch.view_as_real(Z)": 11,
        "torch.view_as_complex(A2)": 12, "M.sum()": 6, "C.add_(A, alpha=0.5)": 14, "A.median()": 9,
    }, SETUP) == {}


NUMBERS = [0, 1, 2, 3, -1, -128, 127, 128, 255, 300, 2**31, 2**40, True, 0.5, -2.0]
OPERATORS = [
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.truediv,
    operator.pow, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
]


def _outcome(work: Callable[[], Any]) -> Any:
    try:
        found = work()
    except (RuntimeError, TypeError, OverflowError) as error:
        return type(error)
    return found.dtype, tuple(found.shape), found.numpy().tobytes()


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8", "bool", "float32"])
@pytest.mark.parametrize("name", [each.__name__ for each in OPERATORS])
def test_operators_of_a_tensor_and_a_number(name: str, dtype: str) -> None:
    """A number beside a tensor is what a tensor of it without dimensions is."""
    function = getattr(operator, name)
    for x in (torch.tensor([0, 1, 2, 3, 7]), torch.tensor(3), torch.zeros(0, 2)):
        x = x.to(getattr(torch, dtype))
        for number in NUMBERS:
            if name == "pow" and (dtype != "float32" or number in (2, 0.5)):
                continue  # what a number alone is looked at for: squares, roots, refusals
            beside = torch.tensor(number)
            fits = not isinstance(number, int) or dtype in ("int64", "float32") or (
                dtype != "bool" and np.can_cast(np.min_scalar_type(number), dtype)
            )
            if not fits or (number < 0 and dtype == "uint8"):
                continue  # whose own way is that of promotion, as before
            for a, b in ((x, number), (number, x)):
                first = _outcome(lambda a=a, b=b: function(a, b))
                again = _outcome(lambda a=a, b=b: function(a, b))
                wide = _outcome(lambda a=a: function(*(
                    beside if each is number else each for each in (a, b)  # noqa: B023
                )))
                if name == "truediv" and a is number:
                    wide = _outcome(lambda: beside * x.reciprocal())  # noqa: B023
                assert first == again
                if x.ndim and not isinstance(number, bool) and not (
                    dtype != "float32" and isinstance(number, float)
                ):
                    assert first == wide, (number, x)


def test_a_power_of_tensors() -> None:
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.5, inf, -inf, nan])
    bases, exponents = special[:, None].expand(8, 8).clone(), special.expand(8, 8).clone()
    found = bases**exponents
    assert found.numpy().tobytes() == torch.pow(bases, exponents).numpy().tobytes()
    x = torch.rand(3, requires_grad=True)
    assert (x**x).grad_fn.name() == "PowBackward1" == (torch.rand(3) ** x).grad_fn.name()
    a, b = torch.rand(3), torch.rand(3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (a**b).dtype == torch.pow(a, b).dtype


AT, J = torch.tensor([3, 0, -1, 0]), torch.tensor([[1], [-4]])
MASK = torch.tensor([[True, False, True, True], [False] * 4, [True] * 4, [False, True] * 2])
READ: dict[str, Callable[[Any], Any]] = {
    "pairs": lambda x: x[AT, AT], "spread pairs": lambda x: x[AT, J], "columns": lambda x: x[:, AT],
    "columns by a matrix": lambda x: x[:, J],
    "index_add": lambda x: x.index_add(0, torch.tensor([3, 0, 3, 0]), torch.ones(4, 4) / 3),
    "index_add of columns": lambda x: x.index_add(1, torch.tensor([3, 0, 3]), torch.ones(4, 3)),
    "index_copy": lambda x: x.index_copy(0, torch.tensor([2, 1]), torch.ones(2, 4)),
    "index_fill": lambda x: x.index_fill(1, torch.tensor([2, -1]), 7.0),
    "scatter": lambda x: x.scatter(1, torch.tensor([[1], [0]]), 5.0),
    "scatter_add": lambda x: x.scatter_add(0, torch.tensor([[1, 1, 1]]), torch.ones(2, 4)),
    "masked_scatter": lambda x: x.masked_scatter(MASK, torch.arange(12.0)),
    "diag": torch.diag, "diag of a vector": lambda x: torch.diag(x[0], 1),
    "diag_embed": lambda x: torch.diag_embed(x, -1), "rot90": torch.rot90,
    "rot90 twice": lambda x: torch.rot90(x, 2), "not turned": lambda x: torch.rot90(x, 4),
    "cartesian_prod": lambda x: torch.cartesian_prod(x[0], x[1]),
    "polar": lambda x: torch.polar(x, x), "complex": lambda x: torch.complex(x, x.exp()),
    "quantile": lambda x: x.quantile(0.3), "quantile of rows": lambda x: x.quantile(0.75, 1, True),
    "nanquantile": lambda x: x.nanquantile(0.5, 0), "mode": lambda x: x.mode(1),
    "mode of columns": lambda x: x.mode(0, True), "tril_": lambda x: x.clone().tril_(-1),
    "triu_": lambda x: x.clone().triu_(1), "relu_": lambda x: x.clone().relu_(),
}


@pytest.mark.parametrize("name", list(READ))
def test_short_ways_give_what_all_others_give(name: str) -> None:
    function = READ[name]
    for numbers in (
        torch.randn(4, 4), torch.randn(4, 4).round(), torch.full((4, 4), nan), torch.zeros(4, 4),
        torch.tensor([[0.0, -0.0, inf, nan]]).repeat(4, 1), torch.randn(4, 4).t(),
        torch.randn(8, 8)[::2, 1::2],
    ):
        wanted = function(numbers.clone().requires_grad_())
        for _ in range(3):
            before = numbers.clone()
            found = function(numbers)
            assert numbers.numpy().tobytes() == before.numpy().tobytes()
            for a, b in zip(
                found if isinstance(found, tuple) else (found,),
                wanted if isinstance(wanted, tuple) else (wanted,), strict=True,
            ):
                assert a.dtype == b.dtype and a.shape == b.shape and a._base is None
                assert a.numpy().tobytes() == b.detach().numpy().tobytes()
                assert not np.may_share_memory(a.numpy(), numbers.numpy())


def test_what_is_wrong_is_refused_as_before() -> None:
    x, source = torch.rand(4, 4), torch.rand(2)
    for wrong in (
        lambda: x[torch.tensor([4]), torch.tensor([0])], lambda: x[:, torch.tensor([4])],
        lambda: x[AT, torch.tensor([0, 1])], lambda: x[AT, AT, AT],
    ):
        with pytest.raises(IndexError):
            wrong()
    before = x.clone()
    for work in (
        lambda: x.masked_scatter(MASK, source), lambda: x.masked_scatter_(MASK, source),
        lambda: x.index_add(0, torch.tensor([-1]), torch.rand(1, 4)),
        lambda: torch.tensor([1]) % 0, lambda: torch.tensor([1]) // 0,
    ):
        with pytest.raises((RuntimeError, IndexError)):
            work()
    assert torch.equal(x, before)
    with pytest.raises(RuntimeError, match="in the range"):
        x.quantile(torch.tensor(2.0))
    points = torch.tensor([0.25])
    for _ in range(3):  # q's values are looked at in each call
        assert torch.equal(x.quantile(points), x.quantile(float(points)).reshape(1))
        points += 0.25


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("ignored", [-100, 0, 2, 7])
def test_losses_of_ignored_targets_have_the_tables_bits(
    ignored: int, dtype: Any, reduction: str
) -> None:
    for target in ([0, 1, 2, 2], [ignored, 1, 1, 0], [ignored] * 4):
        x, y = torch.randn(4, 5, dtype=dtype), torch.tensor(target)
        x[0] = -inf  # whose loss is NaN, or left out
        for name, function in (("nll_loss", F.nll_loss), ("cross_entropy", F.cross_entropy)):
            more = {} if name == "nll_loss" else {"label_smoothing": 0.0}
            right = TABLE[name](
                x.numpy(), y.numpy(), ignore_index=ignored, reduction=reduction, **more
            )
            for _ in range(3):
                found = function(x, y, ignore_index=ignored, reduction=reduction)
                assert found.numpy().tobytes() == np.asarray(right).tobytes()
                assert found.dtype is dtype
    with pytest.raises(IndexError, match="Target 9 is out of bounds"):
        F.nll_loss(torch.randn(2, 5), torch.tensor([-100, 9]))


def test_a_loss_of_ignored_targets_is_few_functions() -> None:
    assert too_many({"F.cross_entropy(A, N, ignore_index=0)": 30}, SETUP) == {}


@pytest.mark.parametrize("masked", ["", "causal", "bool", "float"])
def test_attention_of_few_numbers_is_one_native_call(masked: str) -> None:
    """As a program it has the bits of NumPy's steps, also where a row attends to nothing."""
    code = f"""
import graphc as torch
from graphc.nn import functional as F
from graphc.frontend import replayed
torch.manual_seed(0)
q, k, v = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6)
mask = {{"": None, "causal": None, "bool": torch.rand(3, 5) > 0.5,
        "float": torch.randn(2, 3, 5)}}[{masked!r}]
if {masked!r} == "bool":
    mask[1] = False
run = lambda: F.scaled_dot_product_attention(q, k, v, mask, is_causal={masked == "causal"})
first = run()
for _ in range(3000):
    found = run()
    assert found.numpy().tobytes() == first.numpy().tobytes() and found.shape == (2, 3, 6)
for _ in range(3):
    q, k, v = q * 1e3, k.clone(), v[:, :, torch.arange(6)]
    wanted = F.scaled_dot_product_attention(
        q.clone().requires_grad_(), k, v, mask, is_causal={masked == "causal"})
    assert run().numpy().tobytes() == wanted.detach().numpy().tobytes()
assert any(known is not None and known.native is not None for known in replayed._known.values())
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.parametrize("bounds", [
    (0, 8, 2), (3, -9, -4), (5, 5), (5, 5, -1), (-3, 7), (2, 9, 3), (0, 1), (2**61, 2**61 + 9, 4),
    (2**62, 2**62 + 5, 2), (-(2**63), -(2**63) + 3), (0, 2**63 - 1, 2**61), (1, 2, 2**62),
])
def test_ranges_of_integers(bounds: tuple[int, ...]) -> None:
    wanted = list(range(*bounds))
    for found in (torch.arange(*bounds), torch.arange(*bounds[:2], step=(*bounds, 1)[2])):
        assert found.tolist() == wanted and found.dtype == torch.int64
        assert found.stride() == (1,) and not found.requires_grad
    if max(map(abs, wanted), default=0) < 100:
        for dtype in (torch.float32, torch.int32, torch.bfloat16):
            assert torch.arange(*bounds, dtype=dtype).tolist() == wanted
    with pytest.raises(RuntimeError, match="step must be nonzero"):
        torch.arange(0, 3, 0)
    with pytest.raises(RuntimeError, match="bound"):
        torch.arange(3, 0, 1)
    with pytest.raises(TypeError):
        torch.arange(1, None, 2)


def test_limits_are_told_again() -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64):
        first = torch.finfo(dtype)
        first_text, first.eps = repr(first), 1.0  # one's own
        again = torch.finfo(dtype)
        assert repr(again) == first_text and again.eps != 1.0
    with pytest.raises(TypeError):
        torch.finfo(torch.int32)


@pytest.mark.parametrize("shape", [(4,), (2, 3), (0,), (3, 0), (1, 3), (3, 1), (), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_complex_numbers_and_their_parts_share_memory(shape: Any, dtype: Any) -> None:
    parts = torch.randn(*shape, 2, dtype=dtype)
    z = torch.view_as_complex(parts)
    back = torch.view_as_real(z)
    assert z.shape == shape and z.stride() == tuple(n // 2 for n in parts.stride()[:-1])
    assert back.stride() == parts.stride() and back.numpy().tobytes() == parts.numpy().tobytes()
    back.zero_()
    assert not parts.any() and z._base is not None
    turned = torch.randn(3, 4, dtype=dtype).to(torch.complex64 if dtype is torch.float32 else
                                               torch.complex128).t()
    assert torch.view_as_real(turned).stride() == (2, 8, 1)
    for wrong in (parts.new_zeros(3, 3), parts.new_zeros(2, 3).t()):
        with pytest.raises(RuntimeError):
            torch.view_as_complex(wrong)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [2, 0.1, -0.0, nan, 1])
def test_a_multiple_is_added_in_place(alpha: Any, dtype: Any) -> None:
    for name in ("add", "sub"):
        for _ in range(3):
            x, y = torch.randn(4, 4, dtype=dtype), torch.randn(4, 4, dtype=dtype)
            y[0] = torch.tensor([inf, -inf, nan, -0.0])
            for of in (
                lambda x, y: y, lambda x, y: y.t(), lambda x, y: y[0], lambda x, y: x,
                lambda x, y: x.t(), lambda x, y: x[1],
            ):
                mine = x.clone()
                other = of(mine, y)
                if other._base is mine:  # in another order, or a part
                    with pytest.raises(RuntimeError, match="refer to a single memory location"):
                        getattr(mine, name + "_")(other, alpha=alpha)
                    continue
                wanted = getattr(torch, name)(mine, other.clone(), alpha=alpha)
                version = mine._version
                assert getattr(mine, name + "_")(other, alpha=alpha) is mine
                assert mine.numpy().tobytes() == wanted.numpy().tobytes()
                assert mine._version == version + 1
    w = torch.randn(3, requires_grad=True)
    z = torch.zeros(3)
    z.add_(w, alpha=alpha)
    assert z.grad_fn is not None
    with pytest.raises(RuntimeError, match="leaf"):
        w.add_(torch.ones(3), alpha=2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.int8, torch.uint8])
def test_the_median_of_few_numbers(dtype: Any) -> None:
    for count in (1, 2, 7, 40, 1023):
        x = torch.randint(0, 9, (count,)).to(dtype)
        wanted = sorted(x.tolist())[(count - 1) // 2]
        for found in (x.median(), torch.nanmedian(x), x.reshape(1, -1, 1).median()):
            assert found == wanted and found.dtype is dtype and found.shape == ()
            assert found._base is None and not np.may_share_memory(found.numpy(), x.numpy())
    for special in ([0.0, -0.0, -0.0], [-0.0, 0.0], [nan, 1.0, 2.0], [inf, -inf, nan], [nan]):
        for x in (torch.tensor(special), torch.tensor([[n, n] for n in special]).t()):
            for name in ("median", "nanmedian"):
                values = getattr(torch, name)(x.reshape(-1), 0).values
                assert getattr(x, name)().numpy().tobytes() == values.numpy().tobytes()
    w = torch.rand(3, requires_grad=True)
    w.median().backward()
    assert w.grad.sum() == 1
    with pytest.raises(NotImplementedError):
        torch.tensor([True]).median()


def test_a_sum_of_a_mask_is_a_count() -> None:
    for mask in (
        torch.rand(5, 6) > 0.5, torch.rand(5, 6).t() > 0.5, (torch.rand(5, 6) > 0.5)[::2, 1::3],
        torch.tensor(True), torch.zeros(0, 3, dtype=torch.bool), torch.rand(300, 300) > 0.3,
        torch.tensor([True, False])[:, None].expand(2, 3),
    ):
        wanted = mask.to(torch.int64).sum()
        compiled = torch.compile(torch.sum)
        for found in (mask.sum(), torch.sum(mask), mask.sum(dim=None), compiled(mask)):
            assert found.dtype == torch.int64 and found.shape == () and found == wanted
            assert found._base is None and found.add_(1) == wanted + 1
        assert torch.equal(mask.sum(0), mask.long().sum(0)) if mask.ndim else True
        assert mask.sum(dtype=torch.float32) == wanted.float()


def test_tensors_of_lists_are_their_own() -> None:
    data = np.arange(3)
    for made in (torch.LongTensor([0, 1, 2]), torch.tensor(data, dtype=torch.int64)):
        made[0] = 9
        assert made.dtype == torch.int64 and made.tolist() == [9, 1, 2]
    assert data.tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match="without overflow"):
        torch.tensor([300], dtype=torch.uint8)


def test_masked_scatter_of_its_own_memory() -> None:
    x = torch.arange(16.0).view(4, 4)
    wanted = x.clone().masked_scatter(MASK, x.clone())
    version = x._version
    x.masked_scatter_(MASK, x)
    assert torch.equal(x, wanted) and x._version == version + 1


def test_data_counts_its_own_writes() -> None:
    x = torch.rand(3, requires_grad=True)
    y = x * x
    first, second = x.data, x.data
    first.add_(1)
    second.data.add_(1)
    assert x._version == 0 and first._version == 1 and second._version == 0
    assert first.data_ptr() == x.data_ptr() and not first.requires_grad
    y.sum().backward()


def test_all_of_a_tensor_is_written_to() -> None:
    x = torch.zeros(2, 3)
    x[...] = torch.tensor([1.0, 2.0, 3.0])
    assert x.tolist() == [[1, 2, 3]] * 2 and x._version == 1
    x[...] = 5
    assert x.tolist() == [[5] * 3] * 2
    with pytest.raises(RuntimeError):
        x[...] = torch.zeros(4)
    y = x * torch.ones(1, requires_grad=True)
    y[...] = torch.ones(3, requires_grad=True)
    assert y.grad_fn is not None
    leaf = torch.zeros(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        leaf[...] = 1.0
    turned = torch.zeros(3, 2).t()
    turned[...] = x
    assert torch.equal(turned, x)


def test_to_the_cpu_is_the_tensor_itself() -> None:
    x = torch.rand(3)
    for where in ("cpu", torch.device("cpu"), x.device, torch.float32):
        assert x.to(where) is x
    assert x.to(torch.float64).dtype == torch.float64 and x.to(torch.float64) is not x
    with pytest.raises(RuntimeError, match="device type"):
        x.to("gpu")
    sparse = torch.eye(3).to_sparse()
    assert torch.equal(sparse.to("cpu").to(torch.float64).to_dense(), torch.eye(3).double())
