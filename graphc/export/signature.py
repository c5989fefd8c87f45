"""What an exported model takes and gives, apart from its code: the manifest of a file.

A leaf of the arguments is {"dtype", "shape"}, whose sizes are ints or texts of Dims, or
{"value": v}, which a call must repeat. Where a graph's input comes from is {"argument": leaf
number}, {"weight": name} or {"number": name}. A leaf of the results is {"output": i}, {"argument":
leaf number}, {"weight": name}, {"size": text of a Dim} or {"value": v}. A write is {"output": i}
with the weight or the argument that becomes it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from graphc.export import containers
from graphc.export.dynamic_shapes import Range
from graphc.export.errors import ExportError
from graphc.frontend.context import local
from graphc.frontend.errors import located
from graphc.frontend.history import requires_grad
from graphc.frontend.tensor import Tensor
from graphc.ir import dim, dtypes
from graphc.ir.dim import Dim, is_variable
from graphc.ir.types import TensorType

VALUES = (str, int, float, bool, type(None))


@dataclass(frozen=True)
class Weights:
    """The data of an exported model: `arrays` by name.

    `state` are the names of the model's state_dict in order, `tied` those of them that are second
    names of an array, `parameters` those that are parameters; `buffers` are buffers which are not
    in the state_dict. `kinds` says what other arrays are: "optimizer", "generator", "number",
    "gradient"; what has none is a constant.
    """

    arrays: Mapping[str, np.ndarray]
    state: tuple[str, ...] = ()
    tied: Mapping[str, str] = field(default_factory=dict)
    parameters: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The manifest's part."""
        return {
            "state": list(self.state), "tied": dict(self.tied), "parameters": list(self.parameters),
            "buffers": list(self.buffers), "kinds": dict(self.kinds),
        }


KINDS = ("optimizer", "generator", "number", "gradient")


def weights_from_json(data: Any, arrays: Mapping[str, np.ndarray]) -> Weights:
    """The names of a manifest with their data. Raises ExportError where they do not fit."""
    try:
        found = Weights(
            arrays, strings(data["state"]), dict(data["tied"]), strings(data["parameters"]),
            strings(data.get("buffers", [])), dict(data.get("kinds", {})),
        )
        for name, first in found.tied.items():
            _hold(first in arrays and name not in arrays and name in found.state, name)
        for name in (*found.state, *found.parameters):
            _hold(name in arrays or name in found.tied, name)
        for name in found.buffers:
            _hold(name in arrays and name not in found.state, name)
        for name, kind in found.kinds.items():
            _hold(name in arrays and kind in KINDS, name)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ExportError(f"the manifest's names of weights are malformed: {error!r}") from None
    return found


@dataclass(frozen=True)
class Signature:
    """The arguments and results of an exported model.

    `positional` are the arguments' names in order, `keywords` those given by name in the example.
    `inputs[i]` says where graph input i comes from. `narrowed` says of a name why its range does
    not begin with 1.
    """

    positional: tuple[str, ...]
    keywords: tuple[str, ...]
    arguments: Any  # JSON: a tuple of (tuple of positional, dict of keywords)
    results: Any  # JSON
    inputs: tuple[Mapping[str, Any], ...]
    ranges: Mapping[str, Range]
    writes: tuple[Mapping[str, Any], ...] = ()
    narrowed: Mapping[str, str] = field(default_factory=dict)

    @property
    def weights(self) -> tuple[str | None, ...]:
        """Per graph input: the weight's name, None where it is none."""
        return tuple(source.get("weight") for source in self.inputs)

    # --- calls -------------------------------------------------------------------------------

    def leaves(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """The leaves of a call's arguments. Raises TypeError for other arguments than exported."""
        return [self.leaf(*each) for each in self.matched(args, kwargs)]

    def matched(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Iterator[tuple[Any, Any, str]]:
        """(JSON, value, name) of each leaf of a call's arguments. Raises TypeError for other
        containers than exported."""
        args, kwargs = self._as_exported(args, dict(kwargs))
        (_, spec_args), (_, spec_kwargs) = containers.children(self.arguments)
        for i, (_, spec) in enumerate(containers.children(spec_args)):
            yield from containers.match(spec, args[i], self.positional[i])
        for name, spec in containers.children(spec_kwargs):
            yield from containers.match(spec, kwargs[name], name)

    def named_arguments(self) -> Iterator[tuple[str, Any]]:
        """(name, JSON) of each leaf of the arguments: "x", "x[0]"."""
        (_, args), (_, kwargs) = containers.children(self.arguments)
        specs = [*containers.children(args), *containers.children(kwargs)]
        for name, (_, spec) in zip((*self.positional, *self.keywords), specs, strict=True):
            yield from containers.named(spec, name)

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

    def leaf(self, spec: Any, value: Any, path: str) -> Any:
        """A leaf of a call's arguments, as the program takes it. Raises TypeError or ValueError for
        another kind of value, or another number or text than exported."""
        if "number" in spec:  # of a training step: each call gives it
            kind = type(spec["value"])
            if type(value) is not kind and (kind, type(value)) != (float, int):
                raise TypeError(f"{path} must be a {kind.__name__}, got {_short(value)}")
            return kind(value)
        if "value" in spec:
            wanted = spec["value"]
            if type(value) is not type(wanted) or not (
                value == wanted or (value != value and wanted != wanted)  # NaN
            ):
                raise ValueError(
                    f"{path} is {_short(value)}, but the model was exported with {wanted!r}, which "
                    "is part of its code. Cure: export it again with the other value"
                )
            return value
        if not isinstance(value, Tensor):
            cure = ". Cure: graphc.from_numpy(x)" if isinstance(value, np.ndarray) else ""
            raise TypeError(f"{path} must be a Tensor, got {type(value).__name__}{cure}")
        return value

    def bind(self, leaves: Sequence[Any]) -> dict[str, int]:
        """The values of the free sizes. Raises ValueError for a wrong dtype, rank or size."""
        return Binding(self).of(leaves)

    @cached_property
    def described(self) -> tuple[tuple[str, TensorType | None], ...]:
        """The name of each leaf of the arguments, and its type; None for a number or a text."""
        types = [None if "value" in spec else tensor_type(spec) for spec in self.specs()]
        return tuple(zip(self.leaf_paths(), types, strict=True))

    @cached_property
    def flat_inputs(self) -> tuple[tuple[str, Any], ...]:
        """(kind, which) of each graph input: ("argument", 0), ("weight", "0.bias")."""
        return tuple(pair for source in self.inputs for pair in source.items())

    @cached_property
    def flat_results(self) -> tuple[tuple[str, Any], ...]:
        """(kind, which) of each leaf of the results."""
        return tuple(pair for leaf in containers.leaves_of(self.results) for pair in leaf.items())

    def specs(self) -> list[Any]:
        """The JSON of each leaf of the arguments."""
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
            number: source["argument"]
            for number, source in enumerate(self.inputs) if "argument" in source
        }

    # --- files -------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """The manifest's part that all graphs have together."""
        return {
            "positional": list(self.positional),
            "keywords": list(self.keywords),
            "arguments": containers.to_file(self.arguments),
            "dims": {name: [r.least, r.most] for name, r in sorted(self.ranges.items())},
            "narrowed": dict(sorted(self.narrowed.items())),
        }

    def of_graph(self) -> dict[str, Any]:
        """The part that is one graph's."""
        return {
            "inputs": [dict(source) for source in self.inputs],
            "results": containers.to_file(self.results),
            "writes": [dict(write) for write in self.writes],
        }


class Binding:
    """The free sizes of one call, found name by name."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.dims: dict[str, int] = {}
        self.where: dict[str, str] = {}

    def of(self, leaves: Sequence[Any]) -> dict[str, int]:
        """See Signature.bind."""
        followers: list[tuple[Dim, int, str]] = []
        for (path, type_), value in zip(self.signature.described, leaves, strict=True):
            if type_ is None:
                continue
            array = value._graphc_array
            if array.dtype != type_.dtype.numpy or array.ndim != type_.rank:
                raise ValueError(_mismatch(path, type_, array))
            for i, (size, got) in enumerate(zip(type_.shape, array.shape, strict=True)):
                if isinstance(size, int):
                    if size != got:
                        raise ValueError(
                            _mismatch(path, type_, array)
                            + f". Cure: export it with dynamic_shapes={{{path!r}: {{{i}: ...}}}}"
                        )
                elif is_variable(size):
                    self._size(str(size), got, f"dim {i} of {path}")
                else:
                    followers.append((size, got, f"dim {i} of {path}"))
        for follower in followers:
            self._follower(*follower)
        return self.dims

    def _size(self, name: str, got: int, place: str) -> None:
        if self.dims.setdefault(name, got) != got:
            raise ValueError(
                f"{place} is {got}, but {self.where[name]} is {self.dims[name]}: both are {name!r}"
            )
        self.where.setdefault(name, place)
        bounds = self.signature.ranges.get(name, Range(2, None))
        if got not in bounds:
            reason = self.signature.narrowed.get(name)
            why = f": {reason}" if reason and got < bounds.least else ""
            raise ValueError(
                f"{place} is {got}, but {name!r} was exported for {bounds}{why}. "
                f"Cure: export again with an example of size {got}"
            )

    def _follower(self, size: Dim, got: int, place: str) -> None:
        """A size a*name + b, which says what `name` is where no other dim does."""
        (name,) = size.variables()
        known = self.dims.get(name)
        if known is not None:
            wanted = dim.evaluate(size, {name: known})
            if wanted != got:
                raise ValueError(f"{place} is {got}, but {size} is {wanted}, as {self.where[name]} "
                                 f"is {known}, which is {name!r}")
            return
        zero, one = (dim.evaluate(size, {name: value}) for value in (0, 1))
        found, rest = divmod(got - zero, one - zero)
        if rest:
            raise ValueError(f"{place} is {got}, but the model was exported for {size}, {name!r} "
                             f"being {self.signature.ranges.get(name, Range(2, None))}")
        self._size(name, found, f"{place}, which is {size}, says that {name!r}")


def outside_graphs(function: Callable[..., Any]) -> Callable[..., Any]:
    """A call of an exported program: it is compiled already, so that a function that calls it
    runs in segments."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        trace = local.trace
        if trace is None:
            return function(*args, **kwargs)
        trace.end_segment("a call of an exported program",
                          "call it before and after the compiled function" + trace.otherwise)
        with trace.suspended():
            return function(*args, **kwargs)

    return run


def refuse(leaves: Sequence[Any]) -> None:
    """Raise for arguments that require a gradient."""
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            continue
        if local.grad and requires_grad(leaf):
            raise RuntimeError(located(
                "an exported program has no autograd, and an argument requires a gradient. "
                "Cure: call it under no_grad(), or detach() the argument"
            ))


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, VALUES) else f"a {type(value).__name__}"
    return text if len(text) < 60 else text[:57] + "..."


def tensor_type(spec: Mapping[str, Any]) -> TensorType:
    """The type of an argument's leaf."""
    shape = tuple(size if isinstance(size, int) else dim.parse(size) for size in spec["shape"])
    return TensorType(dtypes.by_name(spec["dtype"]), shape)


def type_text(array: Any) -> str:
    """An array's type as the IR spells it, for messages."""
    try:
        dtype = dtypes.from_numpy(array.dtype).name
    except (KeyError, ValueError, TypeError):
        dtype = str(array.dtype)
    return f"{dtype}[{','.join(map(str, array.shape))}]"


def _mismatch(path: str, type_: TensorType, array: Any) -> str:
    cast = "" if array.dtype == type_.dtype.numpy else f". Cure: convert it to {type_.dtype}"
    return f"{path} must be {type_}, got {type_text(array)}{cast}"


def json_with(spec: Any, leaf: Any) -> Any:
    """The JSON of containers with other leaves."""
    if not containers.is_container(spec):
        return leaf(spec)
    found = dict(spec)
    for kind in ("list", "tuple", "items"):
        if kind in found:
            found[kind] = [json_with(item, leaf) for item in found[kind]]
    for kind in ("dict", "ordered_dict"):
        if kind in found:
            found[kind] = [[key, json_with(item, leaf)] for key, item in found[kind]]
    return found


# --- reading -----------------------------------------------------------------------------------


def strings(values: Any) -> tuple[str, ...]:
    """A list of strings. Raises ValueError for anything else."""
    _hold(isinstance(values, list) and all(isinstance(v, str) for v in values), "a list of names")
    return tuple(values)


def _hold(fits: bool, what: Any) -> None:
    if not fits:
        raise ValueError(f"{what!r} does not fit")


def from_json(data: Any, graph: Any) -> Signature:
    """The signature of a manifest and of one of its graphs. Raises ExportError where it is
    malformed."""
    try:
        ranges = {str(name): _range(*pair) for name, pair in data["dims"].items()}
        narrowed = {str(k): str(v) for k, v in data.get("narrowed", {}).items()}
        signature = Signature(
            strings(data["positional"]), strings(data["keywords"]),
            containers.from_file(data["arguments"]), containers.from_file(graph["results"]),
            tuple(_source(source) for source in graph["inputs"]), ranges,
            tuple(_write(write) for write in graph["writes"]), narrowed,
        )
        _check_arguments(signature)
    except (KeyError, TypeError, ValueError, AttributeError, SyntaxError) as error:
        raise ExportError(f"the manifest is malformed: {error!r}") from None
    return signature


def _range(least: Any, most: Any) -> Range:
    _hold(type(least) is int and least >= 1, least)
    _hold(most is None or (type(most) is int and most >= least), most)
    return Range(least, most)


def _source(source: Any) -> dict[str, Any]:
    ((kind, value),) = source.items()
    wanted: Any = {"argument": int, "weight": str, "number": str}[kind]
    _hold(type(value) is wanted, source)
    return {kind: value}


def _write(write: Any) -> dict[str, Any]:
    output, (kind, target) = write["output"], next(i for i in write.items() if i[0] != "output")
    _hold(len(write) == 2 and type(output) is int, write)
    _hold(type(target) is {"weight": str, "argument": int}[kind], write)
    return {"output": output, kind: target}


def _check_arguments(signature: Signature) -> None:
    args, kwargs = signature.arguments["tuple"]
    _hold(len(args["tuple"]) == len(signature.positional), "the number of arguments")
    _hold([pair[0] for pair in kwargs["dict"]] == list(signature.keywords), "keywords")
    for spec in containers.leaves_of(signature.arguments):
        _hold(isinstance(spec, dict), spec)
        if "value" in spec:
            _hold(isinstance(spec["value"], VALUES), spec)
            continue
        for size in tensor_type(spec).shape:
            _hold(size >= 0 if isinstance(size, int) else follows(size), spec)


def follows(size: Dim) -> bool:
    """Whether a size is a*name + b with positive a: it can be read off a shape."""
    if len(size.variables()) != 1:
        return False
    return all(
        not monomial or (
            len(monomial) == 1 and monomial[0][0].kind == "var" and monomial[0][1] == 1
            and factor > 0
        )
        for monomial, factor in size.terms
    )
