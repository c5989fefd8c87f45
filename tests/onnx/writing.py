"""How the tests of ONNX export run what was written: by onnxruntime, and where that has no code
for an operator's dtype, by the reference implementation of the onnx package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from graphc.export.contents import Contents, Variant
from graphc.export.program import ExportedProgram
from graphc.export.signature import Signature, Weights
from graphc.ir import dtypes
from graphc.ir.graph import Builder, Graph
from graphc.ir.op import get
from graphc.ir.types import TensorType
from graphc.onnx.writing.model import Names, make
from graphc.onnx.writing.program import ONNXProgram

onnx: Any = pytest.importorskip("onnx")
onnxruntime: Any = pytest.importorskip("onnxruntime")


# what onnxruntime says where it has no code for a dtype, or no arrays of it
_NO_CODE = ("NOT_IMPLEMENTED", "No corresponding Numpy type")


def program_of(graph: Graph) -> ExportedProgram:
    """A program that takes the graph's inputs and gives a tuple of its outputs."""
    names = tuple(f"x{i}" for i in range(len(graph.inputs)))
    leaves = [
        {"dtype": node.dtype.name, "shape": list(node.shape)} for node in graph.inputs
    ]
    arguments = {"tuple": [{"tuple": leaves}, {"dict": []}]}
    results = {"tuple": [{"output": i} for i in range(len(graph.outputs))]}
    inputs = tuple({"argument": i} for i in range(len(names)))
    signature = Signature(names, (), arguments, results, inputs, {})
    return ExportedProgram(Contents((Variant(frozenset(), graph, signature),), Weights({})))


def graph_of(op: str, types: Sequence[TensorType], attrs: Mapping[str, Any]) -> Graph:
    """One operator's node, and all its results."""
    builder = Builder()
    node = builder.emit(get(op), *(builder.input(t, f"x{i}") for i, t in enumerate(types)), **attrs)
    return builder.build(builder.results(node), op)


def written(graph: Graph, opset: int = 20) -> ONNXProgram:
    """The graph as an ONNX program."""
    program = program_of(graph)
    return ONNXProgram(make(program, opset, Names()), program)


def session(model: bytes) -> Any:
    """An onnxruntime session that says nothing and takes one thread."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model, sess_options=options, providers=["CPUExecutionProvider"]
    )


def run(program: ONNXProgram, arrays: Sequence[np.ndarray]) -> tuple[list[np.ndarray], str]:
    """The results, and who computed them."""
    proto = program.model_proto
    feeds = {i.name: np.asarray(a) for i, a in zip(proto.graph.input, arrays, strict=True)}
    if not any(a.dtype == dtypes.bf16.numpy for a in feeds.values()):  # of which it takes no arrays
        try:
            found = session(proto.SerializeToString()).run(None, feeds)
            return [np.asarray(x) for x in found], "onnxruntime"
        except Exception as error:
            if not any(word in str(error) for word in _NO_CODE):
                raise
    from onnx.reference import ReferenceEvaluator

    with np.errstate(all="ignore"):
        return [np.asarray(x) for x in ReferenceEvaluator(proto).run(None, feeds)], "reference"
