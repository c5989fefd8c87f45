"""An exported program as an ONNX model: inputs, weights, what it relies on, and results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphc.export import containers
from graphc.export.contents import Variant
from graphc.export.program import ExportedProgram
from graphc.export.signature import Signature, tensor_type
from graphc.ir import dim, dtypes
from graphc.ir.graph import Graph
from graphc.ir.late import late
from graphc.ir.memory import on_host
from graphc.ir.rewrite import apart
from graphc.ir.types import TensorType
from graphc.onnx.errors import OnnxExporterError

from . import (  # noqa: F401  (they fill the table of rules)
    arithmetic,
    composites,
    contractions,
    control,
    creation,
    elements,
    elementwise,
    indexing,
    movement,
    reductions,
    variants,
    windows,
)
from .reliance import Reliance, refusing
from .rules import WHY_NOT, refuse, takes
from .sizes import place_of
from .tidy import pruned, reads, renamed
from .walk import write
from .writer import Writer

_decompose = late("graphc.ir.passes.decompose")
_SMALL = 1024  # elements: constants that shapes may be made of are shown to the checker


@dataclass
class Model:
    """What is written. `proto` has no data of `weights` (those that users know by name) and of
    `constants`; both are initializers, by name. `arguments`: the leaf of each input."""

    proto: Any
    weights: dict[str, np.ndarray]
    constants: dict[str, np.ndarray]
    arguments: list[int]


@dataclass
class Names:
    """What the user calls inputs, results and free sizes (by the program's name of a size)."""

    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    sizes: Mapping[str, str] = field(default_factory=dict)


def make(program: ExportedProgram, opset: int, names: Names) -> Model:
    """The model of a program. Raises OnnxExporterError for what ONNX cannot say."""
    return _Maker(program, opset, names).make()


class _Maker:
    def __init__(self, program: ExportedProgram, opset: int, names: Names) -> None:
        self.program, self.names = program, names
        self.signature = program.signature
        self.w = Writer(opset)
        self.w.labels = names.sizes
        self.leaves = _leaves(self.signature)
        self.inputs: dict[int, str] = {}  # by leaf

    def make(self) -> Model:
        w, main = self.w, self.program.contents.main
        for node in main.graph.nodes:
            if node.op.family == "random":
                refuse(node, *WHY_NOT["random"])
        if main.signature.writes:
            named = ", ".join(repr(w.get("weight", "an argument")) for w in main.signature.writes)
            raise OnnxExporterError(
                f"the model writes to {named}, and an ONNX model only computes. Cure: call "
                "model.eval() before the export"
            )
        infos = self._inputs()
        outputs = self._output_names()
        weights = self._weights()
        same, others = variants.sorted_out(self.program.contents)
        reliance = Reliance(self.signature.ranges, main, others, same)
        self.checked = refusing(w, reliance)
        results = variants.chosen(w, reliance, self._written)
        values = [value for value, _ in results]
        nodes = renamed(w, pruned(w.nodes, values), values, outputs)
        used = {name for node in nodes for name in reads(node)}
        proto = self._proto(nodes, infos, [
            w.value_info(name, type_) for name, (_, type_) in zip(outputs, results, strict=True)
        ])
        kept = {name: array for name, array in w.initializers.items() if name in used}
        model = Model(
            proto, {name: kept[name] for name in kept if name in weights},
            {name: kept[name] for name in kept if name not in weights}, list(self.inputs),
        )
        _check(w.onnx, model)
        return model

    def _written(self, variant: Variant) -> list[tuple[str, TensorType]]:
        """The results of one of the program's graphs, whose nodes are written."""
        graph: Graph = _decompose.decompose(apart(variant.graph), lambda n: takes(self.w, n))
        values = write(self.w, graph, self._given(variant.signature))
        return list(self._results(variant, values))

    # --- inputs ------------------------------------------------------------------------------

    def _inputs(self) -> list[Any]:
        """Names and types of the arguments that are tensors."""
        tensors = [(i, path, spec) for i, (path, spec) in enumerate(self.leaves)
                   if "value" not in spec]
        wanted = list(self.names.inputs)
        if len(wanted) > len(tensors):
            raise OnnxExporterError(
                f"input_names has {len(wanted)} names for {len(tensors)} tensors. Cure: give "
                f"names for {', '.join(path for _, path, _ in tensors) or 'none'}"
            )
        found = []
        for number, (leaf, path, spec) in enumerate(tensors):
            type_ = tensor_type(spec)
            if not elements.known(type_.dtype):
                raise OnnxExporterError(
                    f"{path} is of {type_.dtype}, which ONNX's operators do not take. "
                    "Cure: pass its parts (view_as_real)"
                )
            asked = wanted[number] if number < len(wanted) else ""
            name = self.w.input(asked or path, type_.dtype)
            if asked and name != asked:
                raise OnnxExporterError(f"input_names has {asked!r} twice")
            self.inputs[leaf] = name
            found.append(self.w.value_info(name, type_))
            for d, size in enumerate(type_.shape):
                if not isinstance(size, int):
                    read, place = place_of(size, name, d)
                    if read not in self.w.places or self.w.places[read].scale != 1:
                        self.w.places[read] = place
        return found

    def _weights(self) -> set[str]:
        """Weights get their names, and are initializers; these names."""
        self.of_weight: dict[str, str] = {}
        for variant in self.program.variants:
            needed = [name for name in variant.signature.weights if name is not None]
            needed += [leaf["weight"] for leaf in containers.leaves_of(variant.signature.results)
                       if "weight" in leaf]
            for name in needed:
                if name not in self.of_weight:
                    self.of_weight[name] = self._weight(name)
        return set(self.of_weight.values())

    def _weight(self, name: str) -> str:
        array = np.asarray(on_host(self.program._weights[name]._graphc_array), order="C")
        dtype = dtypes.from_numpy(array.dtype)
        if not elements.known(dtype):
            raise OnnxExporterError(
                f"the weight {name!r} is of {dtype}, which ONNX's operators do not take. "
                "Cure: keep its real and imaginary part"
            )
        return self.w.weight(name, array)

    def _given(self, signature: Signature) -> list[str]:
        """The value of each input of a graph."""
        found = []
        for source in signature.inputs:
            ((kind, value),) = source.items()
            if kind == "weight":
                found.append(self.of_weight[value])
            elif kind == "argument":
                name = self.inputs[value]
                found.append(self.checked.get(name, name))
            else:
                raise OnnxExporterError(f"the program takes the {kind} {value!r} from Python")
        return found

    # --- results -----------------------------------------------------------------------------

    def _output_names(self) -> list[str]:
        leaves = [leaf for leaf in containers.leaves_of(self.signature.results)
                  if leaf != {"value": None}]
        wanted = list(self.names.outputs)
        if len(wanted) > len(leaves):
            raise OnnxExporterError(
                f"output_names has {len(wanted)} names, but the model gives {len(leaves)} results"
            )
        found = []
        for number in range(len(leaves)):
            asked = wanted[number] if number < len(wanted) else ""
            plain = "output" if len(leaves) == 1 else f"output_{number}"
            name = self.w.name(asked or plain)
            if asked and name != asked:
                raise OnnxExporterError(f"the name {asked!r} is given twice")
            found.append(name)
        return found

    def _results(
        self, variant: Variant, values: Sequence[str]
    ) -> Iterator[tuple[str, TensorType]]:
        """The value and the type of each result of a graph."""
        graph = variant.graph
        for leaf in containers.leaves_of(variant.signature.results):
            ((kind, value),) = leaf.items()
            if kind == "output":
                yield values[value], graph.outputs[value].tensor_type
            elif kind == "argument":
                yield self.inputs[value], tensor_type(self.leaves[value][1])
            elif kind == "weight":
                array = self.program._weights[value]._graphc_array
                yield self.of_weight[value], TensorType(
                    dtypes.from_numpy(array.dtype), tuple(array.shape)
                )
            elif kind == "size":
                yield self.w.size(dim.parse(value)), TensorType(dtypes.i64, ())
            elif value is not None:
                yield self._number(value)

    def _number(self, value: Any) -> tuple[str, TensorType]:
        if isinstance(value, str):
            raise OnnxExporterError(
                f"the model returns the text {value!r}, and an ONNX model returns tensors. "
                "Cure: return tensors and numbers"
            )
        dtype = {bool: dtypes.bool_, int: dtypes.i64}.get(type(value), dtypes.f32)
        return self.w.constant(value, dtype), TensorType(dtype, ())

    # --- the whole ---------------------------------------------------------------------------

    def _proto(self, nodes: Sequence[Any], inputs: list[Any], outputs: list[Any]) -> Any:
        helper = self.w.onnx.helper
        opset = helper.make_opsetid("", self.w.opset)
        proto = helper.make_model(
            helper.make_graph(nodes, self.program.graph.name, inputs, outputs),
            opset_imports=[opset], producer_name="graphc",
            ir_version=helper.find_min_ir_version_for([opset]),
        )
        ranges = {
            self.names.sizes.get(name, name): f"{bounds.least}..{bounds.most or ''}"
            for name, bounds in self.signature.ranges.items()
        }
        if ranges:
            helper.set_model_props(proto, {f"range of {k}": v for k, v in ranges.items()})
        return proto


def _leaves(signature: Signature) -> list[tuple[str, Any]]:
    """(name, what is said of it) of each leaf of the arguments."""
    (_, args), (_, kwargs) = containers.children(signature.arguments)
    specs = [spec for _, spec in containers.children(args)]
    specs += [spec for _, spec in containers.children(kwargs)]
    found: list[tuple[str, Any]] = []
    for name, spec in zip((*signature.positional, *signature.keywords), specs, strict=True):
        found += _named(spec, name)
    return found


def _named(spec: Any, name: str) -> Iterator[tuple[str, Any]]:
    if not containers.is_container(spec):
        yield name, spec
        return
    for key, item in containers.children(spec):
        yield from _named(item, f"{name}_{key}")


def _check(onnx: Any, model: Model) -> None:
    """Ask ONNX's own checker, with the shapes that follow; large constants are inputs for it."""
    checked = onnx.ModelProto()
    checked.CopyFrom(model.proto)
    for name, array in (*model.weights.items(), *model.constants.items()):
        if array.size <= _SMALL:
            checked.graph.initializer.append(elements.tensor_proto(onnx, name, array))
        else:
            dtype = dtypes.from_numpy(array.dtype)
            checked.graph.input.append(
                onnx.helper.make_tensor_value_info(name, elements.number(dtype), array.shape)
            )
    onnx.checker.check_model(checked, full_check=True)
