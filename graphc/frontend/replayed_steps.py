"""The steps that a replayed function has come to (replayed.py), on arrays: what is between the
tensors that it is given and its results has no Tensor around it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from graphc.ir.op import Attrs, Op

from . import views
from .eager import Signature
from .nodes import OpNode
from .recalled import VIEW_OF
from .storage import Storage
from .straight_line import straight
from .tensor import Tensor, from_array
from .values import Eager

View = Callable[[Any], Any]  # of an array; None: it cannot be one
_new: Any = object.__new__


class Step:
    """One operator. Operands are numbers of values, or tensors that never change."""

    __slots__ = ("attrs", "copies", "kind", "op", "signature", "sources")

    def __init__(
        self, op: Op, attrs: Attrs, signature: Signature, sources: tuple[Any, ...]
    ) -> None:
        self.op, self.attrs, self.signature, self.sources = op, attrs, signature, sources
        self.kind: type[OpNode] | None = None  # of its nodes, where that is not the operator's
        self.copies = False  # of row-major tensors, what may be a view is a copy

    def on(self, sources: tuple[Any, ...]) -> Step:
        """The same of other values."""
        moved = Step(self.op, self.attrs, self.signature, sources)
        moved.kind, moved.copies = self.kind, self.copies
        return moved


class Detached(Step):
    """A tensor without its history."""

    __slots__ = ()

    def __init__(self, source: int) -> None:
        super().__init__(DETACH, {}, _ONE, (source,))


DETACH: Any = SimpleNamespace(name="detach", view=True)
_ONE: Any = SimpleNamespace(results=(None,))


def without_detached(
    steps: list[Step], numbers: list[int], tensors: int
) -> tuple[list[Step], list[int]]:
    """The same where there is no history, and the numbers of these results."""
    new = list(range(tensors))
    count, kept = tensors, []
    for step in steps:
        if type(step) is Detached:
            new.append(new[step.sources[0]])
            continue
        sources = tuple([new[s] if type(s) is int else s for s in step.sources])
        kept.append(step.on(sources))
        for _ in step.signature.results:
            new.append(count)
            count += 1
    return kept, [new[i] for i in numbers]


_FEW = 1024  # numbers of what is computed once, and stays for later calls


def without_known(
    steps: list[Step], numbers: list[int], tensors: int, values: list[Tensor]
) -> tuple[list[Step], list[int]]:
    """The same without the steps on nothing that is given (positions, a mask of a triangle), whose
    results stay; `values`: all of the first call."""
    new: list[Any] = list(range(tensors))  # of each value: its number now, or a tensor
    count, kept, at = tensors, [], tensors
    viewed = [step.sources[0] for step in steps if step.op.view]
    fixed = {*numbers, *[s for s in viewed if type(s) is int]}
    for step in steps:
        sources = tuple([new[s] if type(s) is int else s for s in step.sources])
        results = range(at, at + len(step.signature.results))
        at = results.stop
        if not (
            step.op.impure or step.op.view or any(type(s) is int for s in sources)
            or any(r in fixed or values[r]._graphc_array.size > _FEW for r in results)
        ):
            new += [_staying(values[r]) for r in results]
            continue
        kept.append(step.on(sources))
        new += range(count, count + len(results))
        count += len(results)
    return without_unused(kept, [new[i] for i in numbers], tensors)


def without_unused(
    steps: list[Step], numbers: list[int], tensors: int
) -> tuple[list[Step], list[int]]:
    """The same without the steps that no result hangs on."""
    used, at, kept = set(numbers), tensors + sum(len(s.signature.results) for s in steps), []
    for step in reversed(steps):
        results = range(at - len(step.signature.results), at)
        at = results.start
        if step.op.impure or not used.isdisjoint(results):
            used.update(s for s in step.sources if type(s) is int)
            kept.append((step, results))
    new, count, found = {i: i for i in range(tensors)}, tensors, []
    for step, results in reversed(kept):
        sources = tuple([new[s] if type(s) is int else s for s in step.sources])
        found.append(step.on(sources))
        for i in results:
            new[i] = count
            count += 1
    return found, [new[i] for i in numbers]


def _staying(value: Tensor) -> Tensor:
    array = value._graphc_array.copy("K")
    array.flags.writeable = False
    found = from_array(array)
    found._graphc_storage.away = value._graphc_storage.away
    return found


_SEVERAL = frozenset({"conv", "conv_input_grad", "logsumexp", "pad", "attention"})
_LOSSES = frozenset({"cross_entropy", "nll_loss"})  # which have, in their simplest form


def is_several(step: Step) -> bool:
    """Whether NumPy runs several functions for an operator, which has no native code of its own."""
    rank = len(step.signature.inputs[0].shape) if step.signature.inputs else 0
    if step.op.name in _LOSSES:
        smooth = step.attrs.get("label_smoothing")
        return rank != 2 or len(step.signature.inputs) > 2 or bool(smooth)
    return step.op.name in _SEVERAL or (
        step.op.name == "softmax" and step.attrs["dim"] != rank - 1
    )


_OFTEN = 30  # runs that take as long as the making of one function


class Arrays:
    """Steps on arrays, and the results as tensors."""

    __slots__ = (
        "_codes", "_results", "_runs", "_shared", "_straight", "installed", "single"
    )

    def __init__(
        self, codes: list[tuple[Step, View | None]], results: list[int], shared: bool
    ) -> None:
        """`codes`: each with what makes the view that it may be; `shared`: a result may be a view
        of memory that is made on the way."""
        self._results, self._shared = results, shared
        self._runs = 0
        # told of what gives the only result, once that is native code
        self.installed: Callable[[Callable[[list[Tensor]], Tensor]], None] | None = None
        self._straight: Callable[[list[Tensor]], list[Tensor]] | None = None
        self._codes = [
            (step, view, step.sources[0] if view else 0, _operands(step)) for step, view in codes
        ]
        step, view = codes[0]
        # one operator on all that is given, in order, which has one result
        simple = len(codes) == 1 and view is None and len(results) == 1 and (
            len(step.signature.results) == 1 and all(type(s) is int for s in step.sources)
            and step.sources == tuple(range(results[0])) and not is_several(step)
        )
        self.single = step if simple else None

    @classmethod
    def of(
        cls, steps: list[Step], results: list[int], tensors: int, owned: bool, in_rows: bool
    ) -> Arrays | None:
        """`in_rows`: of row-major tensors alone. None: a result is a view, and known as one."""
        owner = list(range(tensors))  # whose memory each value may be; of new ones: themselves
        codes: list[tuple[Step, View | None]] = []
        for step in steps:
            if not step.op.view or (step.copies and in_rows):
                owner += range(len(owner), len(owner) + len(step.signature.results))
                codes.append((step, None))
                continue
            source = step.sources[0]
            if type(source) is not int:
                return None
            owner.append(owner[source])
            codes.append((step, _view_of(step)))
        owners = [owner[i] for i in results]
        if min(owners) < tensors or len(set(owners)) < len(owners) or (
            owners != results and not owned
        ):
            return None
        return cls(codes, results, owners != results)

    def run(self, tensors: list[Tensor]) -> list[Tensor]:
        """The results."""
        if self._straight is not None:
            return self._straight(tensors)
        values: list[Any] = [t._graphc_array for t in tensors]
        memory = list(values) if self._shared else values
        for step, view, source, operands in self._codes:
            if view is not None:
                array = view(values[source])
                if array is not None:
                    values.append(array)
                    if memory is not values:
                        memory.append(memory[source])
                    continue
            out = (step.signature.ready or prepared(step))(*operands(values))
            made = out if type(out) is tuple else (out,)
            values += made
            if memory is not values:
                memory += made
        found = []
        for i in self._results:
            result: Tensor = _new(Tensor)
            result._graphc_array = values[i]
            result._graphc_storage = Storage(memory[i])
            found.append(result)
        self._runs += 1
        if self._runs == _OFTEN and self.single is None:
            codes = [(step, view) for step, view, _, _ in self._codes]
            for step, view in codes:
                if view is not None and step.signature.ready is None:
                    prepared(step)  # of what is no view in other memory
            if all(view or step.signature.ready is not None for step, view in codes):
                run = straight(codes, self._results, len(tensors), self._shared)
                self._straight = (
                    Eager.program(self._codes, self._results, run, self._install) or run
                )
        return found

    def _install(
        self, run: Callable[[list[Tensor]], list[Tensor]],
        alone: Callable[[list[Tensor]], Tensor] | None = None,
    ) -> None:
        self._straight = run
        if alone is not None and self.installed is not None:
            self.installed(alone)


def _view_of(step: Step) -> View:
    """What makes the view of an array."""
    make = VIEW_OF.get(step.op.name)
    if make is not None:
        return make(step.attrs, step.signature.inputs[0].shape)  # type: ignore[arg-type]
    take, attrs = views.ARRAYS[step.op.name], step.attrs
    return lambda array: take(array, attrs)


def _operands(step: Step) -> Callable[[list[Any]], Any]:
    """The arrays that a step is given, of all that there are so far."""
    sources = step.sources
    if len(sources) > 1 and all(type(s) is int for s in sources):
        return operator.itemgetter(*sources)
    return lambda values: [values[s] if type(s) is int else s._graphc_array for s in sources]


def prepared(step: Step) -> Callable[..., Any]:
    """What runs a step on the CPU, where it has not run yet."""
    assert Eager.prepare is not None
    return step.signature.prepare(step.op, step.attrs, Eager.prepare)
