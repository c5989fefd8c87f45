"""Is an exported step what the step does? Asked of eager mode, from the same state, at export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphc import config
from graphc.export import checking, containers, limits
from graphc.export.contents import Contents, Golden, Variant
from graphc.export.signature import Weights
from graphc.export.steps.build import StepBuilder
from graphc.export.steps.interpreted import InterpretedStep
from graphc.export.steps.names import StepNames
from graphc.export.steps.program import CALLS, ExportedStep
from graphc.frontend.tensor import Tensor, from_array
from graphc.frontend.tree import unflatten
from graphc.ir.record import replaced

_WORK = 1 << 33  # scalar steps of a call that is interpreted; larger ones are compiled


class EagerStep(checking.Eager):
    """The step itself, called from the state that it was recorded in; what it changes is taken
    back. `builder` knows what its state is called."""

    what = "step"
    noisy = 2  # an optimizer may divide rounding errors by their own size

    def __init__(
        self, step: Any, leaves: list[Any], structure: Any, positional: list[str],
        builder: StepBuilder, random: str,
    ) -> None:
        super().__init__(step, leaves, structure, positional)
        self._builder, self._random = builder, random

    def called(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """One call, which draws as the file says."""
        with config.within(random=self._random):
            return self.model(*args, **kwargs)

    def state(self, names: Sequence[str]) -> list[Any]:
        """What the names stand for now."""
        builder = self._builder
        args, kwargs = unflatten(self.leaves, self.structure)
        now = StepNames(self.model, args, kwargs)
        known = {**builder.names.tensors(), **now.tensors()}
        found: list[Any] = []
        for name in names:
            if name in builder.counts.places:
                found.append(builder.counts.places[name].get())
            elif name in builder.graded:
                found.append(builder.graded[name].grad)
            elif name in builder.placed:
                found.append(builder.placed[name].get())
            else:
                found.append(known[name])
        return found

    def value(self, leaf: Any) -> Any:
        """Python's numbers are compared as arrays, since rounding may move them."""
        return value(leaf)

    def computed(
        self, contents: Contents, variant: Variant, leaves: Sequence[Any], dims: Mapping[str, int]
    ) -> list[Any]:
        """What the graph makes of a call, by the interpreter unless that would take long."""
        interpreted = limits.work(variant.graph, dims) <= _WORK
        step = (InterpretedStep if interpreted else ExportedStep)(apart(contents))
        args, kwargs = unflatten(
            [from_array(checking.value(x)) if isinstance(x, Tensor) else x for x in leaves],
            self.structure,
        )
        return called(step, args, kwargs, self.written(contents, variant))

    def written(self, contents: Contents, variant: Variant) -> list[str]:
        """The names of weights and counters that a call writes."""
        assert contents.step is not None
        return [*(write["weight"] for write in variant.signature.writes), *contents.step["updates"]]

    def numbers(self, contents: Contents, leaves: Sequence[Any]) -> dict[str, Any]:
        """The settings, the counters, and those among the arguments."""
        given = zip(contents.main.signature.specs(), leaves, strict=True)
        return {
            **numbers(contents),
            **{spec["number"]: leaf for spec, leaf in given if "number" in spec},
        }


def numbers(contents: Contents) -> dict[str, Any]:
    """The settings and counters of a step, and how many calls there were."""
    step = contents.step
    assert step is not None
    return {**step["settings"], **step["counters"], CALLS: step["calls"]}


def apart(contents: Contents, golden: Golden | None = None) -> Contents:
    """A step with a state of its own: as it is, or as a recorded call found it."""
    was, step = contents.weights, contents.step
    assert step is not None
    given: Mapping[str, np.ndarray] = {} if golden is None else golden.state
    arrays = {name: np.array(given.get(name, array)) for name, array in was.arrays.items()}
    if golden is not None:
        own = {
            key: {name: golden.numbers.get(name, old) for name, old in step[key].items()}
            for key in ("settings", "counters")
        }
        step = {**step, **own, CALLS: golden.numbers.get(CALLS, step[CALLS])}
    weights = Weights(arrays, was.state, was.tied, was.parameters, was.buffers, was.kinds)
    return replaced(contents, weights=weights, step=step)


def called(
    step: ExportedStep, args: tuple[Any, ...], kwargs: Mapping[str, Any], written: Sequence[str]
) -> list[Any]:
    """The leaves of the results of a call, then the state of these names, as it leaves it."""
    result = step(*args, **kwargs)
    spec = step.signature.results
    leaves = [value(each) for _, each, _ in containers.match(spec, result, "the result")]
    after = {**step._weights, **step.numbers}
    return [*leaves, *(value(after[name]) for name in written)]


def value(leaf: Any) -> Any:
    """What is compared of a leaf: arrays; numbers as arrays; other values as they are."""
    if isinstance(leaf, Tensor):
        return checking.value(leaf.detach())
    if type(leaf) is float or (type(leaf) is int and -(2**63) <= leaf < 2**63):
        return np.asarray(leaf, np.float64 if type(leaf) is float else np.int64)
    return np.array(leaf) if isinstance(leaf, np.ndarray) else leaf
