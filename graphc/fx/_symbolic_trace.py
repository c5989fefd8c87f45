"""torch.fx._symbolic_trace: running Python with Proxies in the place of arguments."""

from __future__ import annotations

import builtins
import functools
import inspect
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

from ..frontend.errors import located
from ..frontend.overriding import Installed
from ..frontend.tensor import Tensor
from ..nn.modules.container import Sequential
from ..nn.modules.module import Module
from ..nn.parameter import Parameter
from .graph import Graph
from .graph_module import GraphModule
from .node import Node
from .proxy import ParameterProxy, Proxy, TracerBase, first_proxy, has_proxy

# names that wrap() was called for: the globals that have them
_wrapped: dict[tuple[int, str], dict[str, Any]] = {}
_STARS: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**",
}
_orig_module_call, _orig_module_getattr = Module.__call__, Module.__getattr__
_SIMPLE = (str, int, float, bool, complex, type(None), type(...), bytes)


class ScriptObject:
    """An object of TorchScript's, of which there is none here."""


def compatibility(is_backward_compatible: bool) -> Callable[[Any], Any]:
    """A decorator that says whether something will stay as it is."""
    return lambda function: function


def wrap(fn_or_name: Any) -> Any:
    """Let calls of a function of this module be Nodes, and not traced through: a decorator, or
    called with a name at a module's top level."""
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(located(
            "Unsupported type for global function! Must be either a callable or string name"
        ))
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__code__.co_name
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError(located("wrap must be called at the top level of a module"))
    _wrapped[id(frame.f_globals), name] = frame.f_globals
    return fn_or_name


class _Patcher:
    """Names that have other values for a while: until it is left."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._seen: set[tuple[int, str]] = set()

    def __enter__(self) -> _Patcher:
        return self

    def __exit__(self, *exception: object) -> None:
        while self._undo:
            self._undo.pop()()

    def patch(
        self, names: dict[str, Any], name: str, value: Any, deduplicate: bool = True
    ) -> None:
        """Of a dict of globals; once, unless `deduplicate` is False."""
        if deduplicate and (id(names), name) in self._seen:
            return
        missing = object()
        before = names.get(name, missing)

        def undo() -> None:
            if before is missing:
                names.pop(name, None)
            else:
                names[name] = before

        self._seen.add((id(names), name))
        names[name] = value
        self._undo.append(undo)

    def patch_method(self, kind: type, name: str, value: Any, deduplicate: bool = True) -> None:
        """Of a class, likewise."""
        if deduplicate and (id(kind), name) in self._seen:
            return
        before = vars(kind)[name]
        self._seen.add((id(kind), name))
        setattr(kind, name, value)
        self._undo.append(lambda: setattr(kind, name, before))


def _autowrap_check(patcher: _Patcher, names: dict[str, Any], function_ids: set[int]) -> None:
    """Let calls of these functions that go by such names be Nodes."""
    for name, value in list(names.items()):
        if not name.startswith("_") and id(value) in function_ids and callable(value):
            patcher.patch(names, name, _as_node(value))


def _patch_wrapped_functions(patcher: _Patcher) -> None:
    """Let calls of what wrap() was called for be Nodes."""
    for (_, name), names in _wrapped.items():
        value = names.get(name, getattr(builtins, name, None))
        if callable(value):
            patcher.patch(names, name, _as_node(value))


def _as_node(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose calls with Proxies are Nodes."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not has_proxy((args, kwargs)):
            return function(*args, **kwargs)
        tracer = first_proxy((args, kwargs)).tracer
        return tracer.create_proxy("call_function", function, args, kwargs)

    return wrapped


def _without_stars(function: Any) -> Any:
    """A function whose *args and **kwargs are parameters like the others."""
    if not isinstance(function, FunctionType):
        raise NotImplementedError(located(
            "torch.fx traces a function with *args or **kwargs where it is Python's own, not "
            f"{type(function).__name__}"
        ))
    code = function.__code__
    stars = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    changed = code.replace(
        co_flags=code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS),
        co_argcount=code.co_argcount + code.co_kwonlyargcount + stars, co_posonlyargcount=0,
        co_kwonlyargcount=0,
    )
    closure = function.__closure__
    return FunctionType(changed, function.__globals__, function.__name__, None, closure)


def _annotations(function: Any) -> dict[str, Any]:
    """What the user says of a function's types. graphc's own, which torch has others of, are left
    out."""
    if str(getattr(function, "__module__", "")).split(".")[0] == "graphc":
        return {}
    return dict(getattr(function, "__annotations__", {}))


def is_fx_tracing() -> bool:
    """Whether a Tracer is at work."""
    return _at_work[0] > 0


_at_work = [0]


class Tracer(TracerBase):
    """Makes a Graph of a Module or a function. Modules of torch.nn are Nodes themselves."""

    def __init__(
        self, autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        self._autowrap_function_ids = {
            id(value) for module in autowrap_modules for name, value in vars(module).items()
            if not name.startswith("_") and callable(value)
        } | {id(function) for function in autowrap_functions}
        self._autowrap_search = list(autowrap_modules)
        self.param_shapes_constant = param_shapes_constant
        self.root: Module = Module()
        self.module_stack: list[str] = []
        self._named: Module | None = None  # the root of which these are the names
        self._paths: dict[int, str] = {}
        self._attributes: dict[int, str] = {}  # tensors among them
        self._kept: list[Any] = []  # whose ids these are

    def _names(self) -> None:
        """Know the names of what the root has; who makes a trace of their own sets `root` alone."""
        if self._named is self.root:
            return
        self._named = self.root
        self._paths = {id(m): name for name, m in self.root.named_modules()}
        self._attributes = {
            id(tensor): name
            for table in (self.root.named_buffers(), self.root.named_parameters())
            for name, tensor in table
        }
        self._attributes |= {
            id(value): f"{name}.{key}".lstrip(".") for name, m in self.root.named_modules()
            for key, value in vars(m).items() if isinstance(value, Tensor)
        }

    # --- what is a Node ------------------------------------------------------------------

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether calls of a Module are Nodes: those of torch.nn, but for Sequential."""
        home = type(m).__module__
        return home.startswith(("torch.nn", "graphc.nn")) and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The name of a submodule. Raises NameError for one that is none."""
        self._names()
        found = self._paths.get(id(mod))
        if found is None:
            raise NameError(located(f"module is not installed as a submodule: {mod}"))
        return found

    def call_module(
        self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """What a call of a submodule comes to: a Node, or what its forward does."""
        path = self.path_of_module(m)
        if self.is_leaf_module(m, path):
            return self.create_proxy("call_module", path, args, kwargs)
        self.module_stack.append(path)
        try:
            return forward(*args, **kwargs)
        finally:
            self.module_stack.pop()

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """What a Module's attribute is: of a parameter, a Proxy."""
        buffer = self.proxy_buffer_attributes and isinstance(attr_val, Tensor)
        if not isinstance(attr_val, Parameter) and not buffer:
            return attr_val
        self._names()
        name = self._attributes.get(id(attr_val))
        if name is None:
            return attr_val
        if name not in parameter_proxy_cache:
            if self.param_shapes_constant:
                def make(node: Node) -> Proxy:
                    return ParameterProxy(self, node, name, attr_val)

                made = self.create_proxy("get_attr", name, (), {}, proxy_factory_fn=make)
            else:
                made = self.create_proxy("get_attr", name, (), {})
            parameter_proxy_cache[name] = made
        return parameter_proxy_cache[name]

    def _leaf(self, a: Any) -> Any:
        if isinstance(a, Proxy):
            return a.node
        if isinstance(a, Tensor):
            self._names()
            name = self._attributes.get(id(a))
            return self.create_node("get_attr", name or self._constant(a), (), {})
        if isinstance(a, Module):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        if isinstance(a, (*_SIMPLE, type, FunctionType)) or _is_plain(a):
            return a
        raise NotImplementedError(located(
            f"argument of type: {type(a).__name__}; a Graph takes Proxies, tensors, numbers, texts "
            "and containers of them"
        ))

    def _constant(self, tensor: Tensor) -> str:
        """A new name of the root's for a tensor that no Module has."""
        number = 0
        while hasattr(self.root, f"_tensor_constant{number}"):
            number += 1
        name = f"_tensor_constant{number}"
        setattr(self.root, name, tensor)
        self._attributes[id(tensor)] = name
        self._kept.append(tensor)
        return name

    # --- the trace -----------------------------------------------------------------------

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> Graph:
        """The Graph of a Module or a function. `concrete_args`: values of some arguments."""
        method = isinstance(root, Module)
        self.root, function = (root, type(root).forward) if method else (Module(), root)
        self._named = None
        self.graph = Graph(tracer_cls=type(self))
        called, args = self.create_args_for_root(function, method, concrete_args)
        with self._patched(function):
            result = called(*args)
        # torch calls a function with stars by another one, which says no types
        returned = _annotations(called).get("return")
        self.create_node("output", "output", (self.create_arg(result),), {}, type_expr=returned)
        return self.graph

    def create_args_for_root(
        self, root_fn: Any, is_module: bool, concrete_args: dict[str, Any] | None = None
    ) -> tuple[Any, list[Any]]:
        """A placeholder for each of a function's parameters: a function to call, and with what."""
        Installed.stay()  # functions ask a Proxy, which is no tensor, from now on
        called, args, kwargs = self._parameters(root_fn, is_module, concrete_args or {})
        args = [self.root, *args] if is_module else args
        if not kwargs:
            return called, args
        count = len(args)

        def by_name(*values: Any) -> Any:
            return called(*values[:count], **dict(zip(kwargs, values[count:], strict=True)))

        by_name.__annotations__ = _annotations(called)
        by_name.__module__ = str(getattr(called, "__module__", ""))
        return by_name, [*args, *kwargs.values()]

    def _parameters(
        self, function: Any, method: bool, concrete: dict[str, Any]
    ) -> tuple[Any, list[Any], dict[str, Any]]:
        """A placeholder for each of a function's parameters: a function to call with them."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        parameters = list(inspect.signature(inspect.unwrap(function)).parameters.values())
        annotations = _annotations(inspect.unwrap(function))
        if any(each.kind in _STARS for each in parameters):
            # each of *args and **kwargs is one Proxy
            function = _without_stars(function)
            parameters.sort(key=lambda each: each.kind in _STARS)
        for parameter in parameters[1:] if method else parameters:
            default: tuple[Any, ...] = ()
            if parameter.default is not parameter.empty:
                default = (parameter.default,)
            if parameter.name in concrete:
                default = (concrete[parameter.name],)
            name = f"{_STARS.get(parameter.kind, '')}{parameter.name}"
            annotation = annotations.get(parameter.name)
            made = self.create_proxy("placeholder", name, default, {}, type_expr=annotation)
            value = default[0] if parameter.name in concrete else made
            if parameter.kind in (parameter.KEYWORD_ONLY, *_STARS):
                kwargs[parameter.name] = value
            else:
                args.append(value)
        return function, args, kwargs

    @contextmanager
    def _patched(self, function: Any) -> Iterator[None]:
        """Calls of Modules, their parameters, and wrapped functions are this Tracer's."""
        found: dict[str, Any] = {}
        functions = self._autowrap_function_ids

        def call(module: Module, *args: Any, **kwargs: Any) -> Any:
            def forward(*args: Any, **kwargs: Any) -> Any:
                return _orig_module_call(module, *args, **kwargs)

            home = vars(sys.modules.get(type(module).__module__, math))
            _autowrap_check(patcher, home, functions)
            return self.call_module(module, forward, args, kwargs)

        def attribute(module: Module, name: str) -> Any:
            return self.getattr(name, _orig_module_getattr(module, name), found)

        with _Patcher() as patcher:
            patcher.patch_method(Module, "__call__", call)
            patcher.patch_method(Module, "__getattr__", attribute)
            _autowrap_check(
                patcher, getattr(inspect.unwrap(function), "__globals__", {}), functions
            )
            for module in self._autowrap_search:
                _autowrap_check(patcher, vars(module), functions)
            _patch_wrapped_functions(patcher)
            _at_work[0] += 1
            try:
                yield
            finally:
                _at_work[0] -= 1


def _is_plain(value: Any) -> bool:
    """Whether a value is torch's word for something: a dtype, a device, a layout."""
    home = type(value).__module__ or ""
    return home.startswith(("torch", "graphc")) or callable(value)


def symbolic_trace(root: Any, concrete_args: dict[str, Any] | None = None) -> Any:
    """A GraphModule of what a Module or a function does with its arguments."""
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
