"""A sequence: the operators of a function, in their order, as one operator.

A function of eager mode whose operators follow from types, views and products among them, is one
step of history by it. Its rule is what a walk back over those operators comes to; what that reads
of what is between the function's inputs and its results is computed again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from .autodiff import run_vjp
from .chain import are_leaves, replayed_rule
from .dim import DimEnv
from .graph import attrs_key
from .named import NamedTuple
from .op import Attrs, Op
from .rounding import ROUNDED
from .types import TensorType, TupleType


class Part(NamedTuple):
    """An operator of a sequence; `sources` are numbers of the sequence's inputs and of what
    earlier parts gave, which follow them. Without an operator it is its source, through which no
    gradient goes."""

    op: Op | None
    attrs: Attrs
    sources: tuple[int, ...]


def sequence_of(
    parts: Sequence[Part], inputs: int, results: Sequence[int], kept: Sequence[int]
) -> Op:
    """The operator that gives the values with these numbers. `kept`: those of them that its rule
    reads as they were given, and does not compute again."""
    spelled = repr((
        inputs, [(x.op and x.op.name, attrs_key(x.attrs), x.sources) for x in parts],
        tuple(results),
        tuple(kept),
    ))
    name = f"sequence_{hashlib.sha256(spelled.encode()).hexdigest()[:16]}"
    return _Sequence(name, tuple(parts), tuple(results), frozenset(kept)).op(inputs)


class _Sequence:
    def __init__(
        self, name: str, parts: tuple[Part, ...], results: tuple[int, ...], kept: frozenset[int]
    ) -> None:
        self._name, self._parts, self._results, self._kept = name, parts, results, kept

    def op(self, inputs: int) -> Op:
        """The operator."""
        self._op = Op(
            self._name, "composite", self._infer, self._vjp, self._decompose, arity=inputs,
            results=len(self._results), cost=None, rounding=ROUNDED, takes_complex=False,
            doc=" ".join(part.op.name for part in self._parts if part.op is not None),
        )
        return self._op

    def _infer(self, types: tuple[TensorType, ...], attrs: Attrs, env: DimEnv) -> Any:
        found: list[Any] = list(types)
        for part in self._parts:
            if part.op is None:
                found.append(found[part.sources[0]])
                continue
            made = part.op.infer(tuple([found[s] for s in part.sources]), part.attrs, env)
            found += made.elements if isinstance(made, TupleType) else (made,)
        results = tuple([found[i] for i in self._results])
        return results[0] if len(results) == 1 else TupleType(results)

    def _decompose(self, *values: Any) -> Any:
        found, _ = self._values(values)
        results = tuple([found[i] for i in self._results])
        return results[0] if len(results) == 1 else results

    def _values(self, given: Sequence[Any]) -> tuple[list[Any], list[range]]:
        """All values, and which of them each part gives."""
        found, places = list(given), []
        for part in self._parts:
            if part.op is None:
                places.append(range(len(found), len(found) + 1))
                found.append(found[part.sources[0]])
                continue
            out = given[0]._emit(part.op, tuple([found[s] for s in part.sources]), part.attrs)
            made = out if type(out) is tuple else (out,)
            places.append(range(len(found), len(found) + len(made)))
            found += made
        return found, places

    def _vjp(self, grads: Any, values: Any, outs: Any, needs: Any) -> Any:
        if not are_leaves(values):
            return replayed_rule(self._op, grads, values, outs, needs)
        found, places = self._values(values)
        gradients: list[Any] = [None] * len(found)
        for i, y, g in zip(self._results, outs, grads, strict=True):
            gradients[i] = g
            if i in self._kept:
                found[i] = y
        active = [*needs, *[False] * (len(found) - len(needs))]  # what a gradient goes through
        for part, made in zip(self._parts, places, strict=True):
            if part.op is None or (part.op.vjp is None and part.op.nondifferentiable):
                continue
            if any(active[s] for s in part.sources):
                for i in made:
                    active[i] = found[i].type.dtype.differentiable
        for part, made in zip(reversed(self._parts), reversed(places), strict=True):
            given, wanted = [gradients[i] for i in made], [active[s] for s in part.sources]
            if part.op is None or all(g is None for g in given) or not any(wanted) or (
                not any(active[i] for i in made)
            ):
                continue
            operands = [found[s] for s in part.sources]
            with values[0].builder.at(None, 1):
                mine = run_vjp(
                    part.op, given, operands, [found[i] for i in made], wanted, part.attrs
                )
                for s, g in zip(part.sources, mine, strict=True):
                    if g is not None:
                        gradients[s] = g if gradients[s] is None else gradients[s] + g
        return [g if need else None for g, need in zip(gradients, needs, strict=False)]
