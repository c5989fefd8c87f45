"""What an exported model takes and gives, apart from its code: the manifest of a file.

A leaf of the arguments is {"tensor": input number or null, "dtype", "shape"} or {"value": v}, which
a call must repeat. A leaf of the results is {"output": i}, {"argument": leaf number},
{"weight": name}, {"size": text of a Dim} or {"value": v}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphc.export import containers
from graphc.export.dynamic import Range
from graphc.export.errors import ExportError
from graphc.frontend.tensor import Tensor
from graphc.ir import dim, dtypes
from graphc.ir.dim import Size
from graphc.ir.graph import Graph
from graphc.ir.types import TensorType

VALUES = (str, int, float, bool, type(None))


@dataclass(frozen=True)
class Weights:
    """The data of an exported model: `arrays` by name.

    `state` are the names of the model's state_dict in order, `tied` those of them that are second
    names of an array, `parameters` those that are parameters. Other arrays are constants.
    """

    arrays: Mapping[str, np.ndarray]
    state: tuple[str, ...] = ()
    tied: Mapping[str, str] = field(default_factory=dict)
    parameters: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The manifest's part."""
        return {
            "state": list(self.state), "tied": dict(self.tied), "parameters": list(self.parameters)
        }


def weights_from_json(data: Any, arrays: Mapping[str, np.ndarray]) -> Weights:
    """The names of a manifest with their data. Raises ExportError where they do not fit."""
    try:
        found = Weights(arrays, _strings(data["state"]), dict(data["tied"]),
                        _strings(data["parameters"]))
        for name, first in found.tied.items():
            assert first in arrays and name not in arrays and name in found.state, name
        for name in (*found.state, *found.parameters):
            assert name in arrays or name in found.tied, name
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        raise ExportError(f"the manifest's names of weights are malformed: {error!r}") from None
    return found


@dataclass(frozen=True)
class Signature:
    """The arguments and results of an exported model.

    `weights[i]` is the name of graph input i's weight, None where it is an argument. `positional`
    are the arguments' names in order, `keywords` those given by name in the example.
    """

    positional: tuple[str, ...]
    keywords: tuple[str, ...]
    arguments: Any  # JSON: a tuple of (tuple of positional, dict of keywords)
    results: Any  # JSON
    weights: tuple[str | None, ...]
    ranges: Mapping[str, Range]

    # --- calls -------------------------------------------------------------------------------

    def leaves(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """The leaves of a call's arguments. Raises TypeError for other arguments than exported."""
        args, kwargs = self._as_exported(args, dict(kwargs))
        _, spec_args = containers.children(self.arguments)[0]
        _, spec_kwargs = containers.children(self.arguments)[1]
        found: list[Any] = []
        for i, (_, spec) in enumerate(containers.children(spec_args)):
            found += self._argument(spec, args[i], self.positional[i])
        for name, spec in containers.children(spec_kwargs):
            found += self._argument(spec, kwargs[name], name)
        return found

    def _as_exported(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments by position or by name as they were in the example."""
        wanted = (*self.positional, *self.keywords)
        if len(args) > len(wanted):
            raise TypeError(f"the exported model takes {len(wanted)} arguments, got {len(args)}")
        given = dict(zip(wanted, args, strict=False))
        for name, value in kwargs.items():
            if name not in wanted or name in given:
                problem = "twice" if name in given else "and it takes none of that name"
                raise TypeError(
                    f"argument {name!r} of the exported model is given {problem}; it takes "
                    f"{', '.join(wanted) or 'no arguments'}"
                )
            given[name] = value
        missing = [name for name in wanted if name not in given]
        if missing:
            raise TypeError(
                f"the exported model needs {', '.join(missing)}; it takes {', '.join(wanted)}, as "
                "in the example that it was exported with"
            )
        values = tuple(given[name] for name in self.positional)
        return values, {name: given[name] for name in self.keywords}

    def _argument(self, spec: Any, value: Any, path: str) -> list[Any]:
        return [self._leaf(*found) for found in containers.match(spec, value, path)]

    def _leaf(self, spec: Any, value: Any, path: str) -> Any:
        if "value" in spec:
            wanted = spec["value"]
            if type(value) is not type(wanted) or value != wanted:
                raise ValueError(
                    f"{path} is {value!r}, but the model was exported with {wanted!r}, which is "
                    "part of its code. Cure: export it again with the other value"
                )
            return value
        if not isinstance(value, Tensor):
            cure = ". Cure: graphc.from_numpy(x)" if isinstance(value, np.ndarray) else ""
            raise TypeError(f"{path} must be a Tensor, got {type(value).__name__}{cure}")
        return value

    def bind(self, leaves: Sequence[Any]) -> dict[str, int]:
        """The values of the free sizes. Raises ValueError for a wrong dtype, rank or size."""
        dims: dict[str, int] = {}
        where: dict[str, str] = {}
        for spec, path, value in zip(self._specs(), self.leaf_paths(), leaves, strict=True):
            if "value" in spec:
                continue
            type_ = tensor_type(spec)
            array = value._array
            if array.dtype != type_.dtype.numpy or array.ndim != type_.rank:
                raise ValueError(_mismatch(path, type_, array))
            for i, (size, got) in enumerate(zip(type_.shape, array.shape, strict=True)):
                if isinstance(size, int):
                    if size != got:
                        raise ValueError(
                            _mismatch(path, type_, array)
                            + f". Cure: export it with dynamic_shapes={{{path!r}: {{{i}: ...}}}}"
                        )
                    continue
                self._size(str(size), got, f"dim {i} of {path}", dims, where)
        return dims

    def _size(
        self, name: str, got: int, place: str, dims: dict[str, int], where: dict[str, str]
    ) -> None:
        if dims.setdefault(name, got) != got:
            raise ValueError(
                f"{place} is {got}, but {where[name]} is {dims[name]}: both are {name!r}"
            )
        where.setdefault(name, place)
        bounds = self.ranges.get(name, Range(2, None))
        if got < bounds.least or (bounds.most is not None and got > bounds.most):
            most = "any size" if bounds.most is None else bounds.most
            raise ValueError(
                f"{place} is {got}, but {name!r} was exported for {bounds.least} to {most}. "
                f"Cure: export again with an example of size {got}"
            )

    def _specs(self) -> list[Any]:
        return list(containers.leaves_of(self.arguments))

    def leaf_paths(self) -> list[str]:
        """A name of each leaf of the arguments, for messages."""
        names: list[str] = []
        (_, args), (_, kwargs) = containers.children(self.arguments)
        specs = [spec for _, spec in containers.children(args)]
        specs += [spec for _, spec in containers.children(kwargs)]
        for name, spec in zip((*self.positional, *self.keywords), specs, strict=True):
            count = sum(1 for _ in containers.leaves_of(spec))
            names += [name] if count == 1 else [f"{name} (part {i})" for i in range(count)]
        return names

    def argument_inputs(self) -> dict[int, int]:
        """Which leaf each of the graph's argument inputs is."""
        return {
            spec["tensor"]: leaf
            for leaf, spec in enumerate(self._specs())
            if spec.get("tensor") is not None
        }

    # --- files -------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """The manifest's part."""
        return {
            "positional": list(self.positional),
            "keywords": list(self.keywords),
            "arguments": self.arguments,
            "results": self.results,
            "weights": list(self.weights),
            "dims": {name: [r.least, r.most] for name, r in sorted(self.ranges.items())},
        }

    def check(self, graph: Graph, state: Mapping[str, np.ndarray]) -> None:
        """Raise ExportError unless graph, weights and this signature fit each other."""
        if len(self.weights) != len(graph.inputs):
            raise ExportError(
                f"the graph has {len(graph.inputs)} inputs, the manifest {len(self.weights)}"
            )
        arguments = self.argument_inputs()
        specs = self._specs()
        for i, (name, node) in enumerate(zip(self.weights, graph.inputs, strict=True)):
            if name is not None:
                if name not in state:
                    raise ExportError(f"the weight {name!r} is missing")
                array = state[name]
                found = TensorType(dtypes.from_numpy(array.dtype), tuple(array.shape))
            elif i in arguments:
                found = tensor_type(specs[arguments[i]])
            else:
                raise ExportError(f"nothing says where input {i} of the graph comes from")
            if found != node.type:
                raise ExportError(f"input {i} of the graph is {node.type}, but its data is {found}")
        named = set(graph.env.hints)
        for spec in specs:
            if "value" not in spec:
                named -= {str(size) for size in tensor_type(spec).shape}
        if named:
            raise ExportError(f"no argument gives the free sizes {sorted(named)}")
        for leaf in containers.leaves_of(self.results):
            self._check_result(leaf, graph, state, len(specs))

    def _check_result(
        self, leaf: Any, graph: Graph, state: Mapping[str, np.ndarray], arguments: int
    ) -> None:
        kind, value = _one_item(leaf)
        fits = {
            "output": lambda: value in range(len(graph.outputs)),
            "argument": lambda: value in range(arguments) and "value" not in self._specs()[value],
            "weight": lambda: value in state,
            "size": lambda: _names(dim.parse(value)) <= set(graph.env.hints),
            "value": lambda: isinstance(value, VALUES),
        }
        try:
            good = kind in fits and fits[kind]()
        except (TypeError, ValueError, SyntaxError, KeyError, RecursionError):
            good = False
        if not good:
            raise ExportError(f"the manifest has the result {leaf!r}")


def _names(size: Size) -> set[str]:
    return set() if isinstance(size, int) else set(size.variables())


def _one_item(leaf: Any) -> tuple[str, Any]:
    if not isinstance(leaf, dict) or len(leaf) != 1:
        raise ExportError(f"the manifest has the result {leaf!r}")
    return next(iter(leaf.items()))


def tensor_type(spec: Mapping[str, Any]) -> TensorType:
    """The type of an argument's leaf."""
    shape = tuple(size if isinstance(size, int) else dim.parse(size) for size in spec["shape"])
    return TensorType(dtypes.by_name(spec["dtype"]), shape)


def _mismatch(path: str, type_: TensorType, array: np.ndarray) -> str:
    try:
        dtype = dtypes.from_numpy(array.dtype).name
    except (KeyError, ValueError):
        dtype = str(array.dtype)
    sizes = ",".join(map(str, array.shape))
    cast = "" if array.dtype == type_.dtype.numpy else f". Cure: convert it to {type_.dtype}"
    return f"{path} must be {type_}, got {dtype}[{sizes}]{cast}"


def from_json(data: Any) -> Signature:
    """The signature of a manifest. Raises ExportError where it is malformed."""
    try:
        ranges = {
            str(name): Range(int(least), None if most is None else int(most))
            for name, (least, most) in data["dims"].items()
        }
        signature = Signature(
            _strings(data["positional"]), _strings(data["keywords"]), data["arguments"],
            data["results"], tuple(None if w is None else str(w) for w in data["weights"]), ranges,
        )
        _check_arguments(signature)
    except (AssertionError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ExportError(f"the manifest is malformed: {error!r}") from None
    return signature


def _strings(values: Any) -> tuple[str, ...]:
    assert isinstance(values, list) and all(isinstance(v, str) for v in values)
    return tuple(values)


def _check_arguments(signature: Signature) -> None:
    args, kwargs = signature.arguments["tuple"]
    assert len(args["tuple"]) == len(signature.positional)
    assert [pair[0] for pair in kwargs["dict"]] == list(signature.keywords)
    for spec in containers.leaves_of(signature.arguments):
        assert isinstance(spec, dict)
        if "value" in spec:
            assert isinstance(spec["value"], VALUES)
            continue
        assert spec["tensor"] is None or type(spec["tensor"]) is int
        for size in tensor_type(spec).shape:
            # a free size is a plain name: it must be readable off a shape
            assert (size >= 0) if isinstance(size, int) else str(size).isidentifier()
