"""torch.fx.proxy: what stands for a value while a function is traced; each use is a Node."""

from __future__ import annotations

import bisect
import dis
import inspect
import operator
from collections.abc import Callable, Iterator
from typing import Any

import graphc

from ..frontend.errors import located
from ..frontend.tensor import Tensor
from .graph import Graph
from .node import Node, Target, map_aggregate, name_of


class TraceError(ValueError):
    """Something that a value would have to be known for."""


class TracerBase:
    """Makes Nodes of calls, and Proxies of Nodes."""

    graph: Graph
    record_stack_traces = False
    check_mutable_operations = False
    trace_asserts = False
    proxy_buffer_attributes = False

    def create_node(
        self, kind: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any],
        name: str | None = None, type_expr: Any = None,
    ) -> Node:
        """A Node whose arguments are Nodes already."""
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node: Node) -> Proxy:
        """What stands for a Node's value."""
        return Proxy(node, self)

    def create_proxy(
        self, kind: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any],
        name: str | None = None, type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """A Node of a call with Proxies, and what stands for its value."""
        node = self.create_node(
            kind, target, self.create_arg(args), self.create_arg(kwargs), name, type_expr
        )
        return self.proxy(node) if proxy_factory_fn is None else proxy_factory_fn(node)

    def create_arg(self, a: Any) -> Any:
        """An argument with Nodes in the Proxies' places."""
        if isinstance(a, range):
            return range(*(self.create_arg(part) for part in (a.start, a.stop, a.step)))
        if isinstance(a, (tuple, list, dict, slice)):
            return map_aggregate(a, self._leaf)
        return self._leaf(a)

    def _leaf(self, a: Any) -> Any:
        return a.node if isinstance(a, Proxy) else a

    def to_bool(self, obj: Proxy) -> bool:
        """Raises TraceError: which way to go is not known."""
        raise TraceError(located(
            "symbolically traced variables cannot be used as inputs to control flow"
        ))

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """The parts of a value that is unpacked. Raises TraceError where nothing says how many."""
        frame = inspect.currentframe()
        caller = frame and frame.f_back and frame.f_back.f_back
        if caller is not None:
            steps = list(dis.get_instructions(caller.f_code))
            place = bisect.bisect_left(steps, caller.f_lasti, key=lambda step: step.offset)
            if steps[place].opname == "UNPACK_SEQUENCE":
                parts: Any = obj
                return (parts[i] for i in range(int(steps[place].argval)))
        raise TraceError(located(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a "
            "loop or as a *args or **kwargs function argument. Cure: loop over a known number"
        ))

    def keys(self, obj: Proxy) -> Any:
        """What obj.keys() gives, as a Proxy."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Makes Nodes of a Graph that is there."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph


class Proxy:
    """Stands for a value; what is done with it becomes a Node."""

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Attribute:
        if k.startswith("__") and k.endswith("__"):  # protocols ask for what is not there
            raise AttributeError(k)
        return Attribute(self, k)

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        return self.tracer.iter(self)

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def __len__(self) -> int:
        raise RuntimeError(located(
            "'len' is not supported in symbolic tracing by default. Cure: torch.fx.wrap('len') "
            "in the module that calls it"
        ))

    def __index__(self) -> int:
        raise TraceError(located("a traced value is no number yet"))

    def keys(self) -> Any:
        """The keys of a mapping, as a Proxy."""
        return self.tracer.keys(self)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """A call of a function, or of a method of Tensor, with a Proxy."""
        kwargs = kwargs or {}
        tracer = first_proxy((args, kwargs)).tracer
        owner = getattr(func, "__self__", None)
        if isinstance(owner, property):  # Tensor.shape.__get__
            name = getattr(owner.fget, "__name__", "")
            return tracer.create_proxy("call_function", getattr, (args[0], name), {})
        name = getattr(func, "__name__", "")
        # what is a method, too, is a function here: methods of a Proxy come as attributes
        if vars(Tensor).get(name) is func and getattr(graphc, name, None) is not func:
            return tracer.create_proxy("call_method", name, args, kwargs)
        return tracer.create_proxy("call_function", func, args, kwargs)


class Attribute(Proxy):
    """An attribute of a Proxy: a Node once it is used, unless it is a method that is called."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """Made at first use."""
        if self._node is None:
            made = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {})
            self._node = made.node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """Stands for a parameter, whose shape is known."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any) -> None:
        super().__init__(node, tracer)
        self.param, self.name = param, name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        """The parameter's."""
        return self.param.shape

    def size(self, *args: Any) -> Any:
        """The parameter's."""
        return self.param.size(*args)

    def dim(self) -> int:
        """The parameter's."""
        return int(self.param.dim())

    @property
    def ndim(self) -> int:
        """The parameter's."""
        return int(self.param.ndim)

    def numel(self) -> int:
        """The parameter's."""
        return int(self.param.numel())


def first_proxy(values: Any) -> Proxy:
    """One of the Proxies among arguments. Raises TypeError where there is none."""
    found: list[Proxy] = []
    map_aggregate(values, lambda value: found.append(value) if isinstance(value, Proxy) else None)
    if not found:
        raise TypeError("no Proxy among the arguments")
    return found[0]


def has_proxy(values: Any) -> bool:
    """Whether there is a Proxy among arguments."""
    found: list[bool] = []
    map_aggregate(values, lambda value: found.append(isinstance(value, Proxy)))
    return any(found)


def _forward(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Proxy, *args: Any) -> Any:
        return self.tracer.create_proxy("call_function", function, (self, *args), {})

    method.__name__ = name_of(function)
    return method


def _reflected(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Proxy, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", function, (other, self), {})

    return method


_BINARY = "add sub mul truediv floordiv mod pow matmul lshift rshift and or xor divmod"
for _name in f"{_BINARY} eq ne lt le gt ge neg pos abs invert getitem".split():
    _function = divmod if _name == "divmod" else getattr(operator, f"__{_name}__")
    setattr(Proxy, f"__{_name}__", _forward(_function))
for _name in _BINARY.split():
    _function = divmod if _name == "divmod" else getattr(operator, f"__{_name}__")
    setattr(Proxy, f"__r{_name}__", _reflected(_function))
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]
