"""GraphProtos as Programs: names become numbers, attributes Python's values, operators rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...package import onnx
from ..errors import refuse
from ..files import domain_of, versions_of
from ..tensors import array_of
from .carried import held_array, kind_for
from .fallback import body_of, grown
from .numbers import Numbers
from .program import ABSENT, Program, Step, small
from .schemas import check_node
from .table import Node, Operator, find

MOST_NODES = 200_000  # with those of functions, each time that one is called
MOST_DEPTH = 64  # of subgraphs and functions in each other
# one number that these read is a factor, an exponent, an epsilon that an exporter has written
_ARITHMETIC = frozenset("Add Sub Mul Div Pow Max Min Where Mod Equal Less Greater".split())


@dataclass(eq=False)
class Held:
    """An initializer that the Module holds as a tensor."""

    name: str
    array: np.ndarray
    learned: bool = False  # an operator reads it as more than a setting
    kept: bool = True  # a part of state_dict(): an initializer, and no constant
    fixed: bool = False  # it carries a type that tensors do not have: it cannot be learned


@dataclass(eq=False)
class Model:
    """What all graphs of a file share."""

    versions: dict[str, int]
    functions: dict[tuple[str, str, str], Any]
    folder: Path | None
    held: list[Held] = field(default_factory=list)
    missing: dict[str, list[str]] = field(default_factory=dict)  # operator -> nodes
    nodes: int = 0

    def count(self) -> None:
        """One more node."""
        self.nodes += 1
        if self.nodes > MOST_NODES:
            refuse(
                f"the model has more than {MOST_NODES} nodes, with those of its functions",
                "load a smaller one",
            )


class Builder:
    """One graph, or one call of a function, on its way to a Program."""

    def __init__(
        self, model: Model, name: str, around: Builder | None, versions: dict[str, int],
        given: dict[str, Any] | None = None, depth: int = 0,
    ) -> None:
        if depth > MOST_DEPTH:
            refuse(
                f"{name!r} is {depth} subgraphs and functions deep", "load a model that is flatter"
            )
        self.model, self.around, self.depth = model, around, depth
        self.versions = versions  # of a function: its own operator sets
        self.given = given  # of a function: the attributes of the call
        self.program = Program(name)
        self.numbers: dict[str, int] = {}  # of names here
        self.outside: dict[str, tuple[int, int]] = {}  # name -> the number around, and here
        self.arrays: dict[str, np.ndarray] = {}  # initializers and constants by name
        self.kept: set[str] = set()  # initializers
        self.held: dict[str, tuple[int, int]] = {}  # name -> its number among all, and here
        self.known: dict[str, int] = {}  # name -> the number here of its Numbers
        self.maybe: set[int] = set()  # values that may be Numbers
        self.producer: dict[int, int] = {}  # value -> the step that makes it

    # --- names -------------------------------------------------------------------------------

    def number(self) -> int:
        self.program.size += 1
        return self.program.size - 1

    def define(self, name: str, where: str) -> int:
        """A number for a name that is new here."""
        if not name:
            return ABSENT
        if name in self.numbers or name in self.arrays:
            refuse(f"{where} defines {name!r} a second time", "the file is damaged")
        self.numbers[name] = self.number()
        return self.numbers[name]

    def constant(self, name: str, array: np.ndarray, kept: bool, where: str) -> None:
        """An initializer, or what a Constant node gives."""
        if name in self.numbers or name in self.arrays:
            refuse(f"{where} defines {name!r} a second time", "the file is damaged")
        self.arrays[name] = array
        if kept:
            self.kept.add(name)

    def has(self, name: str) -> bool:
        return name in self.numbers or name in self.arrays

    def read(self, name: str, where: str) -> int:
        """The number of a value as a tensor (or as what made it)."""
        if not name:
            return ABSENT
        if name in self.numbers:
            return self.numbers[name]
        if name in self.arrays:
            return self._array(name, where)
        if name not in self.outside:
            builder = self.around
            if builder is None:
                refuse(f"{where} reads {name!r}, which nothing defines", "the file is damaged")
            outer = builder.read(name, where)
            self.outside[name] = outer, self.number()
            if outer in builder.maybe:
                self.maybe.add(self.outside[name][1])
        return self.outside[name][1]

    def _array(self, name: str, where: str) -> int:
        array = self.arrays[name]
        foreign = kind_for(array.dtype)
        learnable = name in self.kept and array.dtype.kind not in "iub"
        if small(array) and not learnable and (foreign is None or array.dtype.kind == "u"):
            return self.as_numbers(name)
        if name not in self.held:
            if foreign is not None:
                array = held_array(array, foreign)
            fixed = foreign is not None
            self.model.held.append(Held(name, array, kept=name in self.kept, fixed=fixed))
            self.held[name] = len(self.model.held) - 1, self.number()
            if foreign is not None:
                self.program.kinds[self.held[name][1]] = foreign
        return self.held[name][1]

    def as_numbers(self, name: str) -> int:
        """The number of a constant, from here or around, as Numbers."""
        if name not in self.known:
            array = self.array(name)
            assert array is not None
            self.known[name] = self.number()
            foreign = None if array.dtype.kind == "u" else kind_for(array.dtype)
            self.program.constants[self.known[name]] = Numbers.of(
                array if foreign is None else held_array(array, foreign)
            )
            self.maybe.add(self.known[name])
        return self.known[name]

    def array(self, name: str) -> np.ndarray | None:
        """The elements of a constant, here or around; None for what is computed."""
        if name in self.numbers:
            return None
        if name in self.arrays or self.around is None:
            return self.arrays.get(name)
        return self.around.array(name)

    # --- nodes -------------------------------------------------------------------------------

    def node(self, proto: Any) -> None:
        """Add a step for a NodeProto."""
        self.model.count()
        domain = domain_of(proto.domain)
        label = f"node {proto.name!r}" if proto.name else f"the node of {list(proto.output)[:1]}"
        where = f"{label} ({domain + '.' if domain else ''}{proto.op_type})"
        check_node(proto, self.versions.get(domain, 0), domain, where)
        attributes = self.attributes(proto, where)
        if domain == "" and proto.op_type == "Constant":
            return self._constant(proto, attributes, where)
        version = self.versions.get(domain, 0)
        made = Node(
            proto.op_type, domain, version, where, attributes,
            tuple(bool(name) for name in proto.output),
            tuple(name for name, value in attributes.items() if isinstance(value, Program)),
        )
        operator = self._operator(proto, made)
        if operator is None:
            self.model.missing.setdefault(
                f"{domain + '.' if domain else ''}{proto.op_type}-{version}", []
            ).append(where)
            for name in proto.output:
                self.define(name, where)
            return None
        if operator.most is not None and len(proto.input) > operator.most:
            refuse(
                f"{where} has {len(proto.input)} inputs; {operator!r} takes {operator.most}",
                "the file is damaged",
            )
        inputs = self._inputs(proto, operator, where)
        outputs = tuple(self.define(name, where) for name in proto.output)
        if operator.shapes or (
            operator.folded and inputs and all(i == ABSENT or i in self.maybe for i in inputs)
        ) or (operator.raw and operator.name == "Identity" and inputs[0] in self.maybe):
            self.maybe.update(outputs)
        self.program.steps.append(Step(made, operator, inputs, outputs))
        return None

    def _inputs(self, proto: Any, operator: Operator, where: str) -> tuple[int, ...]:
        found: list[int] = []
        arrays = [self.array(name) if name else None for name in proto.input]
        # a small constant is Numbers beside Numbers, a tensor beside tensors
        folds = operator.folded is not None and all(
            not name or (
                self.read(name, where) in self.maybe if array is None
                else self._describes(name, array, operator.name)
            )
            for name, array in zip(proto.input, arrays, strict=True)
        )
        for i, (name, array) in enumerate(zip(proto.input, arrays, strict=True)):
            if array is not None and (i in operator.numbers or folds):
                found.append(self.as_numbers(name))
                continue
            found.append(self.read(name, where))
            if i not in operator.settings and not (
                operator.name in _ARITHMETIC and array is not None and array.size == 1
            ):
                self.learn(name)
        return tuple(found)

    def _describes(self, name: str, array: np.ndarray, operator: str) -> bool:
        """Whether a constant may be Numbers: none that is learned, but for a factor."""
        if array.dtype.kind != "u" and kind_for(array.dtype) is not None:
            return False
        if array.dtype.kind in "iub" or not self._kept(name):
            return small(array)
        return array.size == 1 and operator in _ARITHMETIC

    def _kept(self, name: str) -> bool:
        builder: Builder | None = self
        while builder is not None and name not in builder.arrays:
            builder = builder.around
        return builder is not None and name in builder.kept

    def learn(self, name: str) -> None:
        """An operator reads a value as more than a setting."""
        builder: Builder | None = self
        while builder is not None and name not in builder.arrays:
            builder = None if name in builder.numbers else builder.around
        if builder is not None and name in builder.held:
            self.model.held[builder.held[name][0]].learned = True

    def _constant(self, proto: Any, attributes: dict[str, Any], where: str) -> None:
        if len(attributes) != 1 or len(proto.output) != 1:
            refuse(f"{where} has the attributes {sorted(attributes)}", "the file is damaged")
        ((name, value),) = attributes.items()
        kinds: dict[str, Any] = {
            "value_float": np.float32, "value_floats": np.float32,
            "value_int": np.int64, "value_ints": np.int64,
        }
        if name in kinds:
            value = np.array(value, kinds[name])
        elif name != "value":
            refuse(f"{where} has the attribute {name}", "strings and sparse tensors are not read")
        self.constant(proto.output[0], value, False, where)

    def _operator(self, proto: Any, node: Node) -> Operator | None:
        function = self.model.functions.get(
            (node.domain, proto.op_type, getattr(proto, "overload", ""))
        )
        if function is None:
            found = find(node.domain, proto.op_type, node.version)
            if found is not None:
                return found
            function = body_of(node)
            if function is None:
                return grown(self, proto, node)
        if len(proto.input) > len(function.input) or len(proto.output) > len(function.output):
            refuse(f"{node.where} has more inputs or outputs than its function", "call it as it is")
        given = {**_defaults(function, self, node.where), **node.attributes}
        node.attributes = {"body": self.call(function, given, node.where)}
        node.inner = ("body",)
        return _CALL

    def call(self, function: Any, given: dict[str, Any], where: str) -> Program:
        """A function's body, for these attributes."""
        own = versions_of(function.opset_import, f"the function {function.name!r}")
        inner = Builder(
            self.model, function.name or where, None, {**self.versions, **own}, given,
            self.depth + 1,
        )
        return inner.build(function.input, (), function.node, function.output)

    # --- attributes --------------------------------------------------------------------------

    def attributes(self, proto: Any, where: str) -> dict[str, Any]:
        """The attributes of a node; within a function, those that refer to the call's own."""
        found: dict[str, Any] = {}
        for each in proto.attribute:
            if each.ref_attr_name:
                if self.given is None:
                    refuse(f"{where}: {each.name} refers to an attribute", "the file is damaged")
                value = self.given.get(each.ref_attr_name)
                if isinstance(value, Program) and value.outside:
                    refuse(
                        f"{where}: {each.name} is a graph that reads values of another function",
                        "export the model without functions",
                    )
                if value is not None:
                    found[each.name] = value
            else:
                found[each.name] = self.attribute(each, where)
        return found

    def attribute(self, proto: Any, where: str) -> Any:
        """The value of an AttributeProto."""
        kinds = onnx().AttributeProto
        kind, what = proto.type, f"{where}, attribute {proto.name},"
        if kind == kinds.TENSOR:
            return array_of(proto.t, what, self.model.folder)
        if kind == kinds.GRAPH:
            return self.subgraph(proto.g)
        if kind == kinds.STRING:
            return proto.s.decode("utf-8", "replace")
        if kind == kinds.STRINGS:
            return [text.decode("utf-8", "replace") for text in proto.strings]
        simple = {
            kinds.FLOAT: "f", kinds.INT: "i", kinds.TYPE_PROTO: "tp",
        }
        if kind in simple:
            return getattr(proto, simple[kind])
        if kind in (kinds.FLOATS, kinds.INTS):
            return list(proto.floats if kind == kinds.FLOATS else proto.ints)
        return refuse(
            f"{what} is of type {kind}", "sparse tensors and lists of graphs are not read"
        )

    # --- graphs ------------------------------------------------------------------------------

    def subgraph(self, proto: Any) -> Program:
        """A graph inside of this one."""
        inner = Builder(
            self.model, proto.name, self, self.versions, self.given, self.depth + 1
        )
        return inner.graph(proto)

    def graph(self, proto: Any) -> Program:
        """A GraphProto's Program."""
        if proto.sparse_initializer:
            refuse(
                f"the graph {proto.name!r} has sparse initializers", "save them as dense tensors"
            )
        for each in proto.initializer:
            where = f"the initializer {each.name!r}"
            self.constant(each.name, array_of(each, where, self.model.folder), True, where)
        inputs = [each.name for each in proto.input if each.name not in self.arrays]
        return self.build(inputs, proto.input, proto.node, [each.name for each in proto.output])

    def build(
        self, inputs: Sequence[str], infos: Any, nodes: Any, outputs: Sequence[str]
    ) -> Program:
        """The Program of these nodes."""
        program = self.program
        program.inputs = tuple(inputs)
        given = [self.define(name, "an input") for name in inputs]
        for each in nodes:
            self.node(each)
        where = f"an output of {program.name!r}"
        program.outputs = tuple(self.read(name, where) for name in outputs)
        for name in outputs:
            self.learn(name)
        program.names = tuple(outputs)
        program.outside = tuple(outer for outer, _ in self.outside.values())
        program.held = tuple(index for index, _ in self.held.values())
        program.arriving = (
            *[here for _, here in self.outside.values()], *given,
            *[here for _, here in self.held.values()],
        )
        _free(program)
        return program


def _defaults(function: Any, builder: Builder, where: str) -> dict[str, Any]:
    return {
        each.name: builder.attribute(each, where)
        for each in getattr(function, "attribute_proto", ())
    }


def _free(program: Program) -> None:
    """Note at each step which values nobody reads after it."""
    seen = {*program.outputs, *program.constants, ABSENT}
    for step in reversed(program.steps):
        inner = [step.node.attributes[name] for name in step.node.inner]
        reads = [*step.inputs, *step.outputs, *[at for each in inner for at in each.outside]]
        step.spent = tuple(dict.fromkeys(at for at in reads if at not in seen))
        seen.update(step.spent)


def _called(node: Node, *inputs: Any) -> tuple[Any, ...]:
    body = node.get("body")
    absent = len(body.program.inputs) - len(inputs)
    return tuple(body(*inputs, *[None] * absent))


_CALL = Operator("call", 1, _called, raw=True)
