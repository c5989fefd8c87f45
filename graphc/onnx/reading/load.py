"""graphc.onnx.load: a file as a Module."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...frontend import functions as T
from ...ir.dtypes import from_numpy
from ...nn.parameter import Parameter
from .compute import rows
from .compute.build import Builder, Held, Model
from .compute.call import Input
from .compute.carried import kind_for
from .errors import OnnxError, refuse
from .files import domain_of, model_of, versions_of
from .module import OnnxModule
from .tensors import kind_of

_ROWS = rows  # the table is filled


def load(f: Any) -> OnnxModule:
    """An ONNX model as a Module, from a path, bytes, a file or a ModelProto.

    It computes what the graph says with graphc's functions: compile() makes one program of it, and
    its parameters, named as the file's initializers, can be trained. Raises OnnxError for a damaged
    file, and for operators and types that graphc does not have, naming them; ImportError where the
    onnx package is missing (`pip install 'graphc-compiler[onnx]'`). External data is read from the
    model's own folder alone.
    """
    proto, folder = model_of(f)
    try:
        return _loaded(proto, folder)
    except RecursionError:
        refuse("the model's graphs are too deep in each other", "load a model that is flatter")
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, OnnxError):
            raise
        raise OnnxError(f"the model is damaged ({error}). Cure: load another copy") from error


def _loaded(proto: Any, folder: Any) -> OnnxModule:
    functions: dict[tuple[str, str, str], Any] = {}
    for each in proto.functions:
        key = domain_of(each.domain), each.name, getattr(each, "overload", "")
        if key in functions:
            refuse(f"the model has two functions {each.name!r}", "the file is damaged")
        functions[key] = each
    versions = versions_of(proto.opset_import, "the model")
    if not versions:
        refuse("the model names no operator set", "the file is damaged")
    model = Model(versions, functions, folder)
    builder = Builder(model, proto.graph.name, None, versions)
    inputs = [_input(each) for each in proto.graph.input]
    program = builder.graph(proto.graph)
    if model.missing:
        _refuse_missing(model.missing)
    wanted = [each for each in inputs if each.name in program.inputs]
    made = OnnxModule(program, wanted, program.names, proto.graph.name)
    for held in model.held:
        made._graphc_hold(held.name, _tensor(held), held.kept)
    return made


def _refuse_missing(missing: dict[str, list[str]]) -> None:
    listed = ", ".join(
        f"{name} ({len(places)} nodes, first {places[0]})" if len(places) > 1
        else f"{name} ({places[0]})" for name, places in sorted(missing.items())[:20]
    )
    refuse(
        f"the model has operators that graphc does not compute: {listed}",
        "export it with standard operators of ai.onnx",
    )


def _input(info: Any) -> Input:
    if not info.type.HasField("tensor_type"):
        return Input(info.name, None, None)
    tensor, where = info.type.tensor_type, f"the input {info.name!r}"
    numpy = kind_of(tensor.elem_type, where)
    kind = kind_for(numpy)
    dtype = from_numpy(numpy) if kind is None else kind.holder
    if not tensor.HasField("shape"):
        return Input(info.name, dtype, None, kind)
    shape = tuple(
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else None
        for dim in tensor.shape.dim
    )
    return Input(info.name, dtype, shape, kind)


def _tensor(held: Held) -> Any:
    array = np.ascontiguousarray(held.array).reshape(held.array.shape)
    tensor = T.tensor(array, dtype=from_numpy(array.dtype))
    if held.learned and not held.fixed and tensor.dtype.is_floating_point and tensor.dim():
        return Parameter(tensor)
    return tensor
