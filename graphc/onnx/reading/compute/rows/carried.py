"""Operators on elements that tensors do not have (see ../carried.py).

What moves elements moves those of the tensor that carries them. Unsigned integers of 16, 32 and 64
bits have arithmetic; casts and quantization know every kind. Anything else refuses them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .....frontend import functions as T
from .....frontend.tensor import Tensor
from ..carried import Carried, Kind, carried, divided, ordered, plain, shifted_right, wrapped_to
from ..table import Node, Operator
from .arithmetic import element_of

Handler = Callable[..., Any]  # (node, the operator's own row, *inputs)
_HANDLERS: dict[str, Handler] = {}
_MOVES = """
    Reshape Transpose Flatten Squeeze Unsqueeze Slice Gather GatherElements GatherND Concat Expand
    Tile Split SplitToSequence ConcatFromSequence Where Pad DepthToSpace SpaceToDepth
    ReverseSequence Compress Trilu ScatterElements Scatter ScatterND CenterCropPad TensorScatter
"""


def handled(operator: Operator, node: Node, given: Sequence[Any]) -> Any:
    """What an operator makes of inputs of which one at least is carried."""
    kinds = [x.kind for x in _all(given) if type(x) is Carried]
    handler = _HANDLERS.get(operator.name)
    unsigned = all(kind.is_unsigned for kind in kinds)
    if handler is None or (operator.name in _OF_UNSIGNED and not unsigned):
        node.refuse(
            f"its input is {kinds[0]}, which graphc's tensors do not have",
            "cast it before, or export the model in another type",
        )
    assert handler is not None
    return handler(node, operator.compute, *given)


def _all(given: Sequence[Any]) -> list[Any]:
    return [y for x in given for y in (x if type(x) is list else [x])]


def _held(x: Any) -> Any:
    """The tensors that carry, in lists too."""
    if type(x) is list:
        return [_held(y) for y in x]
    return x.tensor if type(x) is Carried else x


def _kind(given: Sequence[Any]) -> Kind:
    return next(x.kind for x in _all(given) if type(x) is Carried)


def _as(x: Any, kind: Kind) -> Any:
    if type(x) is list:
        return [_as(y, kind) for y in x]
    return Carried(x, kind) if isinstance(x, Tensor) else x


def _results(made: Any, kind: Kind) -> tuple[Any, ...]:
    return tuple(_as(x, kind) for x in (made if isinstance(made, tuple) else (made,)))


def _handles(names: str) -> Callable[[Handler], Handler]:
    def put(function: Handler) -> Handler:
        _HANDLERS.update(dict.fromkeys(names.split(), function))
        return function

    return put


@_handles(_MOVES)
def _moved(node: Node, row: Any, *given: Any) -> Any:
    if node.get("reduction", "none") != "none":
        node.refuse(f"it adds up {_kind(given)}", "scatter without a reduction")
    return _results(row(node, *map(_held, given)), _kind(given))


# --- unsigned integers -------------------------------------------------------------------------

_WRAPPED = "Add Sub Mul Sum ReduceSum ReduceProd ReduceSumSquare MatMul Gemm CumSum BitwiseNot"
_BITS = "BitwiseAnd BitwiseOr BitwiseXor"
_EXTREMES = "Max Min ReduceMax ReduceMin Clip TopK"
_COMPARED = "Equal Less LessOrEqual Greater GreaterOrEqual ArgMax ArgMin"
_OF_UNSIGNED = frozenset(f"""
    {_WRAPPED} {_BITS} {_EXTREMES} {_COMPARED} Div Mod BitShift Abs Sign
""".split())


@_handles(f"{_WRAPPED} {_BITS}")
def _wrapped(node: Node, row: Any, *given: Any) -> Any:
    kind = _kind(given)
    return Carried(wrapped_to(row(node, *map(_held, given)), kind), kind)


def _ordered(given: Sequence[Any]) -> list[Any]:
    """Inputs that compare as their kind does."""
    return [
        ordered(x.tensor) if type(x) is Carried and x.kind.bits == 64 else _held(x) for x in given
    ]


@_handles(_COMPARED)
def _compared(node: Node, row: Any, *given: Any) -> Any:
    return row(node, *_ordered(given))


@_handles(_EXTREMES)
def _extreme(node: Node, row: Any, *given: Any) -> Any:
    kind = _kind(given)
    made = row(node, *_ordered(given))
    first, *rest = made if isinstance(made, tuple) else (made,)
    return (Carried(ordered(first) if kind.bits == 64 else first, kind), *rest)


@_handles("Div Mod")
def _divided(node: Node, row: Any, a: Carried, b: Carried) -> Any:
    kind = a.kind
    if kind.bits < 64:
        return Carried(row(node, a.tensor, b.tensor), kind)
    return Carried(divided(a.tensor, b.tensor)[node.op == "Mod"], kind)


@_handles("BitShift")
def _shifted(node: Node, row: Any, a: Carried, b: Carried) -> Any:
    kind = a.kind
    if kind.bits == 64 and node.get("direction") == "RIGHT":
        return Carried(shifted_right(a.tensor, b.tensor), kind)
    found = Carried(wrapped_to(row(node, a.tensor, b.tensor), kind), kind)
    if kind.bits == 64 or node.get("direction") == "RIGHT":
        return found
    inside = b.tensor < kind.bits  # the carrying dtype has more bits
    return Carried(T.where(inside, found.tensor, T.zeros_like(found.tensor)), kind)


@_handles("Abs")
def _same(node: Node, row: Any, x: Carried) -> Any:
    return x


@_handles("Sign")
def _sign(node: Node, row: Any, x: Carried) -> Any:
    return Carried(T.ne(x.tensor, 0).to(x.kind.holder), x.kind)


@_handles("Pow")
def _power(node: Node, row: Any, base: Tensor, exponent: Carried) -> Any:
    """To an unsigned exponent; bases are signed."""
    return row(node, base, plain(exponent, base.dtype if base.dtype.is_floating_point else T.int64))


# --- casts -------------------------------------------------------------------------------------


@_handles("Cast")
def _cast(node: Node, row: Any, x: Carried) -> Any:
    return _to(node, x, element_of(node, node.get("to", 1)))


@_handles("CastLike")
def _cast_like(node: Node, row: Any, x: Any, like: Any) -> Any:
    return _to(node, x, like.kind if type(like) is Carried else like.dtype)


def _to(node: Node, x: Any, target: Any) -> Any:
    if isinstance(target, Kind):
        return carried(x, target, bool(node.get("saturate", 1)), node.get("round_mode", "up"))
    return plain(x, target)


@_handles("BitCast")
def _bit_cast(node: Node, row: Any, x: Carried) -> Any:
    target = element_of(node, node.get("to", 1))
    signed = {16: T.int16, 32: T.int32, 64: T.int64}
    if not x.kind.is_unsigned or isinstance(target, Kind) or target.bits != x.kind.bits:
        node.refuse(f"it takes the bits of {x.kind} as {target}", "cast between types of one size")
    return row(node, plain(x, signed[x.kind.bits]))


# --- quantization ------------------------------------------------------------------------------


@_handles("QuantizeLinear")
def _quantized(node: Node, row: Any, *given: Any) -> Any:
    return row(node, *given)


@_handles("DequantizeLinear")
def _dequantized(node: Node, row: Any, *given: Any) -> Any:
    """Of what carries it: the row computes in floats, which have all of its values."""
    return row(node, *map(_held, given))
