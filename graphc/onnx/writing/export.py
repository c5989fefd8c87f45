"""`torch.onnx.export`: record a model once, and say it in ONNX's operators."""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from graphc.export import ExportedProgram
from graphc.export.capture import argument_names, leaf_paths
from graphc.export.capture import export as record
from graphc.frontend.tensor import Tensor
from graphc.frontend.tree import flatten, unflatten
from graphc.nn.modules.module import Module
from graphc.onnx.errors import OnnxExporterError, OnnxExporterWarning
from graphc.onnx.package import onnx
from graphc.onnx.running import exporting

from .model import Names, make
from .program import ONNXProgram, verified

OLDEST, USUAL = 13, 20  # opsets; the second is PyTorch's


def export(
    model: Any,
    args: tuple[Any, ...] | Tensor = (),
    f: str | os.PathLike[str] | None = None,
    *,
    kwargs: dict[str, Any] | None = None,
    verbose: bool | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamo: bool = True,
    external_data: bool | None = None,
    dynamic_shapes: Any = None,
    custom_translation_table: Mapping[Any, Any] | None = None,
    report: bool = False,
    optimize: bool = True,
    verify: bool = False,
    profile: bool = False,
    dump_exported_program: bool = False,
    artifacts_dir: str | os.PathLike[str] = ".",
    export_params: bool = True,
    keep_initializers_as_inputs: bool = False,
    dynamic_axes: Mapping[str, Mapping[int, str] | Sequence[int]] | None = None,
    training: Any = None,
    **deprecated: Any,
) -> ONNXProgram | None:
    """Write `model(*args, **kwargs)` as an ONNX model of standard operators, and to `f` if given.

    `model`: a Module or function, as it is (call eval() first), or a program of torch.export.
    Sizes are those of the example, but for what `dynamic_shapes` frees ({"x": {0: "batch"}}, as
    torch.export spells it), or `dynamic_axes`, by `input_names`. `opset_version`: 13 or more, 20
    by default. Weights are initializers with the names of the state_dict, in `f`.data with
    `external_data` or beyond 1.5 GB; `export_params=False` makes them inputs. `verify` compares
    what was recorded with eager mode, and that with onnxruntime. Gives None with `dynamo=False`,
    as torch does.

    Raises OnnxExporterError for what ONNX cannot say, UnsupportedOperatorError naming the operator
    and the line, ExportError and TraceError as torch.export does, ImportError without the extra
    `onnx`. (pytorch.org/docs/stable/onnx.html; what else torch takes changes nothing here.)
    """
    opset = _opset(opset_version)
    _refuse_translations(custom_translation_table)
    args, given = _arguments(args, kwargs)
    with _mode(model, dynamo, training), exporting():
        program, sizes = _recorded(
            model, args, given, dynamic_shapes, dynamic_axes, input_names, output_names, verify
        )
    names = Names(tuple(input_names or ()), tuple(output_names or ()), sizes)
    found = ONNXProgram(make(program, opset, names), program)
    if verbose:
        print(f"{found!r}")
    if verify:
        verified(found, model, args, given)
    if f is not None:
        found.save(
            f, include_initializers=export_params, external_data=external_data,
            keep_initializers_as_inputs=keep_initializers_as_inputs or not export_params,
        )
    return found if dynamo else None


def _refuse_translations(table: Mapping[Any, Any] | None) -> None:
    if table:
        raise OnnxExporterError(
            "custom_translation_table maps PyTorch's operators, which graphc does not record. "
            "Cure: write the operator in tensor operations"
        )


def _opset(version: int | None) -> int:
    newest = onnx().defs.onnx_opset_version()
    if version is None:
        return USUAL
    if not OLDEST <= version <= newest:
        raise OnnxExporterError(
            f"opset_version is {version}, and models are written for {OLDEST} to {newest}. "
            f"Cure: opset_version={USUAL}; onnx.version_converter turns a model into an older one"
        )
    return version


def _arguments(args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named arguments; a dict at the end is the latter, where there are no others,
    as torch has it."""
    args = (args,) if isinstance(args, Tensor) else tuple(args)
    if kwargs is None and args and isinstance(args[-1], dict):
        return args[:-1], dict(args[-1])
    return args, dict(kwargs or {})


@contextlib.contextmanager
def _mode(model: Any, dynamo: bool, training: Any) -> Iterator[None]:
    """The model in eval mode for the time of an export of the older kind, unless it is asked
    otherwise."""
    word = getattr(training, "name", "EVAL")
    if dynamo or not isinstance(model, Module) or word == "PRESERVE":
        yield
        return
    modes = [(each, each.training) for each in model.modules()]
    model.train(word == "TRAINING")
    try:
        yield
    finally:
        for each, mode in modes:
            each.training = mode


def _recorded(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any,
    dynamic_axes: Any, input_names: Any, output_names: Any, verify: bool,
) -> tuple[ExportedProgram, dict[str, str]]:
    """The program, and what the user calls its free sizes."""
    if isinstance(model, ExportedProgram):
        return model, {}
    sizes: dict[str, str] = {}
    if dynamic_axes and dynamic_shapes is None:
        names = (input_names or (), output_names or ())
        dynamic_shapes = _from_axes(model, args, kwargs, dynamic_axes, names, sizes)
    return record(model, args, kwargs, dynamic_shapes=dynamic_shapes, check=verify), sizes


def _from_axes(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    dynamic_axes: Mapping[str, Any], told: tuple[Sequence[str], Sequence[str]],
    sizes: dict[str, str],
) -> Any:
    """dynamic_shapes for the arguments, of axes by the inputs' names. `told`: what the user calls
    inputs and results (whose sizes follow)."""
    leaves, structure = flatten((args, kwargs))
    paths = leaf_paths(structure, argument_names(model, len(args), kwargs))
    names, seen = list(told[0]), {*told[1]}
    specs: list[Any] = []
    for leaf, path in zip(leaves, paths, strict=True):
        if not isinstance(leaf, Tensor):
            specs.append(None)
            continue
        name = names.pop(0) if names else path
        seen |= {name, path}
        axes = dynamic_axes.get(name, dynamic_axes.get(path))
        specs.append(None if axes is None else _spec(name, axes, sizes))
    for name in dynamic_axes.keys() - seen:
        warnings.warn(
            f"dynamic_axes names {name!r}, which is neither in input_names nor in output_names: it "
            "frees no size", OnnxExporterWarning, stacklevel=5,
        )
    made_args, made_kwargs = unflatten(specs, structure)
    return (*made_args, *made_kwargs.values())


def _spec(name: str, axes: Any, sizes: dict[str, str]) -> dict[int, str]:
    """{0: "batch"} of {0: "batch"}, or of [0]; `sizes` keeps words that are no identifiers."""
    if not isinstance(axes, Mapping):
        axes = {axis: f"{name}_dynamic_axes_{number}" for number, axis in enumerate(axes, 1)}
    found: dict[int, str] = {}
    for axis, word in axes.items():
        plain = "size_" + re.sub(r"\W", "_", str(word))
        while sizes.get(plain, word) != word:
            plain += "_"
        sizes[plain] = str(word)
        found[int(axis)] = plain
    return found
