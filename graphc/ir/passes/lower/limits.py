"""What whole numbers are at least and at most, as their operators say: positions that cannot be
negative are not counted from the end, and those that must be in range are not asked about."""

from __future__ import annotations

from typing import TypeAlias

from ...graph import Node

Limits: TypeAlias = tuple[int | None, int | None]  # None: nothing is known

NOTHING: Limits = None, None

_FEW = 1 << 16  # numbers of a constant
_DEEP = 12  # operators on the way
# results are some of the first operand's
_SOME = frozenset({"reshape", "permute", "expand", "slice", "gather", "index", "flip"})


def inside(known: Limits, size: int) -> bool:
    """Whether such positions are all in [0, size)."""
    low, high = known
    return low is not None and low >= 0 and high is not None and high < size


def limits(node: Node, depth: int = 0) -> Limits:
    """What every element is at least and at most."""
    name = node.op.name
    if not node.dtype.is_integer or depth > _DEEP:
        return NOTHING
    if name == "iota":  # of a few bits it may wrap around
        return (0, None) if node.dtype.itemsize >= 4 else NOTHING
    if name == "full":
        value = node.attrs["value"]
        return (value, value) if isinstance(value, int) else NOTHING
    if name == "const":
        numbers = node.attrs["value"].array
        return (int(numbers.min()), int(numbers.max())) if 0 < numbers.size <= _FEW else NOTHING
    if name in _SOME:
        return limits(node.inputs[0], depth + 1)
    rule = _RULES.get(name)
    if rule is None:
        return NOTHING
    return rule(node, [limits(x, depth + 1) for x in node.inputs])


def _cast(node: Node, found: list[Limits]) -> Limits:
    (x,) = node.inputs
    wider = node.dtype.kind == "int" and x.dtype.itemsize < node.dtype.itemsize
    return found[0] if wider else _held(node, found[0])


def _clamp(node: Node, found: list[Limits]) -> Limits:
    """Where the bounds cross, the upper one is what counts."""
    _, (low, _), (other, high) = found
    return _least(low, other), high


def _where(node: Node, found: list[Limits]) -> Limits:
    """Of where(x < c, a, x), x is chosen only where it is c or more."""
    condition, _, other = node.inputs
    _, chosen, rest = found
    if condition.op.name != "lt" or condition.inputs[0] is not other:
        return _either(chosen, rest)
    low, high = limits(condition.inputs[1])
    if rest[0] is not None and high is not None and rest[0] >= high:
        return rest
    return _either(chosen, (_greater(rest[0], low), rest[1]))


def _maximum(node: Node, found: list[Limits]) -> Limits:
    (a, b), (c, d) = found
    return _greater(a, c), None if b is None or d is None else max(b, d)


def _minimum(node: Node, found: list[Limits]) -> Limits:
    (a, b), (c, d) = found
    return _least(a, c), d if b is None else b if d is None else min(b, d)


def _add(node: Node, found: list[Limits]) -> Limits:
    (a, b), (c, d) = found
    if a is None or b is None or c is None or d is None:
        return NOTHING
    return _held(node, (a + c, b + d))


def _mul(node: Node, found: list[Limits]) -> Limits:
    (a, b), (c, d) = found
    if a is None or b is None or c is None or d is None:
        return NOTHING
    ends = a * c, a * d, b * c, b * d
    return _held(node, (min(ends), max(ends)))


_RULES = {
    "cast": _cast, "clamp": _clamp, "where": _where, "maximum": _maximum, "minimum": _minimum,
    "add": _add, "mul": _mul,
}


def _held(node: Node, found: Limits) -> Limits:
    """Those limits, if the node's dtype holds all that is between them: nothing wraps around."""
    low, high = found
    bits = node.dtype.itemsize * 8
    least, most = (0, (1 << bits) - 1) if node.dtype.kind == "uint" else (
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    )
    fits = low is not None and high is not None and least <= low and high <= most
    return found if fits else NOTHING


def _either(a: Limits, b: Limits) -> Limits:
    return _least(a[0], b[0]), None if a[1] is None or b[1] is None else max(a[1], b[1])


def _least(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else min(a, b)


def _greater(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)
