"""torch.jit: TorchScript's names. Python stays Python here; `graphc.compile` is what compiles.

script() and trace() give back what they got, the decorators mark nothing. save() and load() write
and read archives of `torch.export`, not TorchScript's files.
"""

import builtins
import contextlib
import functools
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any
from typing import Final as Final
from weakref import WeakKeyDictionary

from graphc.ir.late import late

from .. import unsupported
from ..frontend.grad_mode import no_grad
from ..futures import Future as Future
from ..nn.modules.module import Module
from . import annotations as annotations

_is = builtins.isinstance  # this module has torch's own, below
_files = late("graphc.jit.files")
# what trace() was called with, by the model or function that it gave back
_examples: WeakKeyDictionary[Any, tuple[tuple[Any, ...], dict[str, Any]]] = WeakKeyDictionary()


class ScriptModule(Module):
    """A Module like any other, for classes that derive from it: script() makes none."""


RecursiveScriptModule = ScriptModule
ScriptFunction = type(lambda: None)


class TracerWarning(Warning):
    """Never given: nothing is frozen by trace()."""


class TracingCheckError(Exception):
    """A traced function gave different results when called again."""


def script(obj: Any, optimize: None = None, _frames_up: int = 0, _rcb: Any = None,
           example_inputs: Any = None) -> Any:
    """The function, Module or class itself."""
    if not (_is(obj, Module) or callable(obj)):
        raise TypeError(f"script() takes a function, a Module or a class, got {type(obj).__name__}")
    if example_inputs is not None and not _is(example_inputs, dict):
        _keep(obj, tuple(example_inputs[0]), {})
    return _with_save(obj)


def _with_save(obj: Any) -> Any:
    """A function with the `save` that torch's has; a Module's is found by Module itself."""
    if _is(obj, types.FunctionType) and not hasattr(obj, "save"):
        obj.save = functools.partial(save, obj)
    return obj


def _keep(obj: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    with contextlib.suppress(TypeError):  # a bound method's are kept by nobody
        _examples[obj] = args, kwargs


def examples_of(obj: Any) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """(args, kwargs) of the call by which a model or function was traced; None if it was not."""
    try:
        return _examples.get(obj)
    except TypeError:
        return None


def save(m: Any, f: Any, _extra_files: Any = None) -> None:
    """Write what trace() or load() gave back to a path or file: an archive of torch.export.

    It is recorded now, in the train or eval state that it is in, at the examples of its trace; each
    size that its Python leaves free is free in the file. `_extra_files`: texts by name, which load
    gives back. Raises NotImplementedError for what was never traced, and what torch.export.export
    raises for what one graph cannot stand for.
    """
    _files.save(m, f, _extra_files)


def load(
    f: Any, map_location: Any = None, _extra_files: dict[str, Any] | None = None,
    _restore_shapes: bool = False,
) -> Any:
    """The Module in a file that save() wrote: a path, or a file open for reading bytes.

    It runs without the model's code and has no autograd. `map_location`: a device its tensors go
    to. `_extra_files`: its names get the bytes that were saved under them. Raises ValueError for a
    path that is none, NotImplementedError for a file that TorchScript wrote, ExportError for one
    that is damaged.
    """
    return _files.load(f, map_location, _extra_files)


def trace(
    func: Any, example_inputs: Any = None, optimize: Any = None, check_trace: bool = True,
    check_inputs: Any = None, check_tolerance: float = 1e-5, strict: bool = True,
    _force_outplace: bool = False, _module_class: Any = None, _compilation_unit: Any = None,
    example_kwarg_inputs: dict[str, Any] | None = None, _store_inputs: bool = True,
) -> Any:
    """The function or Module itself, called once on the examples so that it fails here if at all.

    Unlike TorchScript's trace, Python decisions are made anew at each call. `m.save(path)` writes
    the graph of its call on the examples.
    """
    if example_inputs is None and example_kwarg_inputs is None:
        raise RuntimeError("example_kwarg_inputs should be a dict")
    if example_inputs is None:
        given: tuple[Any, ...] = ()
    elif _is(example_inputs, tuple | list):
        given = tuple(example_inputs)
    else:
        given = (example_inputs,)
    with no_grad():
        func(*given, **(example_kwarg_inputs or {}))
    if _store_inputs:
        _keep(func, given, dict(example_kwarg_inputs or {}))
    return _with_save(func)


def trace_module(mod: Module, inputs: dict[str, Any], *args: Any, **options: Any) -> Module:
    """The Module itself; each named method is called once on its examples."""
    for name, given in inputs.items():
        trace(mod if name == "forward" else getattr(mod, name), given)
    return mod


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """A decorator that marks nothing: @ignore and @ignore(drop=True)."""
    return drop if callable(drop) else lambda function: function


def unused(fn: Any) -> Any:
    """A decorator that marks nothing."""
    return fn


export = unused
script_method = unused
interface = unused
_overload = unused
_overload_method = unused
_drop = unused


def script_if_tracing(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself."""
    return fn


_script_if_tracing = script_if_tracing


def is_scripting() -> bool:
    """False."""
    return False


def is_tracing() -> bool:
    """False: graphc's own traces run ordinary Python."""
    return False


def annotate(the_type: Any, the_value: Any) -> Any:
    """the_value."""
    return the_value


class Attribute(typing.NamedTuple):
    value: Any
    type: Any


def isinstance(obj: Any, target_type: Any) -> bool:  # torch's name
    """Whether obj is of a type; List[int] and the like are taken apart, Optional too."""
    if _is(target_type, tuple):
        return any(isinstance(obj, kind) for kind in target_type)
    origin, arguments = typing.get_origin(target_type), typing.get_args(target_type)
    if origin is None:
        return _is(obj, type(None) if target_type is None else target_type)
    if not _is(origin, type) or origin is types.UnionType:  # Union and Optional
        return any(isinstance(obj, kind) for kind in arguments)
    if not _is(obj, origin):
        return False
    if origin is dict:
        key, value = arguments
        return all(isinstance(k, key) and isinstance(v, value) for k, v in obj.items())
    if origin is tuple and arguments[-1:] != (Ellipsis,):
        return len(obj) == len(arguments) and all(map(isinstance, obj, arguments))
    return all(isinstance(element, arguments[0]) for element in obj)


def freeze(
    mod: Module, preserved_attrs: list[str] | None = None, optimize_numerics: bool = True
) -> Module:
    """The Module itself, which must be in evaluation mode. Raises RuntimeError."""
    if mod.training:
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() "
            "on your module before freezing."
        )
    return mod


def optimize_for_inference(mod: Module, other_methods: list[str] | None = None) -> Module:
    """The Module itself."""
    return mod


def run_frozen_optimizations(mod: Module, *args: Any, **options: Any) -> None:
    """Nothing to do."""


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
    """A Future whose value is there already: the function runs at once."""
    future: Future[Any] = Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future: Future[Any]) -> Any:
    """The value of a Future."""
    return future.wait()


_fork, _wait = fork, wait


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """A context that does nothing."""
    yield


@contextlib.contextmanager
def fuser(name: str) -> Iterator[None]:
    """A context that does nothing."""
    yield


def set_fusion_strategy(strategy: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Noted nowhere: TorchScript's fuser is not here."""
    return strategy


def enable_onednn_fusion(enabled: bool) -> None:
    """Nothing to do: no oneDNN."""


def onednn_fusion_enabled() -> bool:
    """False."""
    return False


globals().update(unsupported.table(
    "torch.jit", "write a Module class", kinds="CompilationUnit TopLevelTracedModule TracedModule"
))

# what torch's module of this name gives to `import *`
__all__ = [
    "Attribute",
    "CompilationUnit",
    "Future",
    "ScriptFunction",
    "ScriptModule",
    "annotate",
    "enable_onednn_fusion",
    "export",
    "fork",
    "freeze",
    "ignore",
    "interface",
    "isinstance",
    "load",
    "onednn_fusion_enabled",
    "optimize_for_inference",
    "save",
    "script",
    "script_if_tracing",
    "set_fusion_strategy",
    "trace",
    "trace_module",
    "unused",
    "wait",
]
