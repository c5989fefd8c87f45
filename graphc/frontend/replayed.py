"""Functions that eager mode has seen before: what they came to is done again, without their Python.

    @replayed
    def softmax(input, dim=None, ...): ...

Which operators a function applies follows from the types of its tensors and from its other
arguments, if it looks at no tensor's value, writes to none, and reads no state: such a one may be
decorated. Its first call with arguments of a kind is watched; later ones parse, promote, infer and
check nothing: they apply the same operators, whose signatures are known, too; on many numbers as
one loop, if they go element by element (`Eager.chain`), and as one node of history. Where there are
other devices, that is so of calls whose tensors a user has placed on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from graphc.ir.dtypes import DType, from_numpy
from graphc.ir.op import Attrs, Op
from graphc.ir.types import TensorType

from .context import local
from .eager import Signature, _wrap, apply_known
from .history import requires_grad
from .linked import Linked, leaves_dims, linked, links_of
from .near import is_near
from .nodes import OpNode, class_of
from .placement import ON_CPU
from .promote import Defaults
from .replayed_steps import (
    DETACH,
    Arrays,
    Detached,
    Step,
    prepared,
    without_detached,
    without_known,
)
from .replayed_views import Viewed, after_views
from .result_layouts import lies_in_rows
from .sequenced import Sequenced, alone, sequenced
from .storage import LOOSE, THERE
from .tensor import Parameter, Tensor
from .values import Eager
from .wrapped import wraps

F = TypeVar("F", bound=Callable[..., Any])
_LIMIT = 10_000
_MOST_STEPS = 512
_MOST_LINKS = 24  # of what is made one loop
_MOST_KEPT = 1 << 16  # numbers of a constant that stays for later calls
_TENSORS = frozenset({Tensor, Parameter})
_PLAIN = frozenset({int, bool, str, type(None), DType})
UNKNOWN = object()  # instead of a key: the function has to see to such arguments


class Replay:
    """What a call came to: `steps` on the tensors among its arguments, and its results."""

    __slots__ = (
        "alone", "arrays", "in_rows", "linked", "loose", "make", "native", "owned", "results",
        "sequenced", "single", "steps", "viewed", "whole",
    )

    def __init__(
        self, steps: list[Step], results: list[int], make: Callable[..., Any] | None,
        owned: bool, tensors: int, recorded: bool, loose: Sequence[bool], in_rows: bool,
    ) -> None:
        """`make`: of the results, where there are several; `owned`: they are nobody's views;
        `recorded`: a gradient may come of it; `loose`: which results are (placement.py);
        `in_rows`: of row-major tensors alone."""
        self.steps, self.results, self.make, self.owned = steps, results, make, owned
        self.in_rows = in_rows
        self.loose = loose if any(loose) else ()
        self.whole: Any = None  # all of the steps as a function of arrays
        self.linked: Linked | None = None  # all of the steps as one of the history
        self.sequenced: Sequenced | None = None  # the same of views and products, too
        self.viewed: Viewed | None = None  # views, and the rest as one function or step
        # without history, what is between the tensors that are given and the results is arrays
        self.arrays = None if recorded else Arrays.of(steps, results, tensors, owned, in_rows)
        self.native: Callable[[list[Tensor]], Tensor] | None = None  # the same by one call
        # one operator on the tensors' arrays in their order, which has one result
        self.single = None
        if self.arrays is not None and make is None and not self.loose:
            self.single = self.arrays.single
        first = steps[0] if len(steps) == 1 else None
        # one operator on the tensors in their order, whose one result it is
        self.alone = first is not None and make is None and results == [tensors] and (
            first.sources == tuple(range(tensors)) and not owned
            and len(first.signature.results) == 1
        )

    def _install(self, native: Callable[[list[Tensor]], Tensor]) -> None:
        if self.make is None and not self.loose and self.whole is None and self.viewed is None:
            self.native = native

    def run(self, tensors: list[Tensor]) -> Any:
        """The same on other tensors."""
        found = self._run(tensors)
        if self.loose:
            for result, loose in zip(
                (found,) if self.make is None else found, self.loose, strict=True
            ):
                result._graphc_storage.away |= LOOSE * loose
        return found

    def _run(self, tensors: list[Tensor]) -> Any:
        if self.whole is not None:
            array = self.whole([t._graphc_array for t in tensors])
            if array is not None:
                return _wrap(array)
        if self.viewed is not None:
            result = self.viewed.run(tensors)
            if result is not None:
                return result
        if self.linked is not None and not local.saved_hooks:  # they see what each step saves
            result = self.linked.recorded(tensors)
            if result is not None:
                return result
        if self.sequenced is not None and not local.saved_hooks:
            parts = self.sequenced.run(tensors)
            if parts is not None:
                return parts[0] if self.make is None else self.make(parts)
        if self.arrays is not None:
            found = self.arrays.run(tensors)
            return found[0] if self.make is None else self.make(found)
        if self.alone:
            step = self.steps[0]
            out = apply_known(step.op, tuple(tensors), step.attrs, step.signature)
            if step.kind is not None and out._graphc_node is not None:
                out._graphc_node.__class__ = step.kind
            return out
        values: list[Any] = tensors
        for step in self.steps:
            if step.op is DETACH:
                values.append(values[step.sources[0]].detach())
                continue
            inputs = tuple([values[s] if type(s) is int else s for s in step.sources])
            out = apply_known(step.op, inputs, step.attrs, step.signature)
            outs = out if type(out) is tuple else (out,)
            if step.kind is not None and outs[0]._graphc_node is not None:
                outs[0]._graphc_node.__class__ = step.kind
            values += outs
        found = [values[i] for i in self.results]
        if self.owned:
            for result in found:
                result._base, result._graphc_chain, result._graphc_no_grad_view = None, (), False
                result._graphc_several = None
        return found[0] if self.make is None else self.make(found)


class Watch:
    """Stands where operators are counted while a call is watched."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self.values: list[Tensor] = list(tensors)
        self.tensors = len(tensors)
        self.steps: list[Step] = []
        self.made: list[tuple[Step, Tensor]] = []
        self.fails = False
        self.in_rows = False  # whether what it comes to is that of row-major tensors alone
        self.grad = local.grad

    def note(self, op: Op, attrs: Attrs, signature: Signature) -> None:
        """An operator begins."""

    def demand(self, what: str) -> None:
        """Python asks for a value."""
        self.fails = True

    def looked(self) -> None:
        """It is asked how a tensor lies in memory."""
        self.in_rows = True

    def wrote(self) -> None:
        """A tensor is written to."""
        self.fails = True

    def warned(self) -> None:
        """The user is warned of the call."""
        self.fails = True

    def detached(self, x: Tensor, result: Tensor) -> None:
        """`result` is x without its history."""
        number = next((i for i, v in enumerate(self.values) if v is x), None)
        if number is None:
            self.fails = True
            return
        self.steps.append(Detached(number))
        self.values.append(result)

    def gave(
        self, op: Op, inputs: tuple[Tensor, ...], attrs: Attrs, signature: Signature,
        results: tuple[Tensor, ...],
    ) -> None:
        """An operator has run."""
        if op.impure or "graphs" in attrs or local.grad is not self.grad:
            self.fails = True
        sources: list[Any] = []
        for x in inputs:
            number = next((i for i, v in enumerate(self.values) if v is x), None)
            if number is None:
                if x._graphc_node is not None or not _never_changes(x._graphc_array):
                    self.fails = True  # none of promote.operand's, nor of dispatch.fixed()'s
                sources.append(x)
            else:
                sources.append(number)
        step = Step(op, attrs, signature, tuple(sources))
        step.copies = op.view and not results[0]._graphc_chain
        self.steps.append(step)
        self.values.extend(results)
        self.made.append((step, results[0]))

    def replay(
        self, tensors: int, result: Any, by_any_name: bool = False
    ) -> Replay | None:
        """What the call came to; None: that is not known. `by_any_name`: see sequenced.py."""
        if self.fails or not self.steps or len(self.steps) > _MOST_STEPS:
            return None
        several = isinstance(result, tuple)
        make: Any = None
        if several:
            make = getattr(type(result), "_make", type(result))
        parts = list(result) if several else [result]
        numbers = []
        for part in parts:
            found = [i for i, v in enumerate(self.values) if v is part]
            if (
                not found
                or found[0] < tensors
                or part._graphc_requires_grad
                or (
                    part._graphc_storage.away & THERE
                    if Eager.elsewhere is not None
                    else part._graphc_storage.away
                )
            ):
                return None
            numbers.append(found[0])
        for step, made in self.made:
            node = made._graphc_node
            if node is None or type(node) is class_of(step.op):
                continue
            if not isinstance(node, OpNode) or node.op is not step.op:
                return None
            step.kind = type(node)
        views = any(step.op.view for step in self.steps)
        owned = views and all(part._base is None for part in parts)
        if owned and _may_share(self.steps, numbers, tensors, False):
            self.in_rows = True  # as a row-major tensor's it may be known to be a copy
            if _may_share(self.steps, numbers, tensors, True):
                return None
        if views and not owned and any(part._base is None for part in parts):
            return None
        recorded = self.grad and any(requires_grad(t) for t in self.values)
        loose = [bool(part._graphc_storage.away) for part in parts]
        steps = self.steps
        if not recorded:
            steps, numbers = without_detached(steps, numbers, tensors)
            if not steps:
                return None
        replay = Replay(steps, numbers, make, owned, tensors, recorded, loose, self.in_rows)
        if replay.arrays is not None and len(steps) == len(self.steps):
            known = without_known(steps, numbers, tensors, self.values)
            replay.arrays = Arrays.of(*known, tensors, owned, self.in_rows)
            plain = replay.arrays is not None and make is None and not replay.loose
            replay.single = replay.arrays.single if plain else None  # type: ignore[union-attr]
        whole: Any = None
        if make is None and not any(step.op.view for step in steps):
            given = self.values[:tensors]
            whole = _whole(steps, numbers, given, recorded)
            if not recorded:
                replay.whole = whole
            elif whole is not None and (
                hasattr(whole, "of_few") or not any(map(leaves_dims, steps))
            ):
                replay.linked = linked(steps, given, whole, self.made)
        if make is None and whole is None and len(steps) == len(self.steps) and (
            numbers == [len(self.values) - 1]
        ):
            loop = after_views(steps, self.values, tensors, recorded, self.made, _whole)
            if isinstance(loop, Viewed):
                replay.viewed = loop
            elif isinstance(loop, Linked):
                replay.linked = loop
            else:
                replay.whole = loop
        if recorded and replay.linked is None and replay.viewed is None:
            replay.sequenced = sequenced(
                steps, numbers, self.values, tensors, self.made, owned, self.in_rows,
                by_any_name,
            ) or alone(steps, numbers, self.values, tensors)
        if replay.arrays is not None:
            replay.arrays.installed = replay._install
        return replay

    def whole_in_place(self, result: Tensor) -> Any:
        """What the call came to, written to the memory of the first tensor; None: not as one
        function."""
        first, given = self.values[0], self.tensors
        if self.fails or not self.steps or len(self.steps) > _MOST_STEPS or any(
            step.op.view for step in self.steps
        ) or result is not self.values[-1] or result._graphc_type != first._graphc_type:
            return None
        return _whole(self.steps, [len(self.values) - 1], self.values[:given], False, True)


def _never_changes(array: Any) -> bool:
    flags = array.flags
    return not flags.writeable and (
        not array.ndim or (bool(flags.owndata) and array.size <= _MOST_KEPT)
    )


def _may_share(steps: list[Step], results: list[int], tensors: int, in_rows: bool) -> bool:
    """Whether a result is a view of a given tensor, or a copy: as that lies in memory. `in_rows`:
    of row-major tensors alone."""
    owner = list(range(tensors))
    for step in steps:
        source = step.sources[0] if step.op.view and not (in_rows and step.copies) else None
        if type(source) is int:
            owner.append(owner[source])
        else:
            owner += [tensors] * len(step.signature.results)
    return any(owner[i] < tensors for i in results)


def _whole(
    steps: list[Step], results: list[int], tensors: list[Tensor], recorded: bool,
    in_place: bool = False,
) -> Any:
    """The steps as one function of the tensors' arrays, the first of which it writes to, if
    `in_place`; None: they are better done one by one. `recorded`: a gradient may come of it."""
    if Eager.chain is None or not 2 - in_place <= len(steps) <= _MOST_LINKS or (
        results != [len(tensors) + len(steps) - 1]
        or any(step.op is DETACH or len(step.signature.results) != 1 for step in steps)
    ):
        return None
    types = [TensorType(from_numpy(t._graphc_array.dtype), t._graphc_array.shape) for t in tensors]
    constants, links = links_of(steps, len(tensors))
    return Eager.chain(types, [c._graphc_array for c in constants], links, in_place, recorded)


def key_of(function: Any, args: tuple[Any, ...], kwargs: Any, tensors: list[Tensor]) -> Any:
    """What tells such a call from others; the tensors among its arguments are put into a list."""
    parts: list[Any] = [function, Defaults.dtype, local.grad]
    for value in (*args, *kwargs, *kwargs.values()) if kwargs else args:
        kind = type(value)
        if kind in _TENSORS:
            if value._graphc_trace is not None:
                return UNKNOWN
            array = value._graphc_array
            parts += (
                array.dtype,
                array.shape,
                (
                    value._graphc_node is not None
                    or value._graphc_requires_grad
                    or value._base is not None
                )
                and requires_grad(value),
            )
            tensors.append(value)
        elif kind in _PLAIN:
            parts += (kind, value)
        elif kind is float:
            parts.append(value.hex())
        elif kind is tuple or kind is list:
            parts += (kind, len(value))
            for item in value:
                if type(item) is int:
                    parts.append(item)
                elif type(item) in _TENSORS and item._graphc_trace is None:
                    array = item._graphc_array
                    parts += (
                        array.dtype,
                        array.shape,
                        (
                            item._graphc_node is not None
                            or item._graphc_requires_grad
                            or item._base is not None
                        )
                        and requires_grad(item),
                    )
                    tensors.append(item)
                else:
                    return UNKNOWN
        else:
            return UNKNOWN
    count = len(tensors)
    if count > 1 and (tensors[0] is tensors[1] if count == 2 else _repeats(tensors)):
        # which are the same: a call that is watched does not say which it reads
        ids = list(map(id, tensors))
        parts.append(tuple(map(ids.index, ids)))
    return tuple(parts)


def _repeats(tensors: list[Tensor]) -> bool:
    """Whether one of three or more tensors is there twice."""
    if len(tensors) == 3:
        a, b, c = tensors
        return a is b or b is c or a is c
    return len(set(map(id, tensors))) < len(tensors)


def _may_be_here(args: tuple[Any, ...]) -> bool:
    """Whether a call may be of the CPU alone, though there are other devices: of tensors there, or
    of none, where it makes a user's."""
    if not args or local.place is not None or local.making not in (None, ON_CPU):
        return False
    first = args[0]
    return type(first) not in _TENSORS or (first._graphc_trace is None and is_near(first))


_known: dict[Any, Replay | None] = {}


def by_any_name(function: F) -> F:
    """Of a replayed function of several results: nobody looks at what made these but the first."""
    function.__dict__["by_any_name"] = True
    return function


def replayed(function: F) -> F:
    """A function whose operators follow from the types of its tensors and its other arguments."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if (
            local.trace is not None or local.counted is not None or Eager.prepare is None
            or local.autocast is not None
            or (Eager.elsewhere is not None and not _may_be_here(args))
        ):
            return function(*args, **kwargs)
        tensors: list[Tensor] = []
        key = key_of(function, args, kwargs, tensors)
        if key is UNKNOWN:
            return function(*args, **kwargs)
        if Eager.elsewhere is not None:
            if (local.making is None) is not bool(tensors) or not all(map(is_near, tensors)):
                return function(*args, **kwargs)
            key = key, "beside others"
        known = _known.get(key, UNKNOWN)
        if known is None:
            return function(*args, **kwargs)
        if known is not UNKNOWN:
            if known.in_rows and not _lie_in_rows(tensors):  # type: ignore[attr-defined]
                return function(*args, **kwargs)
            native = known.native  # type: ignore[attr-defined]
            if native is not None:
                return native(tensors)
            step = known.single  # type: ignore[attr-defined]
            if step is None:
                return known.run(tensors)  # type: ignore[attr-defined]
            ready = step.signature.ready or prepared(step)
            return _wrap(ready(*[t._graphc_array for t in tensors]))
        return _watched(function, args, kwargs, tensors, key)

    return cast(F, wrapper)


def _lie_in_rows(tensors: list[Tensor]) -> bool:
    return all(lies_in_rows(t._graphc_array) for t in tensors)


def _watched(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor], key: Any
) -> Any:
    lie_in_rows = _lie_in_rows(tensors)
    result, watch = watched(function, args, kwargs, tensors)
    replay = watch.replay(len(tensors), result, "by_any_name" in function.__dict__)
    if watch.in_rows and not lie_in_rows:
        return result  # of others of the kind it is not known yet
    if len(_known) >= _LIMIT:
        _known.clear()
    _known[key] = replay
    return result


def watched(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]
) -> tuple[Any, Watch]:
    """A call whose operators are noted, and the notes."""
    watch = local.counted = Watch(tensors)  # type: ignore[assignment]
    try:
        return function(*args, **kwargs), watch
    finally:
        local.counted = None
