"""onnxruntime behind graphc's server: the same application, the same batches, another engine.

    python -m benchmarks.serve graphc --also onnxruntime "PYTHON -m benchmarks.serve_onnx @GCX"

PYTHON has onnx and onnxruntime. The .npz of the weights lies beside the .gcx file.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from graphc.serve.model import Arguments, Model
from graphc.serve.server import Server
from graphc.serve.settings import Settings
from graphc.serve.state import State


def perceptron(weights: Path) -> bytes:
    """The layers of the .npz as an ONNX model with a free batch."""
    nodes, constants, value = [], [], "input"
    arrays = np.load(weights)
    layers = sorted({int(name.split(".")[0]) for name in arrays})
    for layer in layers:
        for part in ("weight", "bias"):
            constants.append(numpy_helper.from_array(arrays[f"{layer}.{part}"], f"{layer}.{part}"))
        out = "output" if layer == layers[-1] else f"h{layer}"
        nodes.append(helper.make_node(
            "Gemm", [value, f"{layer}.weight", f"{layer}.bias"], [out], transB=1))
        value = out
        if layer != layers[-1]:
            nodes.append(helper.make_node("Relu", [out], [f"{out}r"]))
            value = f"{out}r"
    columns, rows = arrays[f"{layers[0]}.weight"].shape[1], arrays[f"{layers[-1]}.weight"].shape[0]
    graph = helper.make_graph(
        nodes, "mlp",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", columns])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", rows])], constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data


class OnnxModel(Model):
    """The signature of the .gcx file, computed by onnxruntime."""

    session: onnxruntime.InferenceSession

    def run(self, requests: Sequence[Arguments]) -> list[tuple[np.ndarray, ...]]:
        array = np.concatenate([request.arrays[0] for request in requests])
        (found,) = self.session.run(None, {"input": array})
        stops = np.cumsum([request.rows for request in requests])[:-1]
        return [(part,) for part in np.split(found, stops)]


def main(path: Path) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    settings = Settings(port=0, log_requests=False)
    state = State(settings)
    served = state.registry.add(path, "mlp", "1")
    served.model.__class__ = OnnxModel
    served.model.session = onnxruntime.InferenceSession(perceptron(path.with_suffix(".npz")))  # type: ignore[attr-defined]
    Server(settings, state, [served]).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
