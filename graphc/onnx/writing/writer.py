"""Makes ONNX nodes: names, constants, sizes, and the dtype of each value on the way.

ONNX's operators take fewer dtypes than ours, other ones in each opset: what an operator does not
take goes through a dtype that holds all its values, and back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from graphc.ir import dtypes
from graphc.ir.dim import Size
from graphc.ir.dtypes import DType
from graphc.ir.graph import Node
from graphc.ir.types import TensorType
from graphc.onnx.errors import OnnxExporterError
from graphc.onnx.package import onnx

from . import elements, rules, sizes

# Arithmetic that is exact in 32 bits and cut to 8 or 16 again: runtimes have no code of their own
# for small integers here, though the standard has them.
_IN_32_BITS = frozenset("""
    Add Sub Mul Div Mod Pow Max Min Abs Neg Sign Relu Clip Where Equal Less LessOrEqual Greater
    GreaterOrEqual ReduceSum ReduceProd ReduceMax ReduceMin ArgMax ArgMin TopK CumSum MatMul Einsum
    Range Pad
""".split())


class Writer:
    """One ONNX graph, with those inside it, while it is written.

    `types`: the dtype of each value by name. `initializers`: constants and weights by name.
    `places`: where each free size is read; `labels`: what the user calls
    it, where that is another name.
    """

    def __init__(self, opset: int) -> None:
        self.onnx = onnx()
        self.opset = opset
        self.types: dict[str, DType] = {}
        self.initializers: dict[str, np.ndarray] = {}
        self.places: dict[str, sizes.Place] = {}
        self.labels: Mapping[str, str] = {}
        self.node: Node | None = None  # the one that is being written
        self._used: frozenset[tuple[Node, int]] = frozenset()
        self._scopes: list[list[Any]] = [[]]
        self._taken: set[str] = set()
        self._constants: dict[Any, str] = {}
        self._shapes: dict[Any, str] = {}
        self._counts: dict[str, int] = {}

    # --- names -------------------------------------------------------------------------------

    def name(self, wanted: str) -> str:
        """`wanted`, or with a number where it is taken: names are unique in all graphs."""
        name = wanted
        while not name or name in self._taken:
            self._counts[wanted] = self._counts.get(wanted, -1) + 1
            name = f"{wanted}_{self._counts[wanted]}"
        self._taken.add(name)
        return name

    def input(self, wanted: str, dtype: DType) -> str:
        """The name of a value that comes from outside of a graph."""
        name = self.name(wanted)
        self.types[name] = dtype
        return name

    def weight(self, wanted: str, array: np.ndarray) -> str:
        """The name of a constant that is known by a name to users."""
        name = self.input(wanted, dtypes.from_numpy(array.dtype))
        self.initializers[name] = array
        return name

    # --- constants ---------------------------------------------------------------------------

    def constant(self, value: Any, dtype: DType) -> str:
        """A constant array or number; equal ones are one."""
        if not elements.known(dtype):
            self.refuse(f"ONNX's operators take no {dtype}", "compute with real numbers")
        with np.errstate(all="ignore"):
            array = np.asarray(value).astype(dtype.numpy)
        key = dtype.name, array.shape, array.tobytes()
        if key not in self._constants:
            self._constants[key] = self.weight("constant", array)
        return self._constants[key]

    def ints(self, values: Sequence[int]) -> str:
        """A constant vector of int64."""
        return self.constant(np.array(values, np.int64), dtypes.i64)

    def like(self, value: Any, other: str) -> str:
        """A 0-d constant of the dtype of another value."""
        return self.constant(value, self.types[other])

    # --- sizes -------------------------------------------------------------------------------

    def shape(self, shape: Sequence[Size]) -> str:
        """A vector of int64 with these sizes."""
        key = tuple(shape)
        if all(isinstance(size, int) for size in key):
            return self.ints(key)  # type: ignore[arg-type]
        if key not in self._shapes:
            with self._outside():
                parts = [sizes.vector(self, size) for size in key]
                name = parts[0] if len(parts) == 1 else self.emit("Concat", *parts, axis=0)
            self._shapes[key] = name
        return self._shapes[key]

    def size(self, size: Size) -> str:
        """A 0-d int64 with a size."""
        if isinstance(size, int):
            return self.constant(size, dtypes.i64)
        key = ("0-d", size)
        if key not in self._shapes:
            vector = self.shape((size,))
            with self._outside():
                self._shapes[key] = self.emit("Squeeze", vector, self.ints([0]))
        return self._shapes[key]

    @contextmanager
    def _outside(self) -> Iterator[None]:
        """What is made inside belongs to the outermost graph, whose values all others see."""
        scopes, self._scopes = self._scopes, self._scopes[:1]
        try:
            yield
        finally:
            self._scopes = scopes

    # --- nodes -------------------------------------------------------------------------------

    def emit(self, op: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        """A node; the name of its result, or a tuple of names. An input "" is left out.

        An operator is asked for results by `outputs`; their dtypes follow from its schema.
        """
        schema = self._schema(op, attrs)
        bound = self._bound(schema, inputs)
        widened: dict[str, DType] = {}
        names = list(inputs)
        for number, variable, dtype in bound:
            wide = self._wide(op, schema, variable, dtype)
            if wide is not dtype:
                widened[variable] = dtype
                names[number] = self._cast(names[number], wide)
        types = {variable: self.types[names[number]] for number, variable, _ in bound}
        results = []
        for number in range(outputs):
            formal = schema.outputs[min(number, len(schema.outputs) - 1)]
            results.append(self._result(op, formal.type_str, types, attrs))
        self._append(op, names, results, attrs)
        found = []
        for number, name in enumerate(results):
            variable = schema.outputs[min(number, len(schema.outputs) - 1)].type_str
            back = widened.get(variable)
            found.append(name if back is None else self._cast(name, back))
        return found[0] if outputs == 1 else tuple(found)

    def _schema(self, op: str, attrs: Mapping[str, Any]) -> Any:
        """What the opset says of an operator, which has to have it, and these attributes."""
        try:
            schema = self.onnx.defs.get_schema(op, self.opset, "")
        except self.onnx.defs.SchemaError:
            schema = None
        missing = [op] if schema is None else [
            f"{op}'s {name}" for name in attrs if name not in schema.attributes
        ]
        if missing:
            self.refuse(
                f"ONNX has no {missing[0]} at opset {self.opset}",
                "ask for a higher opset_version",
            )
        return schema

    def cast(self, name: str, dtype: DType) -> str:
        """A value in another dtype; itself where it has that."""
        return name if self.types[name] is dtype else self._cast(name, dtype)

    def _cast(self, name: str, dtype: DType) -> str:
        result = self._new("Cast", dtype)
        self._append("Cast", [name], [result], {"to": elements.number(dtype)})
        return result

    def _bound(self, schema: Any, inputs: Sequence[str]) -> list[tuple[int, str, DType]]:
        """(number, type variable, dtype) of each input that is of any of several dtypes."""
        found = []
        for number, name in enumerate(inputs):
            formal = schema.inputs[min(number, len(schema.inputs) - 1)]
            if name and not formal.type_str.startswith("tensor("):
                found.append((number, formal.type_str, self.types[name]))
        return found

    def _wide(self, op: str, schema: Any, variable: str, dtype: DType) -> DType:
        """The dtype to compute in: the value's own, or the nearest wider one that is taken."""
        allowed: list[str] = next(
            list(each.allowed_type_strs) for each in schema.type_constraints
            if each.type_param_str == variable
        )
        narrow = op in _IN_32_BITS and dtype in elements.NARROW
        for each in (dtype, *elements.WIDER.get(dtype, ())):
            if elements.type_string(each) in allowed and not (narrow and each is dtype):
                return each
        self.refuse(
            f"ONNX's {op} takes no {dtype} at opset {self.opset}",
            "convert what it is given, or ask for a higher opset_version",
        )

    def _result(self, op: str, type_string: str, types: dict[str, DType], attrs: Any) -> str:
        """A name for a result, whose dtype is recorded."""
        if type_string in types:
            return self._new(op, types[type_string])
        if op == "Cast":
            found = elements.of_number(attrs["to"])
        elif op == "ConstantOfShape":
            found = elements.of_number(attrs["value"].data_type)
        else:
            found = elements.of_type_string(type_string)
        if found is None:  # a variable of one dtype
            found = self._only(op, type_string)
        assert found is not None, f"{op}: {type_string}"
        return self._new(op, found)

    def _only(self, op: str, variable: str) -> DType | None:
        schema = self.onnx.defs.get_schema(op, self.opset, "")
        for each in schema.type_constraints:
            if each.type_param_str == variable and len(each.allowed_type_strs) == 1:
                return elements.of_type_string(each.allowed_type_strs[0])
        return None

    def raw(
        self, op: str, inputs: Sequence[str], types: Sequence[DType], **attrs: Any
    ) -> tuple[str, ...]:
        """A node whose results' dtypes the caller says: one with graphs inside."""
        results = [self._new(op, dtype) for dtype in types]
        self._append(op, list(inputs), results, attrs)
        return tuple(results)

    def unsigned(self, op: str, *inputs: str, **attrs: Any) -> str:
        """A node on uint64, which no value of ours is: its result is only given to such nodes."""
        name = self.name(op.lower())
        self._append(op, list(inputs), [name], attrs)
        return name

    def _new(self, op: str, dtype: DType) -> str:
        name = self.name(op.lower())
        self.types[name] = dtype
        return name

    def _append(
        self, op: str, inputs: list[str], results: list[str], attrs: dict[str, Any]
    ) -> None:
        while inputs and not inputs[-1]:
            inputs.pop()
        loc = None if self.node is None else self.node.loc
        module = "" if loc is None else loc.module
        self._scopes[-1].append(self.onnx.helper.make_node(
            op, inputs, results, name=f"{module}/{results[0]}" if module else results[0],
            doc_string="" if loc is None else str(loc), **attrs,
        ))

    # --- graphs inside -----------------------------------------------------------------------

    @contextmanager
    def inside(self) -> Iterator[list[Any]]:
        """Nodes go into a list of their own meanwhile."""
        nodes: list[Any] = []
        self._scopes = [*self._scopes, nodes]
        try:
            yield nodes
        finally:
            self._scopes = self._scopes[:-1]

    def own(self, nodes: Sequence[Any], names: Sequence[str]) -> list[str]:
        """Results that the innermost graph makes itself, each once: what it may give back."""
        made = {name for each in nodes for name in each.output}
        found: list[str] = []
        for name in names:
            own = name in made and name not in found
            found.append(name if own else self.emit("Identity", name))
        return found

    @property
    def nodes(self) -> list[Any]:
        """Those of the innermost graph."""
        return self._scopes[-1]

    def value_info(self, name: str, type_: TensorType) -> Any:
        """What a graph says of an input or a result."""
        shape = [size if isinstance(size, int) else self.labelled(str(size))
                 for size in type_.shape]
        return self.onnx.helper.make_tensor_value_info(
            name, elements.number(type_.dtype), shape
        )

    def labelled(self, text: str) -> str:
        """A text of sizes in the user's names."""
        return re.sub(r"[^\W\d]\w*", lambda word: self.labels.get(word[0], word[0]), text)

    # --- the graph that is written -------------------------------------------------------------

    def begin(self, used: frozenset[tuple[Node, int]]) -> frozenset[tuple[Node, int]]:
        """Which results of nodes with several are read, from now on; what was known before."""
        before, self._used = self._used, used
        return before

    def reads(self, node: Node, index: int) -> bool:
        """Whether a result of a node with several is read."""
        return (node, index) in self._used

    def refuse(self, why: str, cure: str) -> NoReturn:
        """Raise UnsupportedOperatorError for the node that is being written."""
        if self.node is None:
            raise OnnxExporterError(f"{why}. Cure: {cure}")
        rules.refuse(self.node, why, cure)
