"""Wrong calls raise what PyTorch raises, and say what it says (then the user's line)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import graphc

torch = pytest.importorskip("torch")


def _hooked(t: Any, returned: Any) -> None:
    x = t.ones(3, requires_grad=True)
    x.register_hook(lambda g: returned)
    x.sum().backward()


def _function(t: Any) -> Any:
    class Wrong(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return 3

    return Wrong


def _called(function: Any, x: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch: of the instance
        instance = function()
    instance(x)


# the message must start as PyTorch's does
SAME: dict[str, Callable[[Any], Any]] = {
    "linspace steps": lambda t: t.linspace(0, 1, -1),
    "logspace steps": lambda t: t.logspace(0, 1, -1),
    "range step": lambda t: t.range(0, 1, 0),
    "range sign": lambda t: t.range(3, 0),
    "range infinite": lambda t: t.range(0, float("inf")),
    "dim range": lambda t: t.zeros(2, 3).sum(2),
    "median of no row": lambda t: t.ones(0, 0).median(-1),
    "median of nothing along a dim": lambda t: t.ones(2, 0).median(-1),
    "median of bools": lambda t: t.tensor([True]).median(),
    "fraction of ints": lambda t: t.ones(2, dtype=t.int32).frac(),
    "where of more than a byte": (
        lambda t: t.where(t.tensor([True]), t.zeros(1, dtype=t.int8), 300)),
    "difference of a number": lambda t: t.tensor(1.0).diff(),
    "parts of a number": lambda t: t.tensor(1.0).tensor_split(2),
    "distances of vectors": lambda t: t.cdist(t.ones(2), t.ones(2)),
    "NaN to ints": lambda t: t.tensor(float("nan"), dtype=t.int32),
    "inf to ints": lambda t: t.tensor([1.0, float("inf")], dtype=t.int64),
    "float to int8": lambda t: t.tensor([[300.0]], dtype=t.int8),
    "float to uint8": lambda t: t.tensor(-1.5, dtype=t.uint8),
    "searched on two sides": lambda t: t.searchsorted(t.arange(3), 1, right=True, side="left"),
    "searched on no side": lambda t: t.searchsorted(t.arange(3), 1, side="up"),
    "quantile below": lambda t: t.ones(5).quantile(-0.1),
    "quantile above": lambda t: t.ones(5).nanquantile(1.01),
    "quantile tensor": lambda t: t.ones(5).quantile(t.tensor([0.5, -0.1])),
    "quantile tensor's dims": lambda t: t.ones(5).quantile(t.tensor([[0.5]])),
    "quantile tensor's dtype": lambda t: t.ones(5).quantile(t.tensor(0.5, dtype=t.float64)),
    "quantile of half": lambda t: t.ones(5).half().quantile(0.5),
    "quantile of nothing": lambda t: t.ones(0).quantile(0.5),
    "out number": lambda t: t.exp(t.ones(2), out=3),
    "out list": lambda t: t.exp(t.ones(2), out=[t.ones(2)]),
    "kernel of nothing": lambda t: t.nn.functional.conv2d(
        t.ones(1, 3, 4, 4), t.ones(3, 3, 2, 0)),
    "threads": lambda t: t.set_num_threads(0),
    "threads' type": lambda t: t.set_num_threads("2"),
    "promote_types": lambda t: t.promote_types(1, t.int32),
    "pad_sequence": lambda t: t.nn.utils.rnn.pad_sequence([1]),
    "two dtypes": lambda t: t.ones(2).to(t.float32, t.int32),
    "triplet dims": lambda t: t.nn.functional.triplet_margin_loss(
        t.ones(2, 3), t.ones(2, 3), t.ones(3)),
    "dim range negative": lambda t: t.zeros(2).softmax(-2),
    "dim of 0-d": lambda t: t.tensor(1.0).sum(1),
    "repeated dim": lambda t: t.zeros(2, 3).sum((0, 0)),
    "mm": lambda t: t.zeros(2, 3) @ t.zeros(4, 5),
    "mm rank": lambda t: t.mm(t.zeros(2), t.zeros(2, 2)),
    "batch by matrix": lambda t: t.zeros(2, 2, 3) @ t.zeros(4, 5),
    "bmm": lambda t: t.bmm(t.zeros(2, 2, 3), t.zeros(2, 4, 5)),
    "bmm rank": lambda t: t.bmm(t.zeros(2, 3), t.zeros(2, 4, 5)),
    "mv": lambda t: t.mv(t.zeros(2, 3), t.zeros(4)),
    "dot": lambda t: t.dot(t.zeros(3), t.zeros(4)),
    "dot rank": lambda t: t.dot(t.zeros(3, 1), t.zeros(4)),
    "matmul 0-d": lambda t: t.tensor(1.0) @ t.zeros(2),
    "matmul dtypes": lambda t: t.zeros(2, 2) @ t.zeros(2, 2, dtype=t.float64),
    "broadcast": lambda t: t.zeros(2, 3) + t.zeros(4),
    "view count": lambda t: t.zeros(2, 3).view(5),
    "view minus one": lambda t: t.zeros(2, 3).view(-1, 4),
    "view two minus one": lambda t: t.zeros(2, 3).view(-1, -1),
    "view strides": lambda t: t.zeros(2, 3).t().view(6),
    "reshape": lambda t: t.zeros(2, 3).reshape(7),
    "reshape empty": lambda t: t.zeros(0, 3).reshape(-1, 0),
    "t": lambda t: t.zeros(2, 3, 4).t(),
    "permute length": lambda t: t.zeros(2, 3).permute(0),
    "permute duplicate": lambda t: t.zeros(2, 3).permute(0, 0),
    "expand": lambda t: t.zeros(2, 3).expand(4, 3),
    "expand leading": lambda t: t.zeros(3).expand(-1, 3),
    "cat sizes": lambda t: t.cat([t.zeros(2, 3), t.zeros(2, 4)]),
    "cat ranks": lambda t: t.cat([t.zeros(2, 3), t.zeros(2)]),
    "cat 0-d": lambda t: t.cat([t.tensor(1.0), t.zeros(2)]),
    "stack": lambda t: t.stack([t.zeros(2), t.zeros(3)]),
    "split": lambda t: t.zeros(5).split([2, 2]),
    "chunk": lambda t: t.zeros(5).chunk(0),
    "narrow": lambda t: t.zeros(5).narrow(0, 3, 4),
    "select": lambda t: t.zeros(5).select(0, 7),
    "squeeze dim": lambda t: t.zeros(5).squeeze(3),
    "gelu positional": lambda t: t.nn.functional.gelu(t.zeros(2), "tanh"),
    "nll_loss of one": lambda t: t.nn.functional.nll_loss(t.zeros(5), t.tensor([1, 2])),
    "nll_loss of one, range": lambda t: t.nn.functional.nll_loss(t.zeros(5), t.tensor([7])),
    "cross_entropy of one": lambda t: t.nn.functional.cross_entropy(t.zeros(5), t.tensor([1, 2])),
    "bce logits of ints": lambda t: t.nn.functional.binary_cross_entropy_with_logits(
        t.ones(2, dtype=t.int64), t.ones(2)),
    "bce logits, target of ints": lambda t: t.nn.functional.binary_cross_entropy_with_logits(
        t.ones(2), t.ones(2, dtype=t.int32)),
    "unsqueeze dim": lambda t: t.zeros(5).unsqueeze(3),
    "unflatten": lambda t: t.zeros(5).unflatten(0, (2, 2)),
    "flatten": lambda t: t.zeros(5, 5).flatten(1, 0),
    "repeat": lambda t: t.zeros(2, 3).repeat(2),
    "movedim": lambda t: t.zeros(2, 3).movedim((0, 1), (0,)),
    "index range": lambda t: t.zeros(3)[5],
    "index range dim 1": lambda t: t.zeros(3, 4)[0, 9],
    "too many indices": lambda t: t.zeros(3)[0, 0],
    "index 0-d": lambda t: t.tensor(1.0)[0],
    "index float": lambda t: t.zeros(3)[1.0],
    "index string": lambda t: t.zeros(3)["a"],
    "index float tensor": lambda t: t.zeros(3)[t.zeros(2)],
    "index step": lambda t: t.zeros(3)[::-1],
    "index mask": lambda t: t.zeros(3)[t.ones(4, dtype=t.bool)],
    "index tensor range": lambda t: t.zeros(3)[t.tensor([5])],
    "index tensors shapes": lambda t: t.zeros(3, 3)[t.tensor([0, 1]), t.tensor([0, 1, 2])],
    "assign shape": lambda t: t.zeros(3, 4).__setitem__(0, t.zeros(5)),
    "assign list": lambda t: t.zeros(3).__setitem__(0, [1, 2]),
    "gather range": lambda t: t.zeros(3, 3).gather(1, t.tensor([[5]])),
    "gather rank": lambda t: t.zeros(3, 3).gather(1, t.tensor([0])),
    "gather dtype": lambda t: t.zeros(3).gather(0, t.tensor([0.0])),
    "scatter dtype": lambda t: t.zeros(3).scatter(0, t.tensor([0]), t.tensor([1])),
    "index_select": lambda t: t.zeros(3).index_select(0, t.tensor([5])),
    "masked_fill mask": lambda t: t.zeros(3).masked_fill(t.zeros(3), 1),
    "item": lambda t: t.zeros(3).item(),
    "bool": lambda t: bool(t.zeros(3)),
    "bool empty": lambda t: bool(t.zeros(0)),
    "index conversion": lambda t: [1, 2][t.zeros(3)],
    "len": lambda t: len(t.tensor(1.0)),
    "iterate 0-d": lambda t: list(t.tensor(1.0)),
    "numpy of grad": lambda t: t.zeros(3, requires_grad=True).numpy(),
    "requires_grad int": lambda t: t.zeros(3, dtype=t.int64).requires_grad_(),
    "mean of int": lambda t: t.zeros(3, dtype=t.int64).mean(),
    "std of int": lambda t: t.zeros(3, dtype=t.int64).std(),
    "softmax of int": lambda t: t.zeros(3, dtype=t.int64).softmax(0),
    "max of empty": lambda t: t.zeros(0).max(),
    "max of empty dim": lambda t: t.zeros(2, 0).max(1),
    "argmax of empty": lambda t: t.zeros(0).argmax(),
    "neg bool": lambda t: -t.ones(2, dtype=t.bool),
    "sub bool": lambda t: t.ones(2, dtype=t.bool) - t.ones(2, dtype=t.bool),
    "pow negative": lambda t: t.ones(2, dtype=t.int64) ** -1,
    "int division by zero": lambda t: t.ones(2, dtype=t.int64) // 0,
    "remainder by zero": lambda t: t.ones(2, dtype=t.int64) % 0,
    "clamp nothing": lambda t: t.zeros(2).clamp(),
    "div mode": lambda t: t.div(t.ones(2), 2, rounding_mode="up"),
    "where dtype": lambda t: t.where(t.zeros(2), t.ones(2), t.ones(2)),
    "inplace cast": lambda t: t.zeros(2, dtype=t.int64).add_(1.5),
    "inplace cast tensor": lambda t: t.zeros(2, dtype=t.int64).mul_(t.ones(2)),
    "inplace shape": lambda t: t.zeros(2).add_(t.zeros(2, 2)),
    "inplace leaf": lambda t: t.zeros(2, requires_grad=True).add_(1),
    "inplace leaf view": lambda t: t.zeros(2, requires_grad=True)[0].add_(1),
    "inplace expanded": lambda t: t.zeros(1).expand(3).add_(t.ones(3)),
    "fill tensor": lambda t: t.zeros(2).fill_(t.ones(2)),
    "negative size": lambda t: t.ones(-1),
    "arange step": lambda t: t.arange(0, 5, 0),
    "arange sign": lambda t: t.arange(0, 5, -1),
    "ragged": lambda t: t.tensor([[1, 2], [3]]),
    "tensor string": lambda t: t.tensor("a"),
    "tensor object": lambda t: t.tensor([object()]),
    "topk range": lambda t: t.zeros(3).topk(5),
    "einsum sizes": lambda t: t.einsum("ij,jk", t.zeros(2, 3), t.zeros(4, 5)),
    "einsum operands": lambda t: t.einsum("ij,jk", t.zeros(2, 3)),
    "einsum rank": lambda t: t.einsum("ijk->i", t.zeros(2, 3)),
    "einsum output": lambda t: t.einsum("ij->k", t.zeros(2, 3)),
    "randint range": lambda t: t.randint(5, 5, (2,)),
    "normal std": lambda t: t.zeros(3).normal_(0, -1),
    "bernoulli p": lambda t: t.zeros(3).bernoulli_(1.5),
    "uniform range": lambda t: t.zeros(3).uniform_(1, 0),
    "multinomial count": lambda t: t.multinomial(t.ones(3), 5),
    "finfo of int": lambda t: t.finfo(t.int32),
    "iinfo of float": lambda t: t.iinfo(t.float32),
    "diagonal": lambda t: t.zeros(2, 2).diagonal(0, 1, 1),
    "unfold size": lambda t: t.zeros(3).unfold(0, 5, 1),
    "unfold step": lambda t: t.zeros(3).unfold(0, 2, 0),
    "backward vector": lambda t: (t.zeros(2, requires_grad=True) * 1).backward(),
    "backward no grad": lambda t: t.zeros(2).sum().backward(),
    "type string": lambda t: t.zeros(2).type("x"),
    "tensor overflow": lambda t: t.tensor(300, dtype=t.uint8),
    "fill overflow": lambda t: t.zeros(2, dtype=t.uint8).fill_(300),
    "full overflow": lambda t: t.full((2,), 1e40, dtype=t.float32),
    "masked_fill overflow": lambda t: t.zeros(2).half().masked_fill(t.tensor(True), -1e9),
    "clamp overflow": lambda t: t.zeros(2, dtype=t.uint8).clamp(max=300),
    "int too big": lambda t: t.zeros(2) + 2**70,
    "matrix transpose": lambda t: t.zeros(3).mT,
    "outer": lambda t: t.outer(t.zeros(2, 2), t.zeros(2)),
    "tensordot": lambda t: t.tensordot(t.zeros(2, 3), t.zeros(4, 2), dims=1),
    "masked_select mask": lambda t: t.masked_select(t.zeros(2), t.zeros(2)),
    "repeat_interleave negative": lambda t: t.zeros(2).repeat_interleave(-1),
    "allclose dtypes": lambda t: t.allclose(t.zeros(2), t.zeros(2, dtype=t.float64)),
    "add string": lambda t: t.zeros(2) + "a",
    "exp of list": lambda t: t.exp([1.0]),
    "cat of tensor": lambda t: t.cat(t.zeros(2)),
    "stack of numbers": lambda t: t.stack([1, 2]),
    "zeros of float": lambda t: t.zeros(2.5),
    "attribute": lambda t: t.zeros(2).no_such_thing,
    "tril": lambda t: t.zeros(2).tril(),
    "roll": lambda t: t.zeros(2, 2).roll((1, 2), 0),
    "set requires_grad": lambda t: (t.zeros(2, requires_grad=True) * 2).requires_grad_(False),
    "out of grad": lambda t: t.exp(t.ones(2, requires_grad=True), out=t.empty(2)),
    "out dtype": lambda t: t.exp(t.ones(2), out=t.empty(2, dtype=t.int64)),
    "int beyond int64": lambda t: t.tensor([2**63]),
    "ldexp number": lambda t: t.ldexp(t.ones(2), 2),
    "logical_and number": lambda t: t.logical_and(t.ones(2), 2),
    "heaviside number": lambda t: t.heaviside(t.ones(2), 2),
    "hstack nothing": lambda t: t.hstack([]),
    "cat nothing": lambda t: t.cat([]),
    "narrow start": lambda t: t.zeros(3, 5).narrow(1, 6, 0),
    "fliplr": lambda t: t.zeros(2).fliplr(),
    "rot90 dims": lambda t: t.zeros(2, 2).rot90(1, (0, 0)),
    "multinomial negative": lambda t: t.multinomial(t.tensor([1.0, -1.0]), 1),
    "multinomial nothing": lambda t: t.multinomial(t.zeros(3), 1),
    "masked_fill complex": lambda t: t.zeros(2).masked_fill(t.tensor(True), t.tensor(1j)),
    "renorm rank": lambda t: t.zeros(3).renorm(1, 0, 1.0),
    "kthvalue 0-d": lambda t: t.tensor(1.0).kthvalue(2),
    "gather out dtype": lambda t: t.gather(t.ones(2), 0, t.tensor([0]), out=t.empty(1).double()),
    "cov weights": lambda t: t.cov(t.ones(3), aweights=t.tensor([-1.0, 1.0, 1.0])),
    "bincount negative": lambda t: t.bincount(t.tensor([-1])),
    "bincount of floats": lambda t: t.bincount(t.tensor([1.0])),
    "histc bins": lambda t: t.histc(t.ones(2), bins=0),
    "histc of infinity": lambda t: t.histc(t.tensor([1.0, float("inf")]), 4),
    "histc to infinity": lambda t: t.histc(t.ones(2), 4, 0, float("inf")),
    "normal stds": lambda t: t.normal(0.0, t.tensor([1.0, -1.0])),
    "normal std of NaN": lambda t: t.normal(t.zeros(2), t.tensor([1.0, float("nan")])),
    "bags begin late": lambda t: t.nn.functional.embedding_bag(
        t.tensor([0, 1]), t.ones(3, 2), t.tensor([1])),
    "bags begin beyond": lambda t: t.nn.functional.embedding_bag(
        t.tensor([0, 1]), t.ones(3, 2), t.tensor([0, 5])),
    "bags end beyond": lambda t: t.nn.functional.embedding_bag(
        t.tensor([0, 1]), t.ones(3, 2), t.tensor([0, 1, 3]), include_last_offset=True),
    "cross length": lambda t: t.cross(t.ones(2, 2), t.ones(2, 2), dim=1),
    "invert float": lambda t: ~t.ones(2),
    "expand rank": lambda t: t.ones(2, 3).expand(3),
    "Tensor of a float": lambda t: t.Tensor(2.5),
    "transposed channels": lambda t: t.nn.ConvTranspose2d(3, 4, 3)(t.ones(1, 2, 8, 8)),
    "reflect too far": lambda t: t.nn.functional.pad(t.ones(1, 3), (3, 3), mode="reflect"),
    "interpolation mode": lambda t: t.nn.functional.interpolate(
        t.ones(1, 3, 4, 4), size=3, mode="foo"),
    "parameter": lambda t: t.nn.Linear(2, 2).get_parameter("x"),
    "parameter that is none": lambda t: t.nn.Linear(2, 2).get_parameter("forward"),
    "fused and foreach": lambda t: t.optim.Adam(
        t.nn.Linear(2, 2).parameters(), foreach=True, fused=True),
    "gradient size": lambda t: setattr(t.ones(3, requires_grad=True), "grad", t.ones(4)),
    "gradient changed by a hook": lambda t: _hooked(t, t.ones(5)),
    "a hook's number": lambda t: _hooked(t, 5),
    "gradient that is a number": lambda t: _function(t).apply(
        t.ones(2, requires_grad=True)).sum().backward(),
    "Function that is called": lambda t: _called(_function(t), t.ones(2)),
}

# the same exception, in other words
SAME_TYPE: dict[str, Callable[[Any], Any]] = {
    "logspace float steps": lambda t: t.logspace(0, 1, 2.5),
    "as_strided bounds": lambda t: t.zeros(3).as_strided((5,), (1,)),
    "negative size of zeros": lambda t: t.zeros(-1),
    "scatter_reduce": lambda t: t.zeros(2).scatter_reduce(0, t.tensor([0]), t.ones(1), "median"),
    "segment_reduce": lambda t: t.segment_reduce(t.ones(2), "median", lengths=t.tensor([2])),
    "segments of nothing": lambda t: t.segment_reduce(t.ones(2), "sum"),
    "segments too short": lambda t: t.segment_reduce(t.ones(2), "sum", lengths=t.tensor([1])),
    "segments below 0": lambda t: t.segment_reduce(t.ones(2), "sum", lengths=t.tensor([3, -1])),
    "segments that descend": lambda t: t.segment_reduce(
        t.ones(4), "sum", offsets=t.tensor([0, 3, 1])),
    "segments of another dim": lambda t: t.segment_reduce(
        t.ones(2, 2), "sum", lengths=t.tensor([2]), axis=1),
    "segments by a list": lambda t: t.segment_reduce(t.ones(2), "sum", lengths=[2]),
    "segments by indices": lambda t: t.segment_reduce(
        t.ones(2), "sum", indices=t.tensor([0, 1])),
    "segments of integers": lambda t: t.segment_reduce(
        t.ones(2).long(), "sum", lengths=t.tensor([2])),
    "number operands": lambda t: t.pow(2, 3),
    "float_power numbers": lambda t: t.float_power(2, 3),
    "method of a number": lambda t: t.Tensor.__radd__(2, t.ones(2)),
    "arange infinite": lambda t: t.arange(0, float("inf")),
    "linspace steps": lambda t: t.linspace(0, 3, 1.0),
    "out in the way": lambda t: (lambda x: t.take(x, t.tensor([2, 1, 0]), out=x))(t.ones(3)),
    "index_add slices": lambda t: t.zeros(3, 4).index_add(0, t.tensor([0]), t.zeros(1, 3)),
    "keyword": lambda t: t.zeros(2).sum(dims=0),
    "dtype changed by a hook": lambda t: _hooked(t, t.ones(3).double()),
    "sizes missing": lambda t: t.randn(),
    "sizes of zeros missing": lambda t: t.zeros(),
    "arange without an end": lambda t: t.arange(),
    "bernoulli above 1": lambda t: t.bernoulli(t.tensor([0.5, 2.0])),
    "bernoulli_ of NaN": lambda t: t.ones(1).bernoulli_(t.tensor([float("nan")])),
    "gradient dtype": lambda t: setattr(t.ones(3, requires_grad=True), "grad", t.ones(3).double()),
    "missing argument": lambda t: t.zeros(2).softmax(),
    "sum of a string": lambda t: t.zeros(2).sum("a"),
    "matmul number": lambda t: t.zeros(2) @ 3,
    "none index dtype": lambda t: t.zeros(2).to("no such device"),
    "load nothing": lambda t: t.save(t.zeros(2), "/no/such/folder/file.pt"),
    "view dtype": lambda t: t.zeros(3, dtype=t.uint8).view(t.float32),
    "set data": lambda t: setattr(t.zeros(2), "data", 1),
    "set grad": lambda t: setattr(t.zeros(2, requires_grad=True), "grad", t.zeros(3)),
    "cuda": lambda t: t.zeros(2).cuda(),
    "cuda device": lambda t: t.zeros(2, device="cuda"),
}


def _raised(t: Any, run: Callable[[Any], Any]) -> BaseException:
    with pytest.raises(Exception) as caught:  # compared below
        run(t)
    return caught.value


@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
@pytest.mark.parametrize("name", list(SAME))
def test_error(name: str) -> None:
    want, have = _raised(torch, SAME[name]), _raised(graphc, SAME[name])
    assert isinstance(have, type(want)), f"{have!r}, not {want!r}"
    start = str(want).split("\n")[0].rstrip(" .")
    assert str(have).startswith(start), f"\n{str(have).split(chr(10))[0]}\n{start}"


@pytest.mark.parametrize("name", list(SAME_TYPE))
def test_type(name: str) -> None:
    want, have = _raised(torch, SAME_TYPE[name]), _raised(graphc, SAME_TYPE[name])
    # torch built without CUDA says so by an AssertionError
    expected = RuntimeError if isinstance(want, AssertionError) else type(want)
    assert isinstance(have, expected), f"{have!r}, not {want!r}"
