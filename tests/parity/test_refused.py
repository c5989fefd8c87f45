"""What PyTorch refuses, or gives for nothing, beside its usual kinds of numbers: the same here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import graphc

torch = pytest.importorskip("torch")


def leaf(t: Any) -> Any:
    return t.tensor([5.0, 7.0], requires_grad=True)


def slope(t: Any, function: Callable[[Any], Any]) -> Any:
    x = leaf(t)
    function(x).sum().backward()
    return x.grad


FLOAT_ONLY = """
    leaky_relu hardswish hardsigmoid mish logsigmoid hardshrink softshrink glu elu
    gelu silu softplus
""".split()
DIVISIONS = "fmod fmod_ remainder remainder_ floor_divide floor_divide_".split()
CASES: dict[str, Callable[[Any], Any]] = {
    "floor_divide": lambda t: slope(t, lambda x: x // 2),
    "floor_divide's divisor": lambda t: slope(t, lambda x: 9 // x),
    "floor_divide_": lambda t: slope(t, lambda x: (x * 1).floor_divide_(2)),
    "floor_divide beside": lambda t: slope(t, lambda x: x // 2 + x),
    "floor_divide unused": lambda t: slope(t, lambda x: x * (x.detach() // 2)),
    "div floor": lambda t: slope(t, lambda x: t.div(x, 2, rounding_mode="floor")),
    "remainder twice": lambda t: slope(t, lambda x: t.autograd.grad(
        (x % leaf(t)).sum(), x, create_graph=True)[0] * x),
    "grad of nothing": lambda t: t.autograd.grad(leaf(t).sum(), []),
    "backward to nothing": lambda t: leaf(t).sum().backward(inputs=[]),
    "grad of a dict": lambda t: (lambda x: t.autograd.grad(x.sum(), {"x": x}))(leaf(t)),
    **{f"{name} of ints": lambda t, name=name: getattr(t.nn.functional, name)(t.tensor([1, 2]))
       for name in FLOAT_ONLY},
    **{f"{name} of nothing": lambda t, name=name: getattr(t.nn.functional, name)(
        t.ones(0, 3, dtype=t.int64), dim=1) for name in ("softmax", "log_softmax", "softmin")},
    **{f"{name} of nothing": lambda t, name=name: getattr(t.ones(0, dtype=t.int64), name)(0)
       for name in DIVISIONS},
    **{f"{name} by 0": lambda t, name=name: getattr(t.ones(2, dtype=t.int64), name)(0)
       for name in DIVISIONS},
    "topk of bools": lambda t: t.tensor([True, False]).topk(1),
    "kthvalue of bools": lambda t: t.tensor([True, False]).kthvalue(1),
    "kthvalue of nothing": lambda t: t.ones(3, 0).kthvalue(1),
    "mode of nothing": lambda t: t.ones(0).mode(),
    "hsplit in parts of other sizes": lambda t: t.ones(2, 3).hsplit(2),
    "hsplit of a vector": lambda t: t.ones(4).hsplit(3),
    "vsplit in parts of other sizes": lambda t: t.vsplit(t.ones(2, 3), 4),
    "dsplit in no parts": lambda t: t.dsplit(t.ones(1, 2, 3), 0),
    "an operand as out= that is too small": lambda t: (lambda a: t.add(a, t.ones(2, 3), out=a))(
        t.ones(3)),
    "ones of another dtype than out=": lambda t: t.ones(
        3, out=t.zeros(3, dtype=t.bool), dtype=t.float32),
    "cumulative_trapezoid of bools": lambda t: t.cumulative_trapezoid(t.tensor([True, False])),
    "broadcast_to sizes": lambda t: t.ones(2, 1).broadcast_to(2, 3),
    "gather of a scalar": lambda t: t.tensor(2.0).gather(0, t.zeros(2, 2, dtype=t.int64)),
    "scatter of a scalar": lambda t: t.tensor(2.0).scatter(0, t.zeros(2, 2, dtype=t.int64), 1.0),
    "index_copy of fewer dims": lambda t: t.ones(4, 4).index_copy(0, t.tensor([1]), t.ones(4)),
    "index_copy of a scalar": lambda t: t.ones(4, 4).index_copy(0, t.tensor([1]), t.ones(())),
    "linear of a weight of 3 dims": lambda t: t.nn.functional.linear(t.ones(2, 4), t.ones(2, 3, 4)),
    "linear of a vector and a bias": lambda t: t.nn.functional.linear(
        t.ones(2, 4), t.ones(4), t.ones(2)),
    "linear of a vector": lambda t: t.nn.functional.linear(t.ones(2, 4), t.arange(4.0)),
    "linear of a scalar weight": lambda t: t.nn.functional.linear(t.ones(2, 4), t.ones(())),
    "the inverse of a singular matrix": lambda t: t.linalg.inv(t.zeros(2, 2)),
    "movedim of a scalar": lambda t: t.tensor(2.0).movedim(0, -1),
    "movedim of a scalar's dim 1": lambda t: t.tensor(2.0).movedim(1, 0),
}
for _a, _b in (("int64", "int64"), ("int64", "float32"), ("float32", "int64"), ("bool", "float32"),
               ("float32", "bool"), ("float32", "float64"), ("float64", "float32")):
    for _name in """
        kl_div mse_loss smooth_l1_loss huber_loss binary_cross_entropy soft_margin_loss
        cosine_similarity
    """.split():
        def _of_kinds(t: Any, name: str = _name, a: str = _a, b: str = _b) -> Any:
            x, y = (t.tensor([1, 0], dtype=getattr(t, kind)) for kind in (a, b))
            more = {"dim": 0} if name == "cosine_similarity" else {"reduction": "sum"}
            return getattr(t.nn.functional, name)(x, y, **more)

        CASES[f"{_name} of {_a} and {_b}"] = _of_kinds


def seen(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: seen(each) for key, each in value.items()}
    return str(value.dtype), tuple(value.shape), [round(x, 5) for x in value.reshape(-1).tolist()]


def outcome(t: Any, function: Callable[[Any], Any]) -> Any:
    try:
        return seen(function(t))
    except (RuntimeError, IndexError, TypeError) as error:
        first = str(error).split("\n")[0].split(". Cure")[0].split(" (it")[0]
        return type(error).__name__, first.rstrip(".")


# their words name a function within PyTorch
_OTHER_WORDS = {f"{name} of ints" for name in ("gelu", "silu", "softplus")} | {
    "floor_divide_", "soft_margin_loss of bool and float32",
}


@pytest.mark.parametrize("name", CASES)
def test_as_torch(name: str) -> None:
    ours, theirs = outcome(graphc, CASES[name]), outcome(torch, CASES[name])
    if name in _OTHER_WORDS:
        ours, theirs = ours[0], theirs[0]
    assert ours == theirs


@pytest.mark.parametrize(
    "name", "sum mean prod any all amax amin argmax max min norm var std logsumexp".split()
)
def test_a_second_dim_is_no_keepdim(name: str) -> None:
    """sum(0, 1) would be taken for sum(0, keepdim=True); torch refuses it, and so do we."""
    for t in (torch, graphc):
        with pytest.raises(TypeError):
            more = {"p": 2} if name == "norm" else {}
            getattr(t.ones(2, 3), name)(dim=0, keepdim=1, **more)


@pytest.mark.parametrize("rows", [3, 300])
@pytest.mark.parametrize("name", "index_select index_add index_add_ index_copy index_copy_".split())
def test_these_count_no_index_from_the_end(name: str, rows: int) -> None:
    with pytest.raises((IndexError, RuntimeError)) as theirs:
        _indexed(torch, name, rows)
    words = f"index -1 is out of bounds for dimension 0 with size {rows}"
    with pytest.raises(theirs.type, match=words):
        _indexed(graphc, name, rows)


def _indexed(t: Any, name: str, rows: int) -> Any:
    more = () if name == "index_select" else (t.ones(2, 2),)
    return getattr(t.zeros(rows, 2), name)(0, t.tensor([0, -1]), *more)


def test_numbers_in_odd_places_are_refused() -> None:
    for t in (torch, graphc):
        x = t.ones(3)
        for name, given in (("add", (x, x)), ("addcmul", (x, x, x)), ("copy_", ([1, 2, 3],))):
            with pytest.raises(TypeError):
                getattr(x, name)(*given)
