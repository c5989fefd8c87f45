"""torch.compiler: what users say to the compiler of their functions.

Source: https://docs.pytorch.org/docs/2.13/torch.compiler_api.html
"""

from __future__ import annotations

import functools
import importlib
import inspect
import types
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np

from . import backends, unsupported
from .engine.capture.exits import DISABLED_CURE, disabled
from .engine.marks import STANCES, Compilers, Mark, Stance, marks
from .engine.twin import sharing
from .frontend.context import local
from .frontend.functions.creation import as_tensor
from .frontend.tensor import Tensor
from .frontend.tree import flatten, unflatten
from .nn.modules.module import Module

# flags that scripts set; nothing reads them
config = types.SimpleNamespace(
    job_id=None, pgo_extra_read_key=None, pgo_extra_write_key=None, cache_key_tag="",
    dynamic_sources="", unbacked_sources="", force_disable_caches=False,
)


def is_compiling() -> bool:
    """Whether the code runs in a trace, or in eager mode in place of one that raised."""
    return local.trace is not None or local.instead


is_dynamo_compiling = is_compiling


def is_exporting() -> bool:
    """Whether the code runs in export()."""
    return local.exporting


def compile(*args: Any, **kwargs: Any) -> Any:
    """torch.compile."""
    return importlib.import_module("graphc.compile").compile(*args, **kwargs)


def compile_program() -> None:
    """Compile, from now on and in all of the process, what `python -m graphc run --compile` does.

    Outermost calls of Modules with parameters, losses, optimizers' steps, and functions of the
    program's own that compute on tensors and are called often. A second call does nothing more.
    """
    importlib.import_module("graphc.compat.modes").enter("compile")


# --- explicit exits ---------------------------------------------------------------------------


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Keep a function, a Module or the calls of a class out of graphs, as a decorator or a call.

    What was recorded is run before it, and it runs as plain eager code; a function that calls it
    runs in segments, and is an error with fullgraph=True, which gives the reason. Of a Module it
    makes one that shares its state. `recursive=False` is the same: what it calls runs eagerly, too,
    but for functions that are compiled themselves.
    """
    if fn is None:
        return lambda function: disable(function, recursive, reason=reason)
    if isinstance(fn, type):
        called: Any = fn.__call__
        setattr(fn, "__call__", disable(called, recursive, reason=reason))  # noqa: B010
        return fn
    if isinstance(fn, Module):
        return _disabled_module(getattr(fn, "_orig_mod", fn), reason)
    fn = getattr(fn, "__compiled_function__", fn)
    _check_callable(fn)

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        trace = local.trace
        nested, local.nested = local.nested, None
        try:
            if trace is None:
                return fn(*args, **kwargs)
            trace.end_segment(disabled(fn, reason), DISABLED_CURE + trace.otherwise)
            with trace.suspended():
                return fn(*args, **kwargs)
        finally:
            local.nested = nested

    marks.add(run, Mark.DISABLED, reason)
    return run


def _disabled_module(module: Module, reason: str | None) -> Module:
    """A Module of the same class, on the same state, whose calls are kept out of graphs."""
    fields = {"__call__": disable(type(module).__call__, reason=reason)}
    return sharing(
        module, (disable, (module, True)), functools.partial(disable, reason=reason), fields
    )


def allow_in_graph(fn: Any) -> Any:
    """Record a function's operations, and look at nothing else of it; gives the function.

    What its Python reads is not guarded, what it writes is not done again at later calls: as in
    torch, it should compute with its arguments alone. A list or tuple of functions gives a list.
    """
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(one) for one in fn]
    _check_callable(fn)
    marks.add(fn, Mark.ALLOWED)
    return fn


def nonstrict_trace(traceable_fn: Callable[..., Any]) -> Callable[..., Any]:
    """allow_in_graph of a function that is given back anew (torch._dynamo.nonstrict_trace)."""
    _check_callable(traceable_fn)

    @functools.wraps(traceable_fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        return traceable_fn(*args, **kwargs)

    marks.add(run, Mark.ALLOWED)
    return run


def assume_constant_result(fn: Any) -> Any:
    """Call a function once for each version, whose constant its result is; gives the function.

    It runs outside of the recording. Nothing looks whether it would give the same again. Where a
    function runs in segments, it is called each time.
    """
    marks.add(fn, Mark.CONSTANT)
    return fn


def substitute_in_graph(
    original_fn: Callable[..., Any], *, can_constant_fold_through: bool = False,
    skip_signature_check: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: record the decorated function where `original_fn` (in C, mostly) is called.

    Raises TypeError for something else than functions and, unless told to skip that check, for
    another signature; ValueError for a second substitute.
    """
    if not _is_function(original_fn):
        raise TypeError(f"substitute_in_graph expects a function but got {type(original_fn)!r}")
    if marks.of(original_fn) is not None:
        raise ValueError(f"Duplicate dispatch rule for {original_fn.__name__}")

    def decorate(traceable_fn: Callable[..., Any]) -> Callable[..., Any]:
        if not _is_function(traceable_fn):
            raise TypeError(
                "@substitute_in_graph(...) expects a function but got "
                f"{type(traceable_fn)!r}"
            )
        if not skip_signature_check:
            _check_signatures(original_fn, traceable_fn)
        marks.add(original_fn, Mark.SUBSTITUTED, traceable_fn)

        @functools.wraps(original_fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            return original_fn(*args, **kwargs)

        marks.add(run, Mark.SUBSTITUTED, traceable_fn)
        return run

    return decorate


def nested_compile_region(
    fn: Any = None, *, options: Any = None, max_reuse_entries: int = 8, reuse_hash_fn: Any = None
) -> Any:
    """The function itself, as a decorator or a call: equal kernels are compiled once anyway."""
    return (lambda function: function) if fn is None else fn


def _check_callable(function: Any) -> None:
    if not callable(function):
        raise AssertionError(f"fn must be callable, got {type(function).__name__}")


def _is_function(value: Any) -> bool:
    return inspect.isroutine(value) or isinstance(value, types.FunctionType)


def _check_signatures(original: Callable[..., Any], other: Callable[..., Any]) -> None:
    try:
        first, second = _identity(original), _identity(other)
    except ValueError:
        return  # C code without a signature
    anything = _identity(lambda *args, **kwargs: None)
    if first != second and anything not in (first, second):
        raise TypeError(
            f"Signature mismatch between {original.__name__} and {other.__name__}: "
            f"{inspect.signature(original)} != {inspect.signature(other)}"
        )


def _identity(function: Callable[..., Any]) -> Any:
    """The names and defaults of a function's parameters."""
    found = inspect.signature(function).parameters.values()
    named = [p for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return (
        [p.name for p in named if p.kind is not p.KEYWORD_ONLY],
        {p.name: p.default for p in named},
    )


# --- the whole process ------------------------------------------------------------------------


class set_stance:
    """How compiled functions behave from now on, inside a `with`, or inside a decorated function.

    "default"; "force_eager": nothing is compiled; "eager_on_recompile": what no version fits runs
    eagerly; "fail_on_recompile": that raises RuntimeError; "eager_then_compile" and
    "aot_eager_then_compile": the first call of each function runs eagerly. `force_backend`
    "eager" compiles nothing. Raises RuntimeError for another stance, InvalidBackend for an unknown
    backend, and under a trace.
    """

    def __init__(
        self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False,
        force_backend: Any = None,
    ) -> None:
        if stance not in STANCES:
            raise RuntimeError(f"invalid torch.compile stance '{stance}'")
        if force_backend is not None and stance != "default":
            raise RuntimeError("non-default stance cannot have force_backend set")
        if skip_guard_eval_unsafe:
            unsupported.refuse(
                "set_stance(skip_guard_eval_unsafe=True)", "leave it out: guards are always checked"
            )
        if force_backend is not None:
            force_backend = backends.canonical(force_backend)
        self.stance = Stance(stance, force_backend)
        self._before = _set(self.stance)

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        _set(self._before)

        @functools.wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            before = _set(self.stance)
            try:
                return fn(*args, **kwargs)
            finally:
                _set(before)

        return run

    def __enter__(self) -> None:
        _set(self.stance)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _set(self._before)


def _set(stance: Stance) -> Stance:
    if is_compiling():
        raise RuntimeError("attempted to set_stance in a torch.compile region")
    before, Compilers.stance = Compilers.stance, stance
    return before


def reset() -> None:
    """Forget every version, and what is known of each compiled function; compiled kernels stay."""
    for function in list(Compilers.functions):
        function.reset()


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """What `torch.compile(backend=...)` may name, but for those with such a tag."""
    return backends.names(exclude_tags or ())


def set_default_backend(backend: Any) -> None:
    """The backend of functions compiled from now on; None: the CPU's. Raises InvalidBackend."""
    Compilers.backend = backends.canonical(backends.DEFAULT if backend is None else backend)


def get_default_backend() -> Any:
    """The backend of functions that are compiled without naming one."""
    return Compilers.backend


def cudagraph_mark_step_begin() -> None:
    """Nothing to do: no CUDA graphs."""


_collectives = [False]


def set_enable_guard_collectives(enabled: bool) -> bool:
    """Gives the previous setting; guards of one process ask no other."""
    before, _collectives[0] = _collectives[0], enabled
    return before


def save_cache_artifacts() -> None:
    """None: nothing to save. Compiled kernels are kept on disk by what they compute."""


def load_cache_artifacts(serialized_artifacts: bytes) -> None:
    """None: nothing to load."""


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy arrays as one of tensors; a function that calls it runs in segments."""

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = flatten((args, kwargs))
        arrays = [leaf.numpy() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        given, named = unflatten(arrays, structure)
        results, shape = flatten(fn(*given, **named))
        return unflatten(
            [as_tensor(r) if isinstance(r, np.ndarray) else r for r in results], shape
        )

    return run


load_compiled_function = unsupported.function(
    "torch.compiler.load_compiled_function", "torch.export.save and load keep a compiled graph"
)
globals().update(unsupported.table(
    "torch.compiler", "leave it out: graphc checks every guard", functions="""
        keep_portable_guards_unsafe keep_tensor_guards_unsafe skip_all_guards_unsafe
        skip_guard_on_inbuilt_nn_modules_unsafe skip_guard_on_all_nn_modules_unsafe
        skip_guard_on_globals_unsafe
    """,
))
