"""torch.compiler: hints to the compiler."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from .frontend.context import local


def is_compiling() -> bool:
    """Whether the code runs in a trace."""
    return local.trace is not None


is_dynamo_compiling = is_compiling


def is_exporting() -> bool:
    """False: exports run the code as any trace does."""
    return False


def compile(*args: Any, **kwargs: Any) -> Any:
    """torch.compile."""
    return importlib.import_module("graphc.compile").compile(*args, **kwargs)


def disable(fn: Callable[..., Any] | None = None, recursive: bool = True, *,
            reason: str | None = None) -> Any:
    """A decorator. What can be recorded is recorded anyway, with the same results."""
    return fn if fn is not None else lambda function: function


def allow_in_graph(fn: Any) -> Any:
    """Nothing to allow: every function is traced through."""
    return fn


assume_constant_result = allow_in_graph


def substitute_in_graph(original_fn: Callable[..., Any], **options: Any) -> Any:
    """A decorator that marks nothing: the original is traced through."""
    return lambda function: function


def reset() -> None:
    """Nothing to forget: versions belong to the compiled functions."""


def cudagraph_mark_step_begin() -> None:
    """Nothing to do: no CUDA graphs."""


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """What `torch.compile(backend=...)` may name."""
    return ["llvm", "numpy"]


@contextlib.contextmanager
def set_stance(stance: str = "default", **options: Any) -> Iterator[None]:
    """Inside, with "force_eager", compiled functions run their Python, in this thread. Other
    stances change nothing: what is compiled is right at each call."""
    outer, local.stay_eager = local.stay_eager, stance == "force_eager"
    try:
        yield
    finally:
        local.stay_eager = outer


def wrap_numpy(fn: Any) -> Any:
    """The function itself."""
    return fn
