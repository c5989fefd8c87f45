"""Is an exported graph what the model computes? Asked of eager mode, at several sizes, at export.

The graphs are run by the reference interpreter, which shares no code with what compiles them.
Where rounding may explain a difference, eager runs with larger rounding errors say how much.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from graphc.compiler import set_stance
from graphc.export import closeness, containers, limits, safetensors
from graphc.export.closeness import Tolerance
from graphc.export.contents import GOLDEN, Contents, Golden, Variant
from graphc.export.dynamic import DynamicShapes, resized
from graphc.export.errors import ExportError
from graphc.export.interpreting import computed, variant_for, written_names
from graphc.frontend.context import local
from graphc.frontend.grad_mode import no_grad
from graphc.frontend.tensor import Tensor
from graphc.frontend.tree import flatten, unflatten
from graphc.ir.late import late
from graphc.ir.memory import on_host
from graphc.ir.record import replaced

# what only export asks, not who loads a program
_noise = late("graphc.doubt.noise")
_snapshot = late("graphc.doubt.snapshot")
_walk = late("graphc.doubt.walk")

_WORK = 1 << 32  # scalar steps of all sizes but the example's, which is always compared
_MEMORY = 1 << 29  # bytes of one of them
_NOISY = 32  # runs at most: a sign that hangs on rounding is the other one in some
_ANY = 1e300  # where nothing can be said
_TIMES = 8.0  # what rounding errors of a few units move


class Eager:
    """The model itself, to be called as it was at export; what it changes is taken back."""

    what = "model"
    noisy = 0  # runs that tell of a recorded call how well it is defined

    def __init__(
        self, model: Any, leaves: list[Any], structure: Any, positional: list[str]
    ) -> None:
        self.model, self.leaves, self.structure = model, leaves, structure
        args, kwargs = unflatten(leaves, structure)
        roots = (
            (f"the {self.what}", model), *zip(positional, args, strict=True), *kwargs.items()
        )
        self._snapshot = _snapshot.Snapshot((*roots, *_walk.streams()))

    def results(self, leaves: list[Any], written: Sequence[str] = ()) -> list[Any]:
        """The leaves of the results (arrays, and other values as they are), then the state of
        these names, as the call leaves it."""
        args, kwargs = unflatten(leaves, self.structure)
        try:
            with (
                set_stance("force_eager"), warnings.catch_warnings(),
                contextlib.redirect_stdout(io.StringIO()), _answers_of_a_recording(),
            ):
                warnings.simplefilter("ignore")  # recording has said them
                result = self.called(args, kwargs)
            return [*map(self.value, flatten(result)[0]), *map(self.value, self.state(written))]
        finally:
            self._snapshot.restore()

    def called(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """One call."""
        with no_grad():
            return self.model(*args, **kwargs)

    def state(self, names: Sequence[str]) -> list[Any]:
        """Parameters and buffers of the model."""
        if not names:
            return []
        own = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        return [own[name] for name in names]

    def value(self, leaf: Any) -> Any:
        """What is compared of a leaf: arrays, and other values as they are."""
        return value(leaf)

    def computed(
        self, contents: Contents, variant: Variant, leaves: Sequence[Any], dims: Mapping[str, int]
    ) -> list[Any]:
        """What the graphs make of a call, as `results` has it."""
        arrays = {i: value(leaf) for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)}
        return computed(contents, variant, arrays, dims)

    def written(self, contents: Contents, variant: Variant) -> list[str]:
        """The names of the state that a call writes."""
        return written_names(contents, variant)

    def numbers(self, contents: Contents, leaves: Sequence[Any]) -> dict[str, Any]:
        """Python's numbers, as the call finds them."""
        return {}


@contextlib.contextmanager
def _answers_of_a_recording() -> Iterator[None]:
    """What a model asks of torch.compiler, it is told as when it was recorded."""
    before = local.exporting, local.instead
    local.exporting = local.instead = True
    try:
        yield
    finally:
        local.exporting, local.instead = before


def value(leaf: Any) -> Any:
    """A tensor as an array, anything else as it is."""
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
        keep = first or (bool(variant.ones) and variant.ones not in recorded)
        own = resized(eager.leaves, shapes.names, dims)
        golden = _kept(_compared(contents, variant, dims, own, eager, keep))
        seen.append(dims)
        if golden is not None and keep:
            recorded.add(variant.ones)
            goldens.append(golden)
    return replaced(contents, goldens=tuple(goldens), checked=tuple(seen))


def _kept(golden: Golden) -> Golden | None:
    """What a file keeps of a call: arguments and results, and of what it writes the small arrays
    first; None where these are too large."""
    call = [*golden.inputs.values(), *golden.outputs.values()]
    room = GOLDEN - sum(array.nbytes for array in call)
    if room < 0 or not safetensors.holds(golden.arrays().values()):
        return None
    written: dict[str, np.ndarray] = {}
    for name, array in sorted(golden.written.items(), key=lambda item: item[1].nbytes):
        if array.nbytes > room:
            break
        room -= array.nbytes
        written[name] = array
    return replaced(golden, written={n: written[n] for n in golden.written if n in written})


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
    contents: Contents, variant: Variant, dims: Mapping[str, int], leaves: list[Any], eager: Eager,
    keep: bool,
) -> Golden:
    """The call in eager mode, which the graph repeats. Raises ExportError where it does not."""
    where = " at " + ", ".join(f"{k} = {v}" for k, v in dims.items()) if dims else ""
    names = eager.written(contents, variant)
    try:
        wanted = eager.results(leaves, names)
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        allowed = ", which its range allows" if dims else ""
        raise ExportError(
            f"in eager mode the {eager.what} raises {type(error).__name__}{where}{allowed}: "
            f"{first[:300]}. Cure: a Dim with other bounds; check=False does not ask"
        ) from error
    found = eager.computed(contents, variant, leaves, dims)
    tolerance = closeness.tolerance_of(variant.graph)
    rounding = _Rounding(eager, leaves, names, wanted)
    difference = closeness.first_difference(found, wanted, tolerance)
    while difference is not None and rounding.runs < _NOISY:
        rounding.run()
        difference = closeness.first_difference(found, wanted, tolerance, rounding.spread)
    if difference is not None:
        leaf, said = difference
        raise ExportError(
            f"the exported graph differs from the {eager.what} in eager mode{where}: "
            f"{_result_names(variant, names, eager.what)[leaf]} {said}. Cure: report it with the "
            f"{eager.what}; check=False writes the file all the same"
        )
    results = wanted[: len(wanted) - len(names)]
    arrays = {i: value(leaf) for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)}
    outputs = {i: value for i, value in enumerate(results) if isinstance(value, np.ndarray)}
    small = sum(array.nbytes for array in (*arrays.values(), *outputs.values())) <= GOLDEN
    while rounding.runs < (eager.noisy if keep and small else 0):
        rounding.run()
    written = dict(zip(names, wanted[len(results) :], strict=True))
    return Golden(
        dict(dims), arrays, outputs, tolerance.rtol, tolerance.atol, written,
        eager.numbers(contents, leaves), apart=rounding.apart(len(results), tolerance),
    )


class _Rounding:
    """How far rounding alone moves the leaves of a call: eager runs with larger errors."""

    def __init__(
        self, eager: Eager, leaves: list[Any], names: list[str], wanted: list[Any]
    ) -> None:
        self._eager, self._leaves, self._names, self._wanted = eager, leaves, names, wanted
        self.spread: list[Any] = [
            np.zeros(each.shape) if isinstance(each, np.ndarray) else None for each in wanted
        ]
        self.runs = 0

    def run(self) -> None:
        """One more."""
        with _noise.rounding_errors(self.runs):
            moved = self._eager.results(self._leaves, self._names)
        self.runs += 1
        for i, (right, other) in enumerate(zip(self._wanted, moved, strict=True)):
            if self.spread[i] is not None:
                spread = closeness.spread(right, [other], _TIMES)
                self.spread[i] = np.maximum(self.spread[i], spread)

    def apart(self, results: int, tolerance: Tolerance) -> dict[str, float]:
        """What more all elements of a leaf may be off, where the tolerance is too small for some:
        by the name of the array."""
        found: dict[str, float] = {}
        for i, (right, spread) in enumerate(zip(self._wanted, self.spread, strict=True)):
            if spread is None or not self.runs:
                continue
            name = f"out.{i}" if i < results else f"write.{self._names[i - results]}"
            if closeness.beyond(right, spread, tolerance):
                most = float(np.max(spread))
                found[name] = most if np.isfinite(most) else _ANY
        return found


def _result_names(variant: Variant, written: list[str], what: str) -> list[str]:
    """A name of each leaf of the results, and of what is written, for messages."""
    count = sum(1 for _ in containers.leaves_of(variant.signature.results))
    results = ["the result"] if count == 1 else [f"result {i}" for i in range(count)]
    return results + [f"{name!r}, which the {what} writes," for name in written]
