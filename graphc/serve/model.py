"""An exported program as a server sees it: named tensors in, named tensors out, rows in between."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphc.export import ExportedProgram, ExportError, containers, load
from graphc.export.dynamic import Range
from graphc.export.signature import tensor_type
from graphc.frontend.tensor import Tensor, from_array
from graphc.ir import dim, dtypes
from graphc.ir.dim import Dim, Size, is_variable
from graphc.ir.dtypes import DType
from graphc.ir.independence import Dependence, dependence
from graphc.ir.memory import on_host
from graphc.serve.datatypes import NAMES
from graphc.serve.errors import malformed

_OTHERS = {
    ".mar": "a TorchServe archive holds Python code, which this server does not run",
    ".pt": "a pickle can run code when it is opened", ".pth": "a pickle can run code when it is "
    "opened", ".onnx": "graphc does not read ONNX", ".pt2": "it is torch.export's own format",
    ".safetensors": "it holds weights without a program",
}


@dataclass(frozen=True)
class Spec:
    """A tensor that a model takes or gives. Symbolic sizes are named dims."""

    name: str
    dtype: DType
    shape: tuple[Size, ...]

    def described(self) -> dict[str, Any]:
        """As the Open Inference Protocol's metadata has it: -1 is any size."""
        sizes = [size if isinstance(size, int) else -1 for size in self.shape]
        return {"name": self.name, "datatype": NAMES[self.dtype], "shape": sizes}


class Arguments(NamedTuple):
    """The tensors of one request, in the order of `Model.inputs`; `dims` are the sizes that its
    shapes give names, `rows` the size of its batch (1 where the model has none)."""

    arrays: tuple[np.ndarray, ...]
    dims: dict[str, int]
    rows: int


class Model:
    """A program of a file. `batch` is the named dim that every argument has first, "" where there
    is none; `together` is whether rows of several requests may be computed as one batch, and
    `reason` says why not."""

    def __init__(self, program: ExportedProgram, name: str, version: str, file: str) -> None:
        self.program, self.name, self.version, self.file = program, name, version, file
        self.inputs = _inputs(program)
        self._results = _results(program)
        self.outputs = tuple(spec for spec, _ in self._results)
        # (number of the input, dim, name) of each size that is not always the same
        self._free = [
            (number, place, str(size)) for number, spec in enumerate(self.inputs)
            for place, size in enumerate(spec.shape) if not isinstance(size, int)
        ]
        ranges = program.signature.ranges
        self.batch = _batch(self.inputs)
        self.bounds = ranges.get(self.batch, Range(2, None)) if self.batch else Range(1, 1)
        found = _dependence(program, self.inputs, self.batch)
        self.together = found is None
        self.reason = "" if found is None else str(found)
        self._guards = [g for g in program.graph.env.guards if self.together]
        signature = program.signature
        self._given = signature.specs()
        self._wanted = list(containers.leaves_of(signature.results))
        # whether a request's shapes are all there is to check, and arrays all there is to give
        self._simple = all(isinstance(size, int) or is_variable(size)
                           for spec in self.inputs for size in spec.shape)

    @classmethod
    def of_file(cls, path: Path, name: str, version: str) -> Model:
        """Raises ExportError or OSError for a file that cannot be served."""
        if path.suffix in _OTHERS:
            raise ExportError(
                f"{path.name} cannot be served: {_OTHERS[path.suffix]}. Cure: "
                'graphc.export.export(model.eval(), (x,)).save("model.gcx")'
            )
        program = load(path)
        what = "a training step" if not isinstance(program, ExportedProgram) else (
            "a model that was exported in train mode" if program.signature.writes else ""
        )
        if not isinstance(program, ExportedProgram) or what:
            raise ExportError(
                f"{path.name} cannot be served: it holds {what}, each call of which changes its "
                'state. Cure: graphc.export.export(model.eval(), (x,)).save("model.gcx")'
            )
        return cls(program, name, version, path.name)

    # --- requests ------------------------------------------------------------------------------

    def expected(self, name: object) -> int:
        """The number of the input of this name. Raises Refused where there is none."""
        for number, spec in enumerate(self.inputs):
            if spec.name == name:
                return number
        names = ", ".join(spec.name for spec in self.inputs) or "nothing"
        raise malformed(f"model {self.name!r} has no input {name!r:.80}; it takes {names}")

    def check_shape(self, number: int, shape: Sequence[int]) -> None:
        """Raise Refused unless an input may have this shape; before anything of it is made."""
        spec = self.inputs[number]
        fits = len(shape) == len(spec.shape) and all(
            wanted == size if isinstance(wanted, int) else size >= 1
            for wanted, size in zip(spec.shape, shape, strict=True)
        )
        if not fits:
            wanted_sizes = [size if isinstance(size, int) else str(size) for size in spec.shape]
            raise malformed(
                f"input {spec.name!r} has the shape {list(shape)!r:.120}, but the model takes "
                f"{wanted_sizes}"
            )

    def arguments(self, arrays: Mapping[int, np.ndarray]) -> Arguments:
        """A request's arrays by number of the input. Raises Refused where one is missing, or sizes
        of one name differ, or are none that the model was exported for."""
        missing = [s.name for i, s in enumerate(self.inputs) if i not in arrays]
        if missing:
            raise malformed(f"model {self.name!r} also needs the input {', '.join(missing)}")
        dims: dict[str, int] = {}
        for number, place, name in self._free:
            got = arrays[number].shape[place]
            if dims.setdefault(name, got) != got:
                raise malformed(
                    f"dim {place} of input {self.inputs[number].name!r} is {got}, but {name!r} is "
                    f"{dims[name]} in an input before"
                )
        rows = dims.get(self.batch, 1)
        self._check_sizes(dims)
        ordered = tuple(arrays[number] for number in range(len(self.inputs)))
        return Arguments(ordered, dims, rows)

    def _check_sizes(self, dims: Mapping[str, int]) -> None:
        for name, got in dims.items():
            least, most = self._range(name)
            if name == self.batch and self.together:
                least = 1  # rows are repeated, and their results left out
            if got < least or (most is not None and got > most):
                few = name == self.batch and got < least
                raise malformed(
                    f"the size {name!r} is {got}, but model {self.name!r} was exported for {least} "
                    f"to {'any size' if most is None else most}"
                    + (f", and fewer rows cannot be filled up: {self.reason}" if few else "")
                )
        filled = self.filled(dims)
        for guard in self.program.graph.env.guards:
            if not guard.check(filled):
                raise malformed(
                    f"model {self.name!r} was exported where {guard.text()}, which does not hold "
                    f"for {', '.join(f'{k} = {v}' for k, v in dims.items())}"
                )

    def _range(self, name: str) -> tuple[int, int | None]:
        bounds = self.program.signature.ranges.get(name, Range(2, None))
        return bounds.least, bounds.most

    def filled(self, dims: Mapping[str, int]) -> dict[str, int]:
        """The sizes of a call for these: as many rows as a program takes at least."""
        found = dict(dims)
        if self.batch and self.together:
            found[self.batch] = max(found[self.batch], self.bounds.least)
        return found

    def takes(self, rows: int) -> bool:
        """Whether a request may have so many rows, as far as the bounds of the batch say."""
        least = 1 if self.together else self.bounds.least
        return least <= rows and (self.bounds.most is None or rows <= self.bounds.most)

    def holds(self, dims: Mapping[str, int], rows: int) -> bool:
        """Whether so many rows may be one call, the other sizes being these."""
        if self.bounds.most is not None and rows > self.bounds.most:
            return False
        sizes = self.filled({**dims, self.batch: rows})
        return all(guard.check(sizes) for guard in self._guards)

    # --- calls ---------------------------------------------------------------------------------

    def run(self, requests: Sequence[Arguments]) -> list[tuple[np.ndarray, ...]]:
        """The results of each request, in the order of `outputs`; one call computes them all.

        Several requests: only where rows are independent, and the other sizes equal.
        """
        first, rows = requests[0], sum([request.rows for request in requests])
        arrays = first.arrays
        if len(requests) > 1:
            assert self.together
            arrays = tuple([np.concatenate(parts) for parts in
                            zip(*[request.arrays for request in requests], strict=True)])
        dims = first.dims
        if self.batch and self.together:
            missing = max(self.bounds.least - rows, 0)
            if missing:
                arrays = tuple(np.concatenate([a, np.repeat(a[-1:], missing, 0)]) for a in arrays)
            dims = {**dims, self.batch: rows + missing}
        leaves = self._leaves(arrays, dims)
        columns = [self._parts(spec, leaf, requests)
                   for (_, spec), leaf in zip(self._results, leaves, strict=True)]
        return list(zip(*columns, strict=True)) if columns else [()] * len(requests)

    def _leaves(self, arrays: Sequence[np.ndarray], dims: Mapping[str, int]) -> list[Any]:
        """The leaves of the program's result, but for texts and None."""
        given = iter(arrays)
        signature = self.program.signature
        if self._simple:
            found = self.program.of_arrays(
                [spec["value"] if "value" in spec else next(given) for spec in self._given], dims
            )
            return [value for spec, value in zip(self._wanted, found, strict=True)
                    if _is_tensor(spec)]

        def leaf(spec: Any) -> Any:
            return spec["value"] if "value" in spec else from_array(next(given))

        args, kwargs = containers.build(signature.arguments, leaf)
        result = self.program(*args, **kwargs)
        return [
            on_host(value._graphc_array) if isinstance(value, Tensor) else value
            for spec, value, _ in containers.match(signature.results, result, "")
            if _is_tensor(spec)
        ]

    def _parts(
        self, spec: Mapping[str, Any], value: Any, requests: Sequence[Arguments]
    ) -> list[np.ndarray]:
        """A result of each request: its rows of a tensor, or its size."""
        if "size" in spec:
            size = dim.parse(spec["size"])
            return [np.array([dim.evaluate(size, request.dims)], np.int64) for request in requests]
        if not isinstance(value, np.ndarray):
            return [np.array([value]) for _ in requests]
        if not self.together or ("output" not in spec and "argument" not in spec):
            return [value for _ in requests]
        stops = itertools.accumulate([request.rows for request in requests])
        return [value[stop - request.rows : stop]
                for request, stop in zip(requests, stops, strict=True)]


# --- what a program takes and gives --------------------------------------------------------------


def _inputs(program: ExportedProgram) -> tuple[Spec, ...]:
    signature = program.signature
    (_, args), (_, kwargs) = containers.children(signature.arguments)
    found: list[Spec] = []
    named = [*zip(signature.positional, (item for _, item in containers.children(args)),
                  strict=True), *containers.children(kwargs)]
    for name, item in named:
        for leaf, path in _paths(item, str(name)):
            if "value" not in leaf:
                type_ = tensor_type(leaf)
                found.append(_spec(path, type_.dtype, type_.shape))
    return tuple(found)


def _results(program: ExportedProgram) -> list[tuple[Spec, Any]]:
    """The results that are tensors or numbers, each with its JSON of the signature."""
    weights = {**program.state_dict, **program.constants}
    specs = program.signature.results
    first = "" if containers.is_container(specs) else "output"
    arguments = list(containers.leaves_of(program.signature.arguments))
    found: list[tuple[Spec, Any]] = []
    for leaf, path in _paths(specs, first):
        if not _is_tensor(leaf):
            continue
        ((kind, value),) = leaf.items()
        if kind == "output":
            type_ = program.graph.outputs[value].tensor_type
        elif kind == "argument":
            type_ = tensor_type(arguments[value])
        elif kind == "weight":
            array = weights[value]._graphc_array
            found.append((_spec(path, dtypes.from_numpy(array.dtype), array.shape), leaf))
            continue
        else:
            number = np.int64(0) if kind == "size" else value
            found.append((_spec(path, dtypes.from_numpy(np.array(number).dtype), (1,)), leaf))
            continue
        found.append((_spec(path, type_.dtype, type_.shape), leaf))
    return found


def _spec(name: str, dtype: DType, shape: Sequence[Size]) -> Spec:
    if dtype not in NAMES:
        raise ExportError(
            f"{name} is {dtype}, which the protocols have no word for. Cure: export a model that "
            "takes and gives torch.view_as_real() of it"
        )
    return Spec(name, dtype, tuple(shape))


def _is_tensor(leaf: Mapping[str, Any]) -> bool:
    """Whether a leaf of a result is a tensor or a number: texts and None are left out."""
    return "value" not in leaf or isinstance(leaf["value"], (bool, int, float))


def _paths(spec: Any, path: str) -> list[tuple[Any, str]]:
    """The leaves with their names: "x", "x.mask", and "output_0" where the top has no names."""
    if not containers.is_container(spec):
        return [(spec, path)]
    found: list[tuple[Any, str]] = []
    for key, item in containers.children(spec):
        if path:
            name = f"{path}.{key}"
        else:
            name = f"output_{key}" if "list" in spec or "tuple" in spec else str(key)
        found += _paths(item, name)
    return found


def _batch(inputs: Sequence[Spec]) -> str:
    """The named dim that every input has as its first; "" where there is none."""
    firsts = {spec.shape[:1] for spec in inputs}
    if len(firsts) != 1:
        return ""
    (first,) = firsts
    size = first[0] if first else None
    return str(size) if isinstance(size, Dim) and is_variable(size) else ""


def _dependence(
    program: ExportedProgram, inputs: Sequence[Spec], batch: str
) -> Dependence | None:
    if not batch:
        return Dependence("the arguments do not all have one free size as their dim 0; export with "
                          'dynamic_shapes={"x": {0: "batch"}}')
    shared = [i for i, name in enumerate(program.signature.weights) if name is not None]
    return dependence(program.graph, batch, shared)


