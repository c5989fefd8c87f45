"""Mistakes of users, for test_bad_input.py: functions that raise, and their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# name: (function of (torch, *arguments), the arguments for a torch)
Case = tuple[Callable[..., Any], Callable[[Any], tuple[Any, ...]]]


def _put(t: Any, a: Any, i: Any) -> Any:
    a = a.clone()
    a[i] = 5
    return a


def _inplace(t: Any, a: Any, b: Any) -> Any:
    a = a.clone()
    a += b
    return a


def _expand(t: Any, a: Any) -> Any:
    return a.expand(3, 2).add_(1)


def _unpack(t: Any, a: Any) -> Any:
    x, y, z = a
    return x + y + z


SHAPES: dict[str, Case] = {
    "add": (lambda t, a, b: a + b, lambda t: (t.ones(3), t.ones(4))),
    "matmul": (lambda t, a, b: a @ b, lambda t: (t.ones(2, 3), t.ones(4, 2))),
    "linear": (
        lambda t, a, b: t.nn.functional.linear(a, b), lambda t: (t.ones(2, 3), t.ones(4, 2)),
    ),
    "view": (lambda t, a: a.view(4), lambda t: (t.ones(2, 3),)),
    "boundaries of two dims": (lambda t, a: t.bucketize(a, a), lambda t: (t.ones(2, 3),)),
    "tensordot of too many dims": (lambda t, a: t.tensordot(a, a, 3), lambda t: (t.ones(2, 2),)),
    "set_ of a number": (lambda t, a: a.set_(3), lambda t: (t.ones(2),)),
    "an item of a leaf that is a view": (
        lambda t, a: a.view(3, 2).requires_grad_()[0].mul_(2), lambda t: (t.ones(6),),
    ),
    "rows of a leaf that is a view": (
        lambda t, a: a[2:4].mul_(2), lambda t: (t.ones(6).view(6, 1).requires_grad_(),),
    ),
    "view of a transpose": (lambda t, a: a.view(6), lambda t: (t.ones(2, 3).t(),)),
    "cat": (lambda t, a, b: t.cat([a, b]), lambda t: (t.ones(2, 3), t.ones(2, 4))),
    "stack": (lambda t, a, b: t.stack([a, b]), lambda t: (t.ones(2), t.ones(3))),
    "expand": (lambda t, a: a.expand(3, 4), lambda t: (t.ones(2),)),
    "permute": (lambda t, a: a.permute(0, 0), lambda t: (t.ones(2, 3),)),
    "sum dim": (lambda t, a: a.sum(3), lambda t: (t.ones(2, 3),)),
    "softmax dim": (lambda t, a: t.softmax(a, 2), lambda t: (t.ones(2),)),
    "unsqueeze": (lambda t, a: a.unsqueeze(5), lambda t: (t.ones(2),)),
    "broadcast in place": (_inplace, lambda t: (t.ones(2), t.ones(3, 2))),
    "write to an expanded": (_expand, lambda t: (t.ones(2),)),
    "unpack": (_unpack, lambda t: (t.ones(2),)),
    "negative size": (lambda t, a: t.zeros(-1) + a, lambda t: (t.ones(2),)),
    "topk": (lambda t, a: a.topk(5), lambda t: (t.ones(2),)),
    "max of nothing": (lambda t, a: a.max(), lambda t: (t.ones(0),)),
    "conv channels": (
        lambda t, a, w: t.nn.functional.conv2d(a, w),
        lambda t: (t.ones(1, 3, 5, 5), t.ones(2, 4, 3, 3)),
    ),
    "conv window": (
        lambda t, a, w: t.nn.functional.conv2d(a, w),
        lambda t: (t.ones(1, 3, 2, 2), t.ones(2, 3, 3, 3)),
    ),
    "pool window": (
        lambda t, a: t.nn.functional.max_pool2d(a, 3), lambda t: (t.ones(1, 1, 2, 2),),
    ),
    "batch norm of one": (
        lambda t, a: t.nn.functional.batch_norm(a, None, None, training=True),
        lambda t: (t.ones(1, 3),),
    ),
    "layer norm": (
        lambda t, a: t.nn.functional.layer_norm(a, (4,)), lambda t: (t.ones(2, 3),),
    ),
    "cross entropy": (
        lambda t, a, y: t.nn.functional.cross_entropy(a, y),
        lambda t: (t.ones(2, 3), t.tensor([0, 1, 2])),
    ),
    "backward of a vector": (
        lambda t, a: (a * a).backward(), lambda t: (t.ones(2, requires_grad=True),),
    ),
    "backward's gradient": (
        lambda t, a: (a * a).backward(t.ones(3)), lambda t: (t.ones(2, requires_grad=True),),
    ),
}

DTYPES: dict[str, Case] = {
    "matmul": (lambda t, a, b: a @ b, lambda t: (t.ones(2, 3), t.ones(3, 2, dtype=t.float64))),
    "index by floats": (lambda t, a, i: a[i], lambda t: (t.ones(3), t.ones(2))),
    "embedding of floats": (
        lambda t, w, i: t.nn.functional.embedding(i, w), lambda t: (t.ones(4, 2), t.ones(2)),
    ),
    "conv": (
        lambda t, a, w: t.nn.functional.conv2d(a, w),
        lambda t: (t.ones(1, 3, 5, 5, dtype=t.float64), t.ones(2, 3, 3, 3)),
    ),
    "int += float": (_inplace, lambda t: (t.ones(2, dtype=t.int64), 0.5)),
    "float & float": (lambda t, a: a & a, lambda t: (t.ones(2),)),
    "bool - bool": (lambda t, a: a - a, lambda t: (t.tensor([True]),)),
    "- bool": (lambda t, a: -a, lambda t: (t.tensor([True]),)),
    "mean of ints": (lambda t, a: a.mean(), lambda t: (t.tensor([1, 2]),)),
    "int ** -1": (lambda t, a: a**-1, lambda t: (t.tensor([1, 2]),)),
    "where by floats": (lambda t, a: t.where(a, 1, 2.0), lambda t: (t.ones(2),)),
    "an int that requires grad": (
        lambda t, a: t.ones(2, dtype=t.int64).requires_grad_(), lambda t: (t.ones(2),),
    ),
    "a string": (lambda t, a: a + "x", lambda t: (t.ones(2),)),
    "None": (lambda t, a: a * None, lambda t: (t.ones(2),)),
    "unknown device": (lambda t, a: a.to("nosuch"), lambda t: (t.ones(2),)),
    "unknown attribute": (lambda t, a: a.frobnicate(), lambda t: (t.ones(2),)),
    "unknown function": (lambda t, a: t.frobnicate(a), lambda t: (t.ones(2),)),
    "dropout": (lambda t, a: t.nn.functional.dropout(a, 1.5), lambda t: (t.ones(2),)),
}

INDICES: dict[str, Case] = {
    "an int": (lambda t, a: a[5], lambda t: (t.ones(2, 3),)),
    "a tensor": (lambda t, a, i: a[i], lambda t: (t.ones(4), t.tensor([0, 4]))),
    "below": (lambda t, a, i: a[i], lambda t: (t.ones(4), t.tensor([0, -5]))),
    "put": (_put, lambda t: (t.ones(4), t.tensor([0, 4]))),
    "gather": (lambda t, a, i: a.gather(0, i), lambda t: (t.ones(4), t.tensor([0, 4]))),
    "gather below": (lambda t, a, i: a.gather(0, i), lambda t: (t.ones(4), t.tensor([0, -1]))),
    "scatter": (lambda t, a, i: a.scatter(0, i, 1.0), lambda t: (t.ones(4), t.tensor([0, 4]))),
    "scatter_add": (
        lambda t, a, i: a.scatter_add(0, i, t.ones(2)), lambda t: (t.ones(4), t.tensor([0, 4])),
    ),
    "index_select": (
        lambda t, a, i: a.index_select(0, i), lambda t: (t.ones(4), t.tensor([0, 4])),
    ),
    "index_add": (
        lambda t, a, i: a.index_add(0, i, t.ones(2)), lambda t: (t.ones(4), t.tensor([0, 4])),
    ),
    "take": (lambda t, a, i: t.take(a, i), lambda t: (t.ones(4), t.tensor([0, 4]))),
    "embedding": (
        lambda t, w, i: t.nn.functional.embedding(i, w),
        lambda t: (t.ones(4, 2), t.tensor([0, 4])),
    ),
    "embedding below": (
        lambda t, w, i: t.nn.functional.embedding(i, w),
        lambda t: (t.ones(4, 2), t.tensor([0, -1])),
    ),
    "target": (
        lambda t, a, i: t.nn.functional.cross_entropy(a, i),
        lambda t: (t.ones(2, 3), t.tensor([0, 3])),
    ),
    "target below": (
        lambda t, a, i: t.nn.functional.cross_entropy(a, i),
        lambda t: (t.ones(2, 3), t.tensor([0, -1])),
    ),
    "nll target": (
        lambda t, a, i: t.nn.functional.nll_loss(a, i),
        lambda t: (t.ones(2, 3), t.tensor([0, 3])),
    ),
    "one_hot": (lambda t, i: t.nn.functional.one_hot(i, 3), lambda t: (t.tensor([0, 3]),)),
    "a // 0": (lambda t, a, b: a // b, lambda t: (t.tensor([1, 2]), t.tensor([1, 0]))),
    "a % 0": (lambda t, a, b: a % b, lambda t: (t.tensor([1, 2]), t.tensor([1, 0]))),
    "fmod 0": (lambda t, a, b: t.fmod(a, b), lambda t: (t.tensor([1, 2]), t.tensor([1, 0]))),
    "trunc 0": (
        lambda t, a, b: t.div(a, b, rounding_mode="trunc"),
        lambda t: (t.tensor([1, 2]), t.tensor([1, 0])),
    ),
    "a // the number 0": (lambda t, a: a // 0, lambda t: (t.tensor([1, 2]),)),
}


def _stored(t: Any, a: Any, change: str) -> Any:
    b = a * 1
    if change == "exp":
        c = b.exp()
        c.add_(1)
    elif change == "relu":
        c = b.relu()
        c.mul_(2)
    else:
        c = b * b
        b.add_(1)
    c.sum().backward()


def _twice(t: Any, a: Any) -> None:
    loss = (a * a).sum()
    loss.backward()
    loss.backward()


AUTOGRAD: dict[str, Case] = {
    "write to a leaf": (lambda t, a: a.add_(1), lambda t: (t.ones(2, requires_grad=True),)),
    "write to a leaf's view": (
        lambda t, a: a[0].add_(1), lambda t: (t.ones(2, requires_grad=True),),
    ),
    "write to exp's result": (
        lambda t, a: _stored(t, a, "exp"), lambda t: (t.ones(2, requires_grad=True),),
    ),
    "write to relu's result": (
        lambda t, a: _stored(t, a, "relu"), lambda t: (t.ones(2, requires_grad=True),),
    ),
    "write to what mul saved": (
        lambda t, a: _stored(t, a, "mul"), lambda t: (t.ones(2, requires_grad=True),),
    ),
    "backward twice": (_twice, lambda t: (t.ones(2, requires_grad=True),)),
    "backward without grad": (lambda t, a: a.sum().backward(), lambda t: (t.ones(2),)),
    "grad of what is not used": (
        lambda t, a, b: t.autograd.grad((a * a).sum(), [b]),
        lambda t: (t.ones(2, requires_grad=True), t.ones(2, requires_grad=True)),
    ),
}

CASES = {
    f"{group}: {name}": case
    for group, cases in [
        ("shape", SHAPES), ("dtype", DTYPES), ("value", INDICES), ("autograd", AUTOGRAD),
    ]
    for name, case in cases.items()
}
