"""What an export gives: an ONNX model that can be saved, looked at and called."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graphc.export.limits import check_guards
from graphc.export.program import ExportedProgram
from graphc.frontend.grad_mode import no_grad
from graphc.frontend.tensor import Tensor, from_array
from graphc.frontend.tree import flatten
from graphc.ir import dtypes
from graphc.ir.memory import on_host
from graphc.onnx.errors import OnnxExporterError, OnnxExporterWarning
from graphc.onnx.package import onnx, reference, runtime

from . import elements, files
from .model import Model


def _session(model: str | bytes) -> Any:
    """An onnxruntime.InferenceSession on the CPU."""
    package = runtime()
    options = package.SessionOptions()
    options.log_severity_level = 3  # errors
    return package.InferenceSession(
        model, sess_options=options, providers=["CPUExecutionProvider"]
    )


class ONNXProgram:
    """An ONNX model made of an exported program (torch.onnx.ONNXProgram).

    `exported_program`: what it was made of. Calls are run by onnxruntime, on the CPU.
    """

    def __init__(self, model: Model, exported_program: ExportedProgram) -> None:
        self._graphc_model = model
        self.exported_program = exported_program
        self._graphc_session: Any = None

    def __repr__(self) -> str:
        graph = self._graphc_model.proto.graph
        inputs, outputs = (", ".join(map(_described, each)) for each in (graph.input, graph.output))
        return f"ONNXProgram({inputs}) -> {outputs}\n{self._graphc_summary()}"

    def _graphc_summary(self) -> str:
        proto, weights = self._graphc_model.proto, self._graphc_model.weights
        counts = Counter(node.op_type for node in proto.graph.node)
        size = sum(array.nbytes for array in weights.values())
        kinds = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
        return (
            f"opset {proto.opset_import[0].version}; {len(proto.graph.node)} nodes ({kinds}); "
            f"{len(weights)} weights of {size:,} bytes"
        )

    @property
    def model_proto(self) -> Any:
        """A new onnx.ModelProto with all weights in it."""
        return self._graphc_proto(True, False, inside=True)

    @property
    def model(self) -> Any:
        """model_proto: there is no other representation of it here."""
        return self.model_proto

    def save(
        self, destination: str | os.PathLike[str], *, include_initializers: bool = True,
        keep_initializers_as_inputs: bool = False, external_data: bool | None = None,
    ) -> None:
        """Write the model to a file, whole or not at all.

        Weights are in a second file, `destination`.data, with `external_data`, or where they are
        too many bytes for one. `include_initializers=False` leaves them out;
        `keep_initializers_as_inputs` makes them inputs, whose values a caller may give.
        """
        proto = self._graphc_proto(include_initializers, keep_initializers_as_inputs)
        arrays = self._graphc_arrays(include_initializers)
        large = sum(array.nbytes for array in arrays.values()) > files.LARGEST
        files.write(onnx(), proto, arrays, destination, bool(external_data) or large)

    def apply_weights(self, state_dict: Mapping[str, Tensor]) -> None:
        """Give weights other values, by name. Raises ValueError for other types."""
        weights = self._graphc_model.weights
        for name, tensor in state_dict.items():
            if name not in weights:
                warnings.warn(
                    f"the model has no weight {name!r}", OnnxExporterWarning, stacklevel=2
                )
                continue
            array = np.asarray(on_host(tensor._graphc_array), order="C")
            old = weights[name]
            if (array.shape, array.dtype) != (old.shape, old.dtype):
                raise ValueError(
                    f"the weight {name!r} is {old.dtype}{list(old.shape)}, "
                    f"got {array.dtype}{list(array.shape)}"
                )
            weights[name] = array.copy()
        self.release()

    def optimize(self) -> None:
        """Nothing: what is written is not rewritten, and runtimes fold constants as they load."""

    # --- calls -------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        """The results, one after another, as onnxruntime computes them. Raises TypeError or
        ValueError for arguments unlike the example, ImportError without onnxruntime."""
        feeds = self._graphc_feeds(args, kwargs)
        if self._graphc_session is None:
            self.initialize_inference_session()
        found = self._graphc_session.run(None, feeds)
        return tuple(from_array(np.asarray(each)) for each in found)

    def call_reference(self, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        """The results as onnx's own reference implementation computes them: slow."""
        evaluator = reference().ReferenceEvaluator(self.model_proto)
        found = evaluator.run(None, self._graphc_feeds(args, kwargs))
        return tuple(from_array(np.asarray(each)) for each in found)

    def initialize_inference_session(
        self, initializer: Callable[[str | bytes], Any] = _session
    ) -> None:
        """Load the model into a session; `initializer` is given its bytes, or a file's path."""
        size = sum(array.nbytes for array in self._graphc_model.weights.values())
        if size <= files.LARGEST:
            self._graphc_session = initializer(self.model_proto.SerializeToString())
            return
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            self.save(path, external_data=True)
            self._graphc_session = initializer(path)

    def release(self) -> None:
        """Let the session go."""
        self._graphc_session = None

    # --- parts -------------------------------------------------------------------------------

    def _graphc_feeds(self, args: Any, kwargs: Any) -> dict[str, np.ndarray]:
        model, signature = self._graphc_model, self.exported_program.signature
        leaves = signature.leaves(args, kwargs)
        dims = signature.bind(leaves)
        check_guards(self.exported_program.variant_at(dims), dims)
        inputs = [each.name for each in model.proto.graph.input]
        return {
            name: np.asarray(on_host(leaves[leaf]._graphc_array), order="C")
            for name, leaf in zip(inputs, model.arguments, strict=True)
        }

    def _graphc_arrays(self, weights: bool) -> dict[str, np.ndarray]:
        model = self._graphc_model
        return {**(model.weights if weights else {}), **model.constants}

    def _graphc_proto(self, weights: bool, as_inputs: bool, inside: bool = False) -> Any:
        """A copy of the proto, without data unless `inside`."""
        model, package = self._graphc_model, onnx()
        proto = package.ModelProto()
        proto.CopyFrom(model.proto)
        if as_inputs:
            for name, array in model.weights.items():
                dtype = elements.number(dtypes.from_numpy(array.dtype))
                proto.graph.input.append(
                    package.helper.make_tensor_value_info(name, dtype, array.shape)
                )
        if inside:
            files.add(package, proto, self._graphc_arrays(weights))
        return proto


def _described(info: Any) -> str:
    """"x: float[batch,3]"."""
    type_ = info.type.tensor_type
    dtype = elements.of_number(type_.elem_type)
    sizes = ",".join(each.dim_param or str(each.dim_value) for each in type_.shape.dim)
    return f"{info.name}: {'?' if dtype is None else dtype.torch_name}[{sizes}]"


def verified(
    program: ONNXProgram, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Raise OnnxExporterError where onnxruntime computes something else than the model."""
    with no_grad():
        want = [x for x in flatten(model(*args, **kwargs))[0] if x is not None]
    names = [each.name for each in program._graphc_model.proto.graph.output]
    for name, ours, theirs in zip(names, want, program(*args, **kwargs), strict=True):
        expected = np.asarray(on_host(ours._graphc_array) if isinstance(ours, Tensor) else ours)
        found = np.asarray(on_host(theirs._graphc_array))
        if expected.shape != found.shape or not _close(expected, found):
            raise OnnxExporterError(
                f"onnxruntime gives other numbers for {name!r} than the model. Cure: report this, "
                "with the model"
            )


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    """To the precision that 16-bit floats leave of a whole model: this finds wrong operators."""
    if not dtypes.from_numpy(a.dtype).is_float:
        return bool(np.array_equal(a, b))
    a, b = a.astype(np.float64), b.astype(np.float64)
    scale = float(np.abs(a).max(initial=0.0, where=np.isfinite(a)))
    return bool(np.allclose(a, b, rtol=1e-2, atol=1e-3 * max(1.0, scale), equal_nan=True))
