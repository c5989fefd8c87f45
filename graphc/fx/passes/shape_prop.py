"""torch.fx.passes.shape_prop: a run of a Graph that notes what each Node's Tensors are like."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...frontend.functions.copies import channels_last, channels_last_3d, contiguous_format
from ...frontend.layouts import strided
from ...frontend.tensor import Tensor
from ..interpreter import Interpreter
from ..node import Node, map_aggregate


class TensorMetadata(NamedTuple):
    """What is noted of a Tensor."""

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any  # the first of the formats that it has; or None
    is_quantized: bool
    qparams: dict[str, Any]


class ShapeProp(Interpreter):
    """Runs a Module's Graph. `meta["tensor_meta"]` of each Node then has a TensorMetadata in the
    place of each Tensor of its result, and `meta["type"]` the result's type."""

    def __init__(self, gm: Any) -> None:
        super().__init__(gm)

    def run_node(self, n: Node) -> Any:
        """What a Node comes to. Raises RuntimeError with the Node's line where that raises."""
        try:
            result = super().run_node(n)
        except Exception as error:
            raise RuntimeError(
                f"ShapeProp error for: node={n.format_node()} with meta={n.meta}: {error}"
            ) from error
        found = False

        def described(value: Any) -> Any:
            nonlocal found
            if not isinstance(value, Tensor):
                return value
            found = True
            return _metadata(value)

        meta = map_aggregate(result, described)
        if found:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """The result for these arguments."""
        return self.run(*args)


def _metadata(value: Tensor) -> TensorMetadata:
    if value.layout is not strided:
        return TensorMetadata(value.shape, value.dtype, value.requires_grad, (), None, False, {})
    formats = (contiguous_format, channels_last, channels_last_3d)
    dense = (f for f in formats if value.is_contiguous(memory_format=f))
    return TensorMetadata(
        value.shape, value.dtype, value.requires_grad, tuple(value.stride()), next(dense, None),
        False, {},
    )
