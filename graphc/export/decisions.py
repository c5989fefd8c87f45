"""What Python decided of free sizes as numbers: int(n * 0.3) is a number of the example, and no
guard of a graph says so, where n // 3 is a size."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from graphc.export.dynamic import DynamicShapes
from graphc.export.dynamic_shapes import Range
from graphc.export.errors import ExportError
from graphc.frontend.number_expr import NumberExpr, NumberGuard, dims_of, spelled
from graphc.ir.dim import Size, unwrap
from graphc.ir.dim_bounds import decided

_MOST = 4096  # sizes at which it is seen whether a decision stays the same


def settle(guards: Iterable[NumberGuard], shapes: DynamicShapes) -> bool:
    """Let sizes that have no name be fixed where a decision hangs on them: True where that changes
    them. Raises ExportError for those that are to be free."""
    changed = False
    for guard in guards:
        names = sorted(dims_of(guard.expression) & set(shapes.ranges))
        if not names or _stays(guard.expression, names, shapes.ranges):
            continue
        if all(shapes.unnamed.get(name) == "AUTO" for name in names):
            for name in names:
                shapes.dropped(name)
            changed = True
            continue
        raise ExportError(
            f"the model takes {guard.expression.value!r}, computed of the free size "
            f"{' and '.join(map(repr, names))}, as a number{_at(guard)}: for other sizes it is "
            "another one, and the program would go on with this. Cure: compute it with integers "
            f"(//, %, min, max), or drop {names[0]!r} from dynamic_shapes"
        )
    return changed


def _stays(expression: NumberExpr, names: list[str], ranges: Mapping[str, Range]) -> bool:
    """Whether the decision is the same at all sizes that there may be."""
    if expression.lifted:
        return False
    if _known(expression) is not None:
        return True
    spans = []
    count = 1
    for name in names:
        most = ranges[name].most
        if most is None:
            return False
        spans.append(range(max(ranges[name].least, 2), most + 1))
        count *= len(spans[-1])
    if count > _MOST:
        return False
    wanted = spelled(expression.value)
    try:
        return all(
            spelled(expression.evaluate({}, dict(zip(names, sizes, strict=True)))) == wanted
            for sizes in itertools.product(*spans)
        )
    except (ArithmeticError, ValueError, KeyError):
        return False


def _known(expression: NumberExpr) -> bool | None:
    """Whether a comparison holds at all sizes of 2 and more, or at none; None: neither."""
    if expression.op not in ("eq", "le", "lt"):
        return None
    left, right = map(_as_size, expression.args)
    if left is None or right is None:
        return None
    if expression.op == "lt":
        more = decided("le", right, left)
        return None if more is None else not more
    return decided(expression.op, left, right)


def _as_size(expression: NumberExpr) -> Size | None:
    """A number as what sizes are computed of, without rounding; None for others."""
    value: Any = expression.args[0] if expression.args else None
    if expression.op == "dim":
        return unwrap(value)
    if expression.op == "constant":
        whole = type(value) is int or (type(value) is float and value.is_integer())
        return int(value) if whole else None
    parts = [_as_size(each) for each in expression.args]
    if expression.op not in _OPERATORS or None in parts:
        return None
    return _OPERATORS[expression.op](*parts)


_OPERATORS: dict[str, Callable[..., Size]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg,
    "float": lambda x: x, "int": lambda x: x,
}


def _at(guard: NumberGuard) -> str:
    return f" ({guard.loc})" if guard.loc else ""
