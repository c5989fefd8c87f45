"""Is an exported graph what the model computes? Asked of eager mode, at several sizes, at export.

The graphs are run by the reference interpreter, which shares no code with what compiles them.
Where rounding may explain a difference, eager runs with larger rounding errors say how much.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from graphc.compiler import set_stance
from graphc.export import closeness, containers, limits, safetensors
from graphc.export.closeness import Tolerance
from graphc.export.contents import Contents, Golden, Variant
from graphc.export.dynamic import DynamicShapes, resized
from graphc.export.errors import ExportError
from graphc.export.interpreting import computed, variant_for, written_names
from graphc.frontend.context import local
from graphc.frontend.grad_mode import no_grad
from graphc.frontend.tensor import Tensor
from graphc.frontend.tree import flatten, unflatten
from graphc.ir.late import late
from graphc.ir.memory import on_host
from graphc.nn.modules.module import Module

# what only export asks, not who loads a program
_noise = late("graphc.doubt.noise")
_snapshot = late("graphc.doubt.snapshot")
_walk = late("graphc.doubt.walk")

_WORK = 1 << 32  # scalar steps of all sizes but the example's, which is always compared
_MEMORY = 1 << 29  # bytes of one of them
_GOLDEN = 1 << 22  # bytes of a recorded call
_NOISY = 4
_TIMES = 8.0  # what rounding errors of a few units move


class Eager:
    """The model itself, to be called as it was at export; what it changes is taken back."""

    def __init__(
        self, model: Any, leaves: list[Any], structure: Any, positional: list[str]
    ) -> None:
        self.model, self.leaves, self.structure = model, leaves, structure
        args, kwargs = unflatten(leaves, structure)
        roots = (("the model", model), *zip(positional, args, strict=True), *kwargs.items())
        self._state: dict[str, Tensor] = {}
        if isinstance(model, Module):
            self._state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        self._snapshot = _snapshot.Snapshot((*roots, *_walk.streams()))

    def results(self, leaves: list[Any], written: Sequence[str] = ()) -> list[Any]:
        """The leaves of the results (arrays, and other values as they are), then the model's
        parameters and buffers of these names, as the call leaves them."""
        args, kwargs = unflatten(leaves, self.structure)
        try:
            with (
                set_stance("force_eager"), no_grad(), warnings.catch_warnings(),
                contextlib.redirect_stdout(io.StringIO()), _answers_of_a_recording(),
            ):
                warnings.simplefilter("ignore")  # recording has said them
                result = self.model(*args, **kwargs)
            state = [self._state[name] for name in written]
            return [_value(leaf) for leaf in (*flatten(result)[0], *state)]
        finally:
            self._snapshot.restore()


@contextlib.contextmanager
def _answers_of_a_recording() -> Iterator[None]:
    """What a model asks of torch.compiler, it is told as when it was recorded."""
    before = local.exporting, local.instead
    local.exporting = local.instead = True
    try:
        yield
    finally:
        local.exporting, local.instead = before


def _value(leaf: Any) -> Any:
    return np.array(on_host(leaf._graphc_array), order="C") if isinstance(leaf, Tensor) else leaf


def checked(contents: Contents, shapes: DynamicShapes, eager: Eager) -> Contents:
    """The contents with recorded calls, and the sizes that were compared. Raises ExportError where
    a graph computes something else than the model."""
    seen: list[dict[str, int]] = []
    goldens: list[Golden] = []
    recorded: set[frozenset[str]] = set()
    spent = 0
    for dims in _sizes(contents, shapes):
        variant = variant_for(contents, dims)
        own = resized(eager.leaves, shapes.names, dims)
        first = dims == shapes.example
        if not all(guard.check(dims) for guard in variant.graph.env.guards):
            if first:
                raise ExportError("the recorded guards do not hold for the example itself")
            continue
        cost = limits.work(variant.graph, dims)
        if not first:
            if spent + cost > _WORK or limits.peak(variant.graph, dims)[0] > _MEMORY:
                continue
            spent += cost
        golden = _compared(contents, variant, dims, own, eager)
        seen.append(dims)
        if (first or (variant.ones and variant.ones not in recorded)) and (
            sum(array.nbytes for array in golden.arrays().values()) <= _GOLDEN
        ) and safetensors.holds(golden.arrays().values()):
            recorded.add(variant.ones)
            goldens.append(golden)
    return replace(contents, goldens=tuple(goldens), checked=tuple(seen))


def _sizes(contents: Contents, shapes: DynamicShapes) -> Iterator[dict[str, int]]:
    """The example's sizes; each name at 1, 2, 3 and its largest; what other graphs are for."""
    tried: list[dict[str, int]] = []

    def new(dims: dict[str, int]) -> bool:
        fits = all(size in shapes.ranges[name] for name, size in dims.items())
        if fits and dims not in tried:
            tried.append(dims)
            return True
        return False

    candidates = [dict(shapes.example)]
    for name, bounds in shapes.ranges.items():
        sizes = [1, 2, 3] if bounds.most is None else [1, 2, 3, bounds.most]
        candidates += [{**shapes.example, name: size} for size in sizes]
    above = {name: max(2, size) for name, size in shapes.example.items()}
    candidates += [{**above, **dict.fromkeys(v.ones, 1)} for v in contents.variants if v.ones]
    yield from (dims for dims in candidates if new(dims))


def _compared(
    contents: Contents, variant: Variant, dims: Mapping[str, int], leaves: list[Any], eager: Eager
) -> Golden:
    """The call in eager mode, which the graph repeats. Raises ExportError where it does not."""
    where = " at " + ", ".join(f"{k} = {v}" for k, v in dims.items()) if dims else ""
    names = written_names(contents, variant)
    try:
        wanted = eager.results(leaves, names)
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ExportError(
            f"in eager mode the model raises {type(error).__name__}{where}, which its range "
            f"allows: {first[:300]}. Cure: a Dim with other bounds; export(..., check=False) does "
            "not ask"
        ) from error
    arrays = {i: _value(leaf) for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)}
    found = computed(contents, variant, arrays, dims)
    tolerance = closeness.tolerance_of(variant.graph)
    difference = closeness.first_difference(found, wanted, tolerance)
    if difference is not None:
        difference = _beyond_rounding(found, wanted, tolerance, leaves, names, eager)
    if difference is not None:
        leaf, said = difference
        raise ExportError(
            f"the exported graph differs from the model in eager mode{where}: "
            f"{_result_names(variant, names)[leaf]} {said}. Cure: report it with the model; "
            "export(..., check=False) writes the file all the same"
        )
    results = wanted[: len(wanted) - len(names)]
    outputs = {i: value for i, value in enumerate(results) if isinstance(value, np.ndarray)}
    written = dict(zip(names, wanted[len(results) :], strict=True))
    return Golden(dict(dims), arrays, outputs, tolerance.rtol, tolerance.atol, written)


def _beyond_rounding(
    found: list[Any], wanted: list[Any], tolerance: Tolerance, leaves: list[Any],
    names: list[str], eager: Eager,
) -> tuple[int, str] | None:
    """The first difference that larger rounding errors of eager mode do not explain."""
    noisy: list[list[Any]] = []
    for seed in range(_NOISY):
        with _noise.rounding_errors(seed):
            noisy.append(eager.results(leaves, names))
    spread = [
        closeness.spread(value, [other[i] for other in noisy], _TIMES)
        for i, value in enumerate(wanted)
    ]
    return closeness.first_difference(found, wanted, tolerance, spread)


def _result_names(variant: Variant, written: list[str]) -> list[str]:
    """A name of each leaf of the results, and of what is written, for messages."""
    count = sum(1 for _ in containers.leaves_of(variant.signature.results))
    results = ["the result"] if count == 1 else [f"result {i}" for i in range(count)]
    return results + [f"{name!r}, which the model writes," for name in written]
