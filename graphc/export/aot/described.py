"""The C interface of an exported program: its arguments and results by name, its named sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from graphc.backends.host.interface import DTYPES, Entry, NamedSize, Place, Result
from graphc.export import containers
from graphc.export.aot.bounds import bounds
from graphc.export.errors import ExportError
from graphc.export.signature import Signature, tensor_type
from graphc.ir import dim
from graphc.ir.dim import Dim, Size, is_variable
from graphc.ir.dtypes import DType, f64, i64
from graphc.ir.graph import Graph

MOST_BYTES = 1 << 46  # of one tensor: beyond, nobody has them, and products would overflow


class Described(NamedTuple):
    """What callers see of a program. `leaves` gives the input that an argument's leaf is."""

    inputs: tuple[Entry, ...]
    outputs: tuple[Entry, ...]
    results: tuple[Result, ...]
    sizes: tuple[NamedSize, ...]
    leaves: Mapping[int, int]

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """Of the named sizes."""
        return {size.name: (size.least, size.most) for size in self.sizes}


def described(
    graph: Graph, signature: Signature, limits: Mapping[str, int | tuple[int, int]],
    weight: Callable[[str], tuple[DType, tuple[int, ...], Place]],
    number: Callable[[Any], tuple[DType, Place]] | None = None,
) -> Described:
    """See above. `limits`: the largest of a named size, or its smallest and largest, where those
    are to be narrower than exported. `weight`: dtype, shape and place of a weight that is a result;
    `number`: dtype and place of a number that Python computes.
    Raises ExportError for what C cannot hold."""
    inputs: list[Entry] = []
    leaves: dict[int, int] = {}
    for leaf, (path, spec) in enumerate(signature.named_arguments()):
        if "number" in spec:
            entry = Entry(path, f64 if type(spec["value"]) is float else i64, ())
        elif "value" in spec:
            continue
        else:
            type_ = tensor_type(spec)
            entry = Entry(path, known(type_.dtype, path), type_.shape)
        leaves[leaf] = len(inputs)
        inputs.append(entry)
    sizes = _sizes(graph, signature, inputs, limits)
    outputs: list[Entry] = []
    results: list[Result] = []
    first: dict[int, int] = {}  # which output each of the graph's outputs is
    for path, spec in containers.named(signature.results, "result"):
        ((kind, value),) = spec.items()
        if kind == "value":
            continue
        if kind in ("output", "item", "numpy"):
            found = graph.outputs[value].tensor_type
            shape = () if kind == "item" else found.shape
            entry = Entry(path, known(found.dtype, path), shape)
            again = value in first
            result = Result("again", first[value]) if again else Result("output", value)
            first.setdefault(value, len(outputs))
        elif kind == "argument":
            entry = inputs[leaves[value]]._replace(name=path)
            result = Result("input", leaves[value])
        elif kind == "weight":
            dtype, shape, place = weight(value)
            entry = Entry(path, known(dtype, path), shape)
            result = Result("data", place=place)
        elif kind == "computed":
            assert number is not None
            dtype, place = number(value)
            entry, result = Entry(path, dtype, ()), Result("data", place=place)
        else:
            entry, result = Entry(path, i64, ()), Result("size", size=dim.parse(value))
        outputs.append(entry)
        results.append(result)
    found_all = Described(tuple(inputs), tuple(outputs), tuple(results), sizes, leaves)
    for entry in (*inputs, *outputs):
        _check_bytes(entry, found_all.ranges)
    return found_all


def numbers_given(signature: Signature) -> dict[str, int]:
    """Which input each number is that a call of a step gives, by name."""
    inputs = [spec for spec in signature.specs() if "number" in spec or "value" not in spec]
    return {spec["number"]: i for i, spec in enumerate(inputs) if "number" in spec}


def outputs_of(
    about: Described, main: Signature, graph: Graph, signature: Signature, ones: frozenset[str]
) -> tuple[int, ...]:
    """Which of the library's outputs each output of a graph is, that is for sizes of 1 in `ones`.
    Raises ExportError where its results are others than those of the main one."""
    found: dict[int, int] = {}
    number = 0
    named = containers.named
    pairs = zip(named(main.results, ""), named(signature.results, ""), strict=False)
    for (path, wanted), (other_path, spec) in pairs:
        fits = path == other_path
        if "value" in wanted:
            fits = fits and spec == wanted
        else:
            result, entry = about.results[number], about.outputs[number]
            if "output" in wanted and "output" in spec:
                type_ = graph.outputs[spec["output"]].tensor_type
                shape = tuple(at_ones(size, ones) for size in entry.shape)
                place = result.number if result.kind == "again" else number
                fits = fits and (type_.dtype, type_.shape) == (entry.dtype, shape)
                fits = fits and found.setdefault(spec["output"], place) == place
            elif "size" in wanted:
                fits = fits and at_ones(dim.parse(wanted["size"]), ones) == (
                    spec["value"] if "value" in spec
                    else at_ones(dim.parse(spec.get("size", "-1")), ones)
                )
            else:
                fits = fits and spec == wanted
            number += 1
        if not fits:
            number = -1
            break
    if number < len(about.results) or sorted(found) != list(range(len(graph.outputs))):
        names = ", ".join(sorted(ones))
        raise ExportError(
            f"where {names} is 1, the model's results are of other kinds, and C functions have one "
            f"list of outputs. Cure: aot(..., sizes={{{sorted(ones)[0]!r}: (2, ...)}})"
            if ones else "an output of the program is no result"
        )
    return tuple(found[i] for i in range(len(graph.outputs)))


def at_ones(size: Size, ones: frozenset[str]) -> Size:
    """A size where some are 1."""
    return dim.unwrap(dim.substitute(size, dict.fromkeys(ones, 1)))


def known(dtype: DType, path: str) -> DType:
    """The dtype. Raises ExportError for one that C does not have."""
    if dtype.name not in DTYPES:
        raise ExportError(
            f"{path} is of {dtype}, which the C interface does not have. Cure: take "
            "torch.view_as_real(x), and give that"
        )
    return dtype


def _sizes(
    graph: Graph, signature: Signature, inputs: list[Entry],
    limits: Mapping[str, int | tuple[int, int]],
) -> tuple[NamedSize, ...]:
    names = dict.fromkeys(graph.env.hints)
    for entry in inputs:
        for size in entry.shape:
            if isinstance(size, Dim):
                names.update(dict.fromkeys(sorted(size.variables())))
                if not (is_variable(size) or _is_linear(size)):
                    raise ExportError(f"{entry.name} has the size {size}, which gives no one value")
    unknown = [name for name in limits if name not in names]
    if unknown:
        raise ExportError(
            f"sizes names {unknown[0]!r}, which is no free size of the program. Cure: one of "
            f"{', '.join(names) or '(there are none)'}"
        )
    return tuple(_range(name, signature, limits.get(name)) for name in names)


def _is_linear(size: Dim) -> bool:
    names = size.variables()
    if len(names) != 1:
        return False
    (name,) = names
    one = Dim.var(name)
    return any(size == one * a + b for a, b in _linear(size))


def _linear(size: Dim) -> Iterator[tuple[int, int]]:
    constant = sum(c for monomial, c in size.terms if not monomial)
    for monomial, coefficient in size.terms:
        if monomial:
            yield coefficient, constant


def _range(
    name: str, signature: Signature, limit: int | tuple[int, int] | None
) -> NamedSize:
    found = signature.ranges.get(name)
    least, most = (2, None) if found is None else (found.least, found.most)
    if limit is not None:
        low, high = (least, limit) if isinstance(limit, int) else limit
        if low < least or high < low or (most is not None and high > most):
            raise ExportError(
                f"sizes has {low} to {high} for {name!r}, which was exported for {least} to "
                f"{'any size' if most is None else most}"
            )
        least, most = low, high
    if most is None:
        raise ExportError(
            f"the free size {name!r} has no largest value, and a library takes all its memory "
            f"ahead. Cure: aot(..., sizes={{{name!r}: 64}}), or Dim({name!r}, max=64) in export"
        )
    return NamedSize(name, least, most)


def _check_bytes(entry: Entry, ranges: Mapping[str, tuple[int, int]]) -> None:
    total = entry.dtype.itemsize
    sizes: list[Size] = list(entry.shape)
    for size in sizes:
        low, high = bounds(size, ranges)
        if low < 0:
            raise ExportError(f"a size of {entry.name}, {size}, may be {low}")
        total *= max(high, 1)
    if total > MOST_BYTES:
        raise ExportError(
            f"{entry.name} may have {total:.3g} bytes. Cure: aot(..., sizes={{...}}) with smaller "
            "sizes"
        )
