"""torch.library: operators written in Python, which torch.ops then has, too."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .frontend.function import Function
from .frontend.tensor import Tensor
from .ops_registry import REGISTERED

Decorator = Callable[[Callable[..., Any]], Any]
_FAKES: dict[str, Callable[..., Any]] = {}  # "namespace::name" -> what runs on the device meta


def _for_meta(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The fake kernel of an operator, where a tensor among the arguments has no data."""
    fake = _FAKES.get(name)
    if fake is not None:
        for value in (*args, *kwargs.values()):
            parts = value if isinstance(value, list | tuple) else (value,)
            if any(isinstance(part, Tensor) and part.device.type == "meta" for part in parts):
                return fake
    return None


class CustomOpDef:
    """What custom_op() makes: a function with an optional gradient rule."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        if name.count("::") != 1:
            raise ValueError(f"name must have the form 'namespace::name', got {name!r}")
        self._qualname = name
        self._function = function
        self._differentiable: type[Function] | None = None
        self._signature = inspect.signature(function)
        functools.update_wrapper(self, function)
        REGISTERED[name] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        fake = _for_meta(self._qualname, args, kwargs)
        if fake is not None:
            return fake(*args, **kwargs)
        if self._differentiable is None:
            return self._function(*args, **kwargs)
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return self._differentiable.apply(*bound.arguments.values())

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """A decorator: what runs on tensors of the device meta. Traces need none: shapes follow
        from the function itself."""
        _FAKES[self._qualname] = fn
        return fn

    def register_vmap(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """A decorator. Nothing is kept: vmap goes through the function itself."""
        return fn

    def register_kernel(
        self, device_types: Any, fn: Callable[..., Any] | None = None, /
    ) -> Any:
        """Another implementation for the CPU; those for other devices are not kept."""

        def keep(function: Callable[..., Any]) -> Callable[..., Any]:
            kinds = [device_types] if isinstance(device_types, str) else device_types
            if kinds is None or "cpu" in kinds:
                self._function = function
            return function

        return keep if fn is None else keep(fn)

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """backward(ctx, *grads) -> a gradient per input; setup_context(ctx, inputs, output)."""

        def forward(ctx: Any, *inputs: Any) -> Any:
            output = self._function(*inputs)
            if setup_context is not None:
                setup_context(ctx, inputs, output)
            return output

        self._differentiable = type(
            f"{self._qualname.replace('::', '_')}_function", (Function,),
            {"forward": staticmethod(forward), "backward": staticmethod(backward)},
        )


def custom_op(
    name: str, fn: Callable[..., Any] | None = None, /, *, mutates_args: str | Iterable[str],
    device_types: str | Sequence[str] | None = None, schema: str | None = None, tags: Any = None,
) -> Any:
    """An operator "namespace::name" of a function of tensors; a decorator without `fn`."""

    def make(function: Callable[..., Any]) -> CustomOpDef:
        return CustomOpDef(name, function)

    return make if fn is None else make(fn)


triton_op = custom_op


def _find(op: Any) -> CustomOpDef:
    if isinstance(op, CustomOpDef):
        return op
    name = op if isinstance(op, str) else op.__name__
    found = REGISTERED.get(name)
    if found is None:
        raise RuntimeError(f"torch.library: there is no operator {name!r}")
    if not isinstance(found, CustomOpDef):
        found = CustomOpDef(name, found)
    return found


def register_fake(op: Any, func: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """A decorator: what an operator does with tensors of the device meta."""
    name = op if isinstance(op, str) else getattr(op, "_qualname", None) or op.__name__

    def keep(function: Callable[..., Any]) -> Callable[..., Any]:
        _FAKES[name] = function
        return function

    return keep if func is None else keep(func)


impl_abstract = register_fake


def register_vmap(op: Any, func: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """A decorator. Nothing is kept: vmap and autocast go through the function itself."""
    return func if func is not None else lambda function: function


register_autocast = register_vmap


def register_autograd(
    op: Any, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None,
    lib: Any = None,
) -> None:
    """The gradient rule of an operator. Raises RuntimeError where there is no such operator."""
    _find(op).register_autograd(backward, setup_context=setup_context)


def register_kernel(
    op: Any, device_types: Any, func: Callable[..., Any] | None = None, /, *, lib: Any = None
) -> Any:
    """Another implementation of an operator."""
    return _find(op).register_kernel(device_types, func)


def define(qualname: str, schema: str, *, lib: Any = None, tags: Any = ()) -> None:
    """Declare an operator; impl() gives its code. Raises ValueError without a namespace."""
    if qualname.count("::") != 1:
        raise ValueError(f"qualname must have the form 'namespace::name', got {qualname!r}")


def impl(
    qualname: str, types: Any, func: Callable[..., Any] | None = None, *, lib: Any = None
) -> Any:
    """The code of an operator on the CPU ("cpu" or "default") or on meta; others are not kept."""
    kinds = [types] if isinstance(types, str) else list(types)

    def keep(function: Callable[..., Any]) -> Callable[..., Any]:
        if {"meta", "Meta"} & set(kinds):
            _FAKES[qualname] = function
        if {"cpu", "CPU", "default", "CompositeImplicitAutograd",
            "CompositeExplicitAutograd"} & set(kinds):
            REGISTERED[qualname] = _with_fakes(qualname, function)
        return function

    return keep if func is None else keep(func)


def _with_fakes(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (_for_meta(name, args, kwargs) or function)(*args, **kwargs)

    return call


class Library:
    """The operators of one namespace."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("DEF", "IMPL", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Declare an operator by its schema; gives its name."""
        return schema.partition("(")[0].strip()

    def impl(
        self, op_name: Any, fn: Callable[..., Any], dispatch_key: str = "", **options: Any
    ) -> None:
        """The code of an operator."""
        name = op_name if isinstance(op_name, str) else op_name.__name__
        key = dispatch_key or self.dispatch_key or "default"
        impl(f"{self.ns}::{name.partition('::')[2] or name}", key, fn)


def infer_schema(prototype_function: Callable[..., Any], /, **options: Any) -> str:
    """The function's signature as text."""
    return str(inspect.signature(prototype_function))


def opcheck(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None,
            **options: Any) -> dict[str, str]:
    """Call the operator once; raises what it raises."""
    op(*args, **(kwargs or {}))
    return {"test_schema": "SUCCESS"}
