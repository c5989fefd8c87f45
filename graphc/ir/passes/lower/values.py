"""The value of a graph node at a place: scalar code for one element of a fused body.

`Values.value(node, at)` follows operators down to the body's inputs, turning movement into
index arithmetic. Each operator is a generator that asks for the values it reads, so a long
chain needs no recursion. 16-bit floats are carried as f32 and rounded after every operator, as
the eager backend does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeAlias

from ... import dtypes
from ...dim import Dim, Size, mod, unwrap
from ...dtypes import DType
from ...graph import Node
from ...kernel import Literal
from ...record import record
from ...rounding import EXACT
from . import index_maps
from .body import Body, carrier, literal, literal_cast, zero
from .index_maps import Coordinate, Coordinates, coordinate_value, exact
from .limits import NOTHING, Limits, inside, limits
from .moves import MOVES, Condition, move, padded, updated_region
from .scope import Value, Writer
from .stretches import Along, holds_along


@record(eq=False, frozen=False)
class At:
    """A place: coordinates, and the conditions under which its memory may be touched."""

    coordinates: Coordinates
    mask: tuple[Condition, ...] = ()


Request: TypeAlias = tuple[Node, At]
Code: TypeAlias = Generator[Request, Value, Value]


class Values:
    """Writes the code of values of one stage; `bound` gives values that were made elsewhere
    (finished reductions, a contraction's accumulator) by node and flat index."""

    def __init__(self, body: Body, writer: Writer) -> None:
        self.body = body
        self.writer = writer
        self.bound: dict[Node, Callable[[At], Value | None]] = {}
        self.stretches: dict[str, Along] = {}  # by the variables of loops
        self.conditions: dict[Condition, None] = {}  # that were asked about
        self._places: dict[tuple[Coordinates, tuple[Condition, ...]], At] = {}

    def goes_along(self, size: Size, root: Size) -> None:
        """A loop's variable goes from 0 to below `size`."""
        if isinstance(size, int) and isinstance(root, Dim):
            self.stretches[root.text()] = Along(size)

    def at(self, coordinates: Coordinates, mask: tuple[Condition, ...] = ()) -> At:
        """The one At for these coordinates."""
        key = (coordinates, mask)
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = At(coordinates, mask)
        return found

    def value(self, node: Node, at: At) -> Value:
        """The value of `node` at a place, carried as carrier(node.dtype)."""
        result = self._known(node, at)
        if result is not None:
            return result
        stack: list[tuple[Node, At, Code]] = [(node, at, self._code(node, at))]
        sent: Value | None = None
        while stack:
            current, place, code = stack[-1]
            try:
                asked = code.send(sent)  # type: ignore[arg-type]
            except StopIteration as stop:
                stack.pop()
                sent = stop.value
                self.writer.remember((current, place), stop.value)
                continue
            sent = self._known(*asked)
            if sent is None:
                stack.append((*asked, self._code(*asked)))
        if sent is None:
            raise ValueError(f"no value for {node}")
        return sent

    def _known(self, node: Node, at: At) -> Value | None:
        found: Value | None = self.writer.find((node, at))
        if found is None and node in self.bound:
            found = self.bound[node](at)
        return found

    def _code(self, node: Node, at: At) -> Code:
        buffer = self.body.buffers.get(node)
        if buffer is not None:
            return self._load(node, at, buffer)
        if node.op.family == "cast":
            return self._cast(node, at)
        if node.op.elementwise:
            return self._elementwise(node, at)
        handler = INLINE.get(node.op.name)
        if handler is None:
            raise NotImplementedError(f"no kernel code for operator {node.op.name}")
        return handler(self, node, at)

    # --- leaves -------------------------------------------------------------------------------

    def flat(self, node: Node, at: At) -> Size:
        """The element offset of a place in `node` as a contiguous tensor."""
        return index_maps.linear_index(at.coordinates, self.body.shape(node))

    def _load(self, node: Node, at: At, buffer: str, other: Value | None = None) -> Code:
        mask = self.mask(at.mask)
        if mask is not None and other is None:
            other = zero(node.dtype)
        loaded = self.writer.load(
            buffer, self.flat(node, at), node.dtype, mask, other if mask is not None else None
        )
        return self.widened(loaded)
        yield  # a generator, like every other operator

    def widened(self, value: Value) -> Value:
        """A loaded value in its carrier."""
        wide = carrier(value.dtype)
        if wide is value.dtype:
            return value
        if isinstance(value, Literal):
            return Literal(value.value, wide)
        result = self.writer.apply("cast", wide, value)
        if self.writer.find(("narrow", result)) is None:
            self.writer.remember(("narrow", result), value)
        return result

    def rounded(self, value: Value, dtype: DType) -> Value:
        """A carried value rounded to a 16-bit float dtype (unchanged for other dtypes)."""
        if carrier(dtype) is dtype:
            return value
        return self.widened(self.stored(value, dtype))

    def stored(self, value: Value, dtype: DType) -> Value:
        """A carried value as it is stored in memory of `dtype`."""
        if value.dtype is dtype:
            return value
        if isinstance(value, Literal):
            return Literal(value.value, dtype)
        narrow: Value | None = self.writer.find(("narrow", value))
        if narrow is not None and narrow.dtype is dtype:
            return narrow
        return self.writer.apply("cast", dtype, value)

    def mask(self, conditions: tuple[Condition, ...]) -> Value | None:
        """The conjunction of conditions as a bool, None where there are none."""
        result: Value | None = None
        for condition in conditions:
            for test in self._tests(condition):
                result = test if result is None else self.both(result, test)
        return result

    def both(self, a: Value, b: Value) -> Value:
        """a and b."""
        return self.writer.apply("logical_and", dtypes.bool_, a, b)

    def undecided(self, conditions: tuple[Condition, ...]) -> tuple[Condition, ...] | None:
        """The conditions that do not hold wherever the open loops come; None if one never does."""
        found: list[Condition] = []
        for condition in conditions:
            self.conditions[condition] = None
            holds = holds_along(condition, self.stretches)
            if holds is False:
                return None
            if holds is None:
                found.append(condition)
        return tuple(found)

    def _tests(self, condition: Condition) -> list[Value]:
        found = self.writer.find(condition)
        if found is not None:
            return [found]
        tests: list[Value] = []
        index = self.writer.index_value(condition.position)
        if condition.low is not None:
            low = self.writer.index_value(condition.low)
            tests.append(self.writer.apply("ge", dtypes.bool_, index, low))
        high = self.writer.index_value(condition.high)
        tests.append(self.writer.apply("lt", dtypes.bool_, index, high))
        if condition.step != 1:
            rest = self.writer.index_value(
                unwrap(mod(condition.position - condition.phase, condition.step))
            )
            tests.append(self.writer.apply("eq", dtypes.bool_, rest, Literal(0, dtypes.i64)))
        result = tests[0]
        for test in tests[1:]:
            result = self.both(result, test)
        self.writer.remember(condition, result)
        return [result]

    # --- elementwise ----------------------------------------------------------------------------

    def operand(self, source: Node, node: Node, at: At) -> Request:
        """Where an implicitly broadcast operand is read."""
        shape, out = self.body.shape(source), self.body.shape(node)
        if shape == out:
            return source, at
        return source, self.at(index_maps.broadcast(at.coordinates, shape), at.mask)

    def _elementwise(self, node: Node, at: At) -> Code:
        args: list[Value] = []
        for source in node.inputs:
            args.append((yield self.operand(source, node, at)))
        if node.op.divides and node.dtype.is_integer:
            self._check_divisor(args[1], at)
        result = self.writer.apply(node.op.name, carrier(node.dtype), *args)
        return result if node.op.rounding is EXACT else self.rounded(result, node.dtype)

    def _check_divisor(self, divisor: Value, at: At) -> None:
        zero_ = Literal(0, divisor.dtype)
        if isinstance(divisor, Literal) and divisor.value != 0:
            return
        ok = self.writer.apply("ne", dtypes.bool_, divisor, zero_)
        self.writer.check(
            self.unless_masked(ok, at), "RuntimeError: ZeroDivisionError", Literal(0, dtypes.i64)
        )

    def unless_masked(self, ok: Value, at: At) -> Value:
        """`ok`, or true where the place's memory may not be touched."""
        mask = self.mask(at.mask)
        if mask is None:
            return ok
        outside = self.writer.apply("logical_not", dtypes.bool_, mask)
        return self.writer.apply("logical_or", dtypes.bool_, outside, ok)

    def _cast(self, node: Node, at: At) -> Code:
        value = yield node.inputs[0], at
        wide = carrier(node.dtype)
        if isinstance(value, Literal):
            converted = literal_cast(value, wide)
            if converted is not None and wide is node.dtype:
                return converted
        if value.dtype is not wide:
            value = self.writer.apply("cast", wide, value)
        if node.inputs[0].dtype is node.dtype:
            return value
        return self.rounded(value, node.dtype)

    # --- creation and movement --------------------------------------------------------------------

    def _full(self, node: Node, at: At) -> Code:
        value = node.attrs["value"]
        if isinstance(value, (int, float, bool)):
            return literal(value, node.dtype)
        index = self.writer.index_value(self.body.size(value))
        if node.dtype is dtypes.i64:
            return index
        return self.rounded(self.writer.apply("cast", carrier(node.dtype), index), node.dtype)
        yield

    def _const(self, node: Node, at: At) -> Code:
        return literal(node.attrs["value"].array.reshape(-1)[0], node.dtype)
        yield

    def _iota(self, node: Node, at: At) -> Code:
        index = self.writer.index_value(coordinate_value(at.coordinates[node.attrs["dim"]]))
        if node.dtype is dtypes.i64:
            return index
        if isinstance(index, Literal):
            return literal(index.value, node.dtype)
        return self.rounded(self.writer.apply("cast", carrier(node.dtype), index), node.dtype)
        yield

    def _move(self, node: Node, at: At) -> Code:
        coordinates = move(self.body, node, at.coordinates)
        return (yield node.inputs[0], self.at(coordinates, at.mask))

    def _pad(self, node: Node, at: At) -> Code:
        (x,) = node.inputs
        coordinates, conditions = padded(self.body, node, at.coordinates)
        outside = literal(node.attrs["value"], node.dtype)
        open_ = self.undecided(conditions)
        if open_ is None:
            return outside
        if not open_:
            return (yield x, self.at(coordinates, at.mask))
        place = self.at(coordinates, at.mask + open_)
        buffer = self.body.buffers.get(x)
        if buffer is not None and not at.mask:
            # a masked load gives the padding itself
            other = Literal(outside.value, node.dtype)
            code = self._load(x, place, buffer, other)
            return (yield from code)
        value = yield x, place
        inside = self.mask(open_)
        if inside is None:
            raise ValueError("padding without a condition")
        return self.writer.apply("where", carrier(node.dtype), inside, value, outside)

    def _concat(self, node: Node, at: At) -> Code:
        dim: int = node.attrs["dim"]
        position = coordinate_value(at.coordinates[dim])
        start: Size = 0
        result: Value | None = None
        for x in node.inputs:
            size = self.body.shape(x)[dim]
            if size == 0:
                continue
            stop = unwrap(start + size)
            open_ = self.undecided((Condition(position, start, stop),))
            place = index_maps.part(at.coordinates, dim, start, size)
            if place is None:
                alone = exact(unwrap(position - start), size)
                place = (*at.coordinates[:dim], alone, *at.coordinates[dim + 1 :])
            start = stop
            if open_ is None:
                continue
            value = yield x, self.at(place, (*at.mask, *open_))
            inside = self.mask(open_)
            if result is None or inside is None:
                result = value
            else:
                result = self.writer.apply("where", carrier(node.dtype), inside, value, result)
        if result is not None:
            return result
        if start == 0:
            raise ValueError("concat of empty tensors")
        return literal(0, node.dtype)  # no loop comes here: it is under a mask

    def _slice_update(self, node: Node, at: At) -> Code:
        x, source = node.inputs
        coordinates, conditions = updated_region(self.body, node, at.coordinates)
        open_ = self.undecided(conditions)
        if open_ is None:
            return (yield x, at)
        new = yield source, self.at(coordinates, at.mask + open_)
        inside = self.mask(open_)
        if inside is None:
            return new
        old = yield x, at
        return self.writer.apply("where", carrier(node.dtype), inside, new, old)

    # --- indexing ---------------------------------------------------------------------------------

    def index_coordinate(
        self, index: Value, size: Size, dim: int, at: At, wrap: bool, subject: str = "",
        known: Limits = NOTHING,
    ) -> Coordinate:
        """A checked data-dependent coordinate along a dim of `size`."""
        checked = self.checked_index(index, size, dim, at, wrap, subject, known)
        if isinstance(checked, Literal):
            return exact(int(checked.value), size)
        return exact(Dim.var(checked.name), size)

    def checked_index(
        self, index: Value, size: Size, dim: int, at: At, wrap: bool, subject: str = "",
        known: Limits = NOTHING,
    ) -> Value:
        """The index, made non-negative if `wrap`, after a Check that it is in [0, size).
        `subject`: what the index is to the user, if not an index; or the error, class and all.
        `known`: what it is at least and at most. Where it must be in range it is held there, which
        changes nothing, and which a kernel's verifier sees."""
        writer = self.writer
        if isinstance(size, int) and inside(known, size):
            return writer.held(index, size)
        positive = known[0] is not None and known[0] >= 0
        key = ("checked", index, size, dim, at.mask, wrap)
        found: Value | None = writer.find(key)
        if found is not None:
            return found
        limit, zero_ = writer.index_value(size), Literal(0, dtypes.i64)
        result = self.wrapped(index, limit) if wrap and not positive else index
        ok = writer.apply("lt", dtypes.bool_, result, limit) if positive else (
            self.in_range(result, zero_, limit)
        )
        kind = "IndexError" if wrap else "OutOfRange"
        size_text = f" with size {size}" if isinstance(size, int) else ""
        message = f"{kind}: index {{value}} is out of bounds for dimension {dim}{size_text}"
        if ": " in subject:  # all there is to say
            message = subject
        elif subject:
            message = f"IndexError: {subject} {{value}} is out of bounds."
        writer.check(self.unless_masked(ok, at), message, index)
        writer.remember(key, result)
        return result

    def wrapped(self, index: Value, limit: Value) -> Value:
        """A negative index counted from the end."""
        writer = self.writer
        negative = writer.apply("lt", dtypes.bool_, index, Literal(0, dtypes.i64))
        moved = writer.apply("add", dtypes.i64, index, limit)
        return writer.apply("where", dtypes.i64, negative, moved, index)

    def in_range(self, index: Value, low: Value, high: Value) -> Value:
        """low <= index < high."""
        writer = self.writer
        return writer.apply(
            "logical_and", dtypes.bool_, writer.apply("ge", dtypes.bool_, index, low),
            writer.apply("lt", dtypes.bool_, index, high),
        )

    def _gather(self, node: Node, at: At) -> Code:
        x, index_node = node.inputs
        dim: int = node.attrs["dim"]
        index = yield index_node, at
        shape = self.body.shape(x)
        place = [
            c if have == want else exact(coordinate_value(c), want)
            for c, have, want in zip(at.coordinates, self.body.shape(node), shape, strict=True)
        ]
        subject = node.attrs.get("subject", "")
        place[dim] = self.index_coordinate(
            index, shape[dim], dim, at, False, subject, limits(index_node)
        )
        return (yield x, self.at(tuple(place), at.mask))

    def _index(self, node: Node, at: At) -> Code:
        x, *indices = node.inputs
        dim: int = node.attrs["dim"]
        subject = node.attrs.get("subject", "")
        shape = self.body.shape(x)
        rank = len(self.body.shape(node)) - (len(shape) - len(indices))  # of the indices together
        where = at.coordinates[dim : dim + rank]
        found = []
        for i, index_node in enumerate(indices):
            place = index_maps.broadcast(where, self.body.shape(index_node))
            index = yield index_node, self.at(place, at.mask)
            found.append(self.index_coordinate(
                index, shape[dim + i], dim + i, at, True, subject, limits(index_node)
            ))
        coordinates = (*at.coordinates[:dim], *found, *at.coordinates[dim + rank :])
        return (yield x, self.at(coordinates, at.mask))


# what moves, makes or looks up elements on the way; elementwise operators are computed, too
INLINE: dict[str, Callable[[Values, Node, At], Code]] = {
    "full": Values._full,
    "const": Values._const,
    "iota": Values._iota,
    **dict.fromkeys(MOVES, Values._move),
    "pad": Values._pad,
    "concat": Values._concat,
    "slice_update": Values._slice_update,
    "gather": Values._gather,
    "index": Values._index,
}
