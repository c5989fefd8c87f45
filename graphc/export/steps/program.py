"""An exported training step: a graph, the state that it reads and writes, and Python's numbers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from os import PathLike
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from graphc import config
from graphc.backends import DEFAULT
from graphc.engine import pipeline
from graphc.engine.built import Engine, Engines, before_write, count_writes
from graphc.engine.devices import backend_at
from graphc.export import archive, containers
from graphc.export.contents import GOLDEN, Contents, Golden, Variant
from graphc.export.errors import ExportError
from graphc.export.limits import DEFAULT as DEFAULT_LIMITS
from graphc.export.limits import Allowed, Limits
from graphc.export.signature import Signature, Weights, refuse
from graphc.export.steps import manifest, numbers
from graphc.frontend.placement import Place, one_place
from graphc.frontend.random_state import seed_words
from graphc.frontend.tensor import Tensor, from_array
from graphc.ir import dim, dtypes, forks
from graphc.ir.graph import Graph, Node
from graphc.ir.late import late
from graphc.ir.memory import on_host
from graphc.ir.record import replaced

_specialise = late("graphc.ir.passes.specialise")  # a pass, which most steps run without
CALLS = "calls"  # in a state_dict: how many there were, where there are tables


class Entry(NamedTuple):
    """A part of the step's state. `kind`: "parameter", "buffer", "optimizer", "gradient",
    "generator", "number" or "state"; `read`, `written`: by a call."""

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    read: bool
    written: bool


class Plan(NamedTuple):
    """A graph of a step. By number of the output, `mutated` says which input's memory it goes into,
    being the same weight; the writes that are `copied` have no such input."""

    variant: Variant
    mutated: Mapping[int, int]
    copied: Sequence[Mapping[str, Any]]

    @staticmethod
    def of(variant: Variant) -> Plan:
        """Of a graph of a file."""
        signature = variant.signature
        number_of = {
            source["weight"]: i for i, source in enumerate(signature.inputs) if "weight" in source
        }
        mutated = {
            write["output"]: number_of[write["weight"]] for write in signature.writes
            if write["weight"] in number_of
        }
        return Plan(variant, mutated, [w for w in signature.writes if w["output"] not in mutated])


class ExportedStep:
    """A training step without its code: `loss = step(x, y)` computes, and changes the state in it.

    `state_dict()` has all of that: parameters and buffers by the model's names, the optimizer's
    state, the generator, and Python's numbers (a learning rate) as tensors without dimensions.
    `numbers` are these as Python has them, and can be set. Calls of several threads wait for each
    other. There is no autograd.
    """

    def __init__(
        self, contents: Contents, place: Place | None = None, bounds: Limits = DEFAULT_LIMITS
    ) -> None:
        """The arrays of `contents` become the state."""
        if contents.kind != "step" or contents.step is None:
            raise ExportError(f"this is a {contents.kind}, not a training step")
        self.contents = contents
        self.variant: Variant = contents.main
        self.graph: Graph = self.variant.graph
        self.signature: Signature = self.variant.signature
        self._step = contents.step
        for variant in contents.variants:
            manifest.check(contents.step, variant, contents.weights.arrays)
        self._place, self._allowed = place, Allowed(bounds)
        self._weights = {
            name: from_array(array if place is None else place.put(array))
            for name, array in contents.weights.arrays.items()
        }
        # what recorded calls begin with: of a large state only whether it is still there
        self._begun = self._versions() if any(not g.state for g in contents.goldens) else ()
        self._before = _copies(contents.weights.arrays) if self._begun else None
        self._own: dict[str, Any] = {**self._step["settings"], **self._step["counters"]}
        self.calls = int(self._step["calls"])
        self.numbers: MutableMapping[str, Any] = _Numbers(self)
        self._lock = forks.rlock()
        self._engines: dict[tuple[str, str, frozenset[str]], Engines] = {}
        self._plans = {each.ones: Plan.of(each) for each in contents.variants}

    def plan_at(self, dims: Mapping[str, int]) -> Plan:
        """The graph that stands for these sizes."""
        ones = frozenset(name for name, size in dims.items() if size == 1)
        return self._plans.get(ones, self._plans[frozenset()])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """One step; the function's results. Raises TypeError or ValueError for arguments unlike the
        example; then, and where the graph refuses a value, the state is as it was."""
        leaves = self.signature.leaves(args, kwargs)
        refuse(leaves)
        with self._lock:
            dims = self.signature.bind(leaves)
            plan = self.plan_at(dims)
            if dims:
                self._allowed.check(plan.variant, dims)
            sources = self._sources(leaves)
            self._check_decided(sources, dims)
            updates = {
                name: self._number(each, sources, dims)
                for name, each in self._step["updates"].items()
            }
            outputs = self._compute(plan, leaves, sources, dims)
            self._own.update(updates)
            self.calls += 1
            return self._results(plan, outputs, leaves, sources, dims)

    def __repr__(self) -> str:
        return f"ExportedStep({', '.join(self.signature.leaf_paths())}):\n{self.graph}"

    # --- state ---------------------------------------------------------------------------------

    @property
    def entries(self) -> list[Entry]:
        """All parts of the state, in the order of state_dict()."""
        weights = self.contents.weights
        signatures = [variant.signature for variant in self.contents.variants]
        read = {source.get("weight") for each in signatures for source in each.inputs}
        written = {write["weight"] for each in signatures for write in each.writes}
        found: list[Entry] = []
        for name in weights.state:
            tensor = self._weights[weights.tied.get(name, name)]
            kind = "parameter" if name in weights.parameters else weights.kinds.get(name, "buffer")
            shape = tuple(int(size) for size in tensor._graphc_array.shape)
            found.append(
                Entry(name, kind, tensor.dtype.name, shape, name in read, name in written)
            )
        for name, value in self._own.items():
            dtype = "f64" if type(value) is float else "i64"
            found.append(Entry(name, "number", dtype, (), True, name in self._step["updates"]))
        return found

    def state_dict(self) -> OrderedDict[str, Tensor]:
        """All that a call reads and changes, by name: the tensors themselves, and numbers as new
        ones."""
        weights = self.contents.weights
        with self._lock:
            found = OrderedDict(
                (name, self._weights[weights.tied.get(name, name)].detach())
                for name in weights.state
            )
            for name, value in self._own.items():
                found[name] = from_array(np.asarray(value, _dtype_of(value)))
            if self._step["tables"]:
                found[CALLS] = from_array(np.asarray(self.calls, np.int64))
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Go on from a state_dict: all of it, or nothing is changed. Floats are converted to the
        state's dtype, and so are integers. Raises RuntimeError for names that are missing or
        unknown (if `strict`), other sizes, and numbers that are of another kind."""
        with self._lock:
            have = self.state_dict()
            problems: list[str] = []
            if strict:
                missing = [name for name in have if name not in state_dict]
                unknown = [name for name in state_dict if name not in have]
                problems += [f"missing: {', '.join(missing)}"] if missing else []
                problems += [f"unknown: {', '.join(map(str, unknown))}"] if unknown else []
            given: dict[str, np.ndarray] = {}
            for name, tensor in have.items():
                if name in state_dict:
                    array, problem = _converted(name, state_dict[name], tensor)
                    problems += [problem] if problem else []
                    given[name] = array
            if problems:
                raise RuntimeError(
                    "the state_dict does not fit the exported step: " + "; ".join(problems)
                )
            for name, array in given.items():
                self._take(name, array)

    def _take(self, name: str, array: np.ndarray) -> None:
        if name == CALLS:
            self.calls = max(int(array), 0)
        elif name in self._own:
            self._own[name] = type(self._own[name])(array.item())
        else:
            tensor = self._weights[self.contents.weights.tied.get(name, name)]
            written = [(tensor._graphc_storage, 1)]
            before_write(written)
            if self._place is None:
                tensor._graphc_array[...] = array
            else:
                tensor._graphc_array = self._place.put(np.asarray(array, order="C"))
            count_writes(written)

    def manual_seed(self, seed: int) -> None:
        """Start the stream of random numbers that torch.manual_seed(seed) starts, in every
        generator that the step draws from. Raises RuntimeError for a step that draws none."""
        if not self.generators:
            raise RuntimeError("the exported step draws no random numbers")
        with self._lock:
            for name in self.generators:
                self._take(name, seed_words(int(seed) % 2**64))

    @property
    def generators(self) -> tuple[str, ...]:
        """The names of the random generators that the step draws from."""
        told, kinds = self.contents.generator, self.contents.weights.kinds
        named = [name for name, kind in kinds.items() if kind == "generator"]
        return tuple(dict.fromkeys([*([told["weight"]] if told else []), *named]))

    def save(
        self, path: str | PathLike[str] | BinaryIO, *, extra_files: Mapping[str, str] | None = None
    ) -> None:
        """Write a .gcx file with the state as it is now, whole or not at all. `extra_files` are
        texts by name, which load(path, extra_files=...) gives back."""
        contents = self.snapshot()
        if extra_files is not None:
            contents = replaced(contents, extra=dict(extra_files))
        archive.write(path, contents)

    def snapshot(self) -> Contents:
        """What a file holds of the step as it is now."""
        old = self.contents
        with self._lock:
            arrays = {
                name: np.array(on_host(tensor._graphc_array), order="C")
                for name, tensor in self._weights.items()
            }
            was, step = old.weights, dict(self._step)
            for key in ("settings", "counters"):
                step[key] = {name: self._own[name] for name in self._step[key]}
            step["calls"] = self.calls
        weights = Weights(arrays, was.state, was.tied, was.parameters, was.buffers, was.kinds)
        return replaced(old, weights=weights, step=step, native=(), goldens=self._goldens())

    def _versions(self) -> tuple[int, ...]:
        return tuple(tensor._graphc_storage.version for tensor in self._weights.values())

    def _goldens(self) -> tuple[Golden, ...]:
        """The recorded calls, with what they found where that is no longer the state; without
        those that found more than a file keeps twice."""
        goldens = self.contents.goldens
        if self._versions() == self._begun:
            return goldens
        before = self._before
        if before is None:
            return tuple(golden for golden in goldens if golden.state)
        return tuple(g if g.state else replaced(g, state=before) for g in goldens)

    # --- a call --------------------------------------------------------------------------------

    def _sources(self, leaves: Sequence[Any]) -> dict[str, Any]:
        """Python's numbers as this call finds them."""
        found = dict(self._own)
        for name, weight in self._step["tables"].items():
            rows = self._weights[weight]._graphc_array
            if self.calls >= len(rows):
                raise ValueError(
                    f"the step was exported with a schedule of {len(rows)} calls, and this is "
                    f"call {self.calls + 1}. Cure: export_step(..., calls=N) with more"
                )
            found[name] = rows[self.calls].item()
        for spec, leaf in zip(self.signature.specs(), leaves, strict=True):
            if "number" in spec:
                found[spec["number"]] = leaf
        return found

    def _number(self, expression: Any, sources: Mapping[str, Any], dims: Mapping[str, int]) -> Any:
        try:
            return numbers.evaluate(expression, sources, dims)
        except numbers.ERRORS as error:
            raise ValueError(
                f"{numbers.said(expression)} cannot be computed: {error}. Cure: other numbers"
            ) from None

    def _check_decided(self, sources: Mapping[str, Any], dims: Mapping[str, int]) -> None:
        for each in self._step["decided"]:
            found = self._number(each["expression"], sources, dims)
            if type(found) is not type(each["value"]) or found != each["value"]:
                line = f" at {each['line']}" if each["line"] else ""
                raise ValueError(
                    f"the step was exported where {numbers.said(each['expression'])} is "
                    f"{each['value']!r}{line}, and now it is {found!r}. Cure: export it again for "
                    "such numbers"
                )

    def _compute(
        self, plan: Plan, leaves: Sequence[Any], sources: Mapping[str, Any],
        dims: Mapping[str, int],
    ) -> list[np.ndarray]:
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        run = self._runner(plan, one_place([*tensors, *self._weights.values()]), dims)
        signature = plan.variant.signature
        arrays = [
            self._input(node, source, leaves, sources, dims)
            for node, source in zip(plan.variant.graph.inputs, signature.inputs, strict=True)
        ]
        written = [(self._weights[w["weight"]]._graphc_storage, 1) for w in signature.writes]
        before_write(written)
        outputs = run(arrays)
        for write in plan.copied:
            self._weights[write["weight"]]._graphc_array[...] = outputs[write["output"]]
        count_writes(written)
        return outputs

    def _input(
        self, node: Node, source: Mapping[str, Any], leaves: Sequence[Any],
        sources: Mapping[str, Any], dims: Mapping[str, int],
    ) -> Any:
        ((kind, value),) = source.items()
        if kind == "weight":
            return self._weights[value]._graphc_array
        if kind == "argument":
            return leaves[value]._graphc_array
        number = self._number(self._step["computed"][value], sources, dims)
        return np.asarray(number, node.tensor_type.dtype.numpy)

    def _runner(
        self, plan: Plan, place: Place | None, dims: Mapping[str, int]
    ) -> Callable[[list[Any]], list[Any]]:
        """What makes the graph's outputs of its inputs."""
        engine = self._engine(plan, place, dims)
        return lambda arrays: engine.call(arrays, dims)[1]

    def _engine(self, plan: Plan, place: Place | None, dims: Mapping[str, int]) -> Engine:
        """Code for these sizes: for all but 1, and of its own for each set of dims that are 1."""
        settings = config.current()
        if self._step["random"] is not None:
            settings = settings._replace(random=self._step["random"])
        name = backend_at(place, DEFAULT)
        ones = frozenset(each for each, size in dims.items() if size == 1)
        key = name, settings.random, ones
        engines = self._engines.get(key)
        if engines is None:
            graph, mutated = plan.variant.graph, plan.mutated
            if ones - plan.variant.ones:
                graph = _specialise.at_sizes(graph, dict.fromkeys(ones, 1))
            engines = self._engines[key] = Engines(graph, lambda graph: Engine.of(
                pipeline.build(
                    graph, config=settings, mutated=mutated, name=graph.name, backend=name
                ), mutated,
            ))
        return engines.at(dims)

    def lower(self) -> Any:
        """The pipeline's Built, compiled now if it is not yet."""
        with self._lock:
            plan = self._plans[frozenset()]
            return self._engine(plan, self._place, self.graph.env.hints).built

    def _results(
        self, plan: Plan, outputs: Sequence[np.ndarray], leaves: Sequence[Any],
        sources: Mapping[str, Any], dims: Mapping[str, int],
    ) -> Any:
        def leaf(spec: Any) -> Any:
            ((kind, value),) = spec.items()
            if kind == "output":
                return from_array(outputs[value])
            if kind == "item":
                return from_array(outputs[value]).item()
            if kind == "numpy":
                return from_array(outputs[value]).numpy()
            if kind == "argument":
                return leaves[value]
            if kind == "weight":
                return self._weights[value].detach()
            if kind == "computed":
                return self._number(value, sources, dims)
            return dim.evaluate(dim.parse(value), dims) if kind == "size" else value

        return containers.build(plan.variant.signature.results, leaf)


class _Numbers(MutableMapping[str, Any]):
    """Python's numbers of a step; those of a schedule's table are read alone."""

    def __init__(self, step: ExportedStep) -> None:
        self._of = step

    def __getitem__(self, name: str) -> Any:
        step = self._of
        if name in step._own:
            return step._own[name]
        rows = step._weights[step._step["tables"][name]]._graphc_array
        return rows[min(step.calls, len(rows) - 1)].item()

    def __setitem__(self, name: str, value: Any) -> None:
        step = self._of
        if name not in step._own:
            why = "a schedule's" if name in step._step["tables"] else "not one of them"
            raise KeyError(
                f"the number {name!r} of the exported step is {why}; those that can be set: "
                f"{', '.join(step._own) or 'none'}"
            )
        kind = type(step._own[name])
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise TypeError(f"{name} is a {kind.__name__}, got {value!r}")
        with step._lock:
            step._own[name] = kind(value)

    def __delitem__(self, name: str) -> None:
        raise TypeError("numbers of an exported step cannot be removed")

    def __iter__(self) -> Iterator[str]:
        return iter([*self._of._own, *self._of._step["tables"]])

    def __len__(self) -> int:
        return len(self._of._own) + len(self._of._step["tables"])

    def __repr__(self) -> str:
        return repr(dict(self))


def _copies(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    """Copies of a state that is small; None of a larger one."""
    if sum(array.nbytes for array in arrays.values()) > GOLDEN:
        return None
    return {name: array.copy() for name, array in arrays.items()}


def _dtype_of(value: Any) -> Any:
    return np.float64 if type(value) is float else np.int64


def _converted(name: str, value: Any, like: Tensor) -> tuple[Any, str]:
    """An array for a part of the state, and what is wrong with it ("": nothing)."""
    if isinstance(value, Tensor):
        array = np.asarray(on_host(value.detach()._graphc_array))
    elif isinstance(value, int | float | np.ndarray | np.generic):
        array = np.asarray(value)
    else:
        return None, f"{name} is a {type(value).__name__}"
    if array.shape != tuple(like._graphc_array.shape):
        return (
            None,
            f"{name} has the sizes {list(array.shape)}, not {list(like._graphc_array.shape)}",
        )
    try:
        kind = dtypes.from_numpy(array.dtype)
    except (KeyError, ValueError):
        return None, f"{name} is of dtype {array.dtype}"
    wanted = like.dtype
    if kind is not wanted and (
        kind.is_float != wanted.is_float or kind.is_complex != wanted.is_complex
        or wanted is dtypes.bool_ or (not wanted.is_float and kind.bits > wanted.bits)
    ):
        return None, f"{name} is {kind.name}, not {wanted.name}"
    return array.astype(wanted.numpy), ""
