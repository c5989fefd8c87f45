"""torch.autograd.Function: operations with a backward written in Python."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from graphc.ir.types import TensorType

from .anomaly import Anomaly
from .context import callout, local
from .errors import INFERENCE_SAVED, located, user_location
from .history import edge, requires_grad
from .nodes import TWICE, Edge, Node, World, zeros
from .saved_hooks import Packed, hooks, pack, unpack
from .tensor import Tensor, alias, current


class FunctionCtx:
    """What forward leaves for backward: saved tensors, flags, and any attributes."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.materialize_grads = True
        self._to_save: tuple[Any, ...] = ()
        self._saved: tuple[Any, ...] | None = ()
        self._dirty: tuple[Tensor, ...] = ()
        self._fixed: tuple[Tensor, ...] = ()
        self._graphc_node: FunctionNode | None = None

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors (inputs, results or others) for backward; writes to them are noticed."""
        for tensor in tensors:
            if tensor is not None and not isinstance(tensor, Tensor):
                raise TypeError(
                    "save_for_backward can only save variables, but argument is of type "
                    f"{type(tensor).__name__}; keep other values as attributes of ctx"
                )
        self._to_save = tensors

    save_for_forward = save_for_backward

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors saved. Raises RuntimeError once they are freed or were written to."""
        if self._saved is None:
            raise RuntimeError(located(TWICE))
        return tuple([None if s is None else s.get(self._graphc_node) for s in self._saved])

    saved_variables = saved_tensors  # the name before PyTorch 0.4

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Say that forward wrote to these inputs, and returns them."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say that these results carry no gradient."""
        self._fixed = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """False: backward gets None instead of zeros for a result without a gradient."""
        self.materialize_grads = bool(value)


class _Saved:
    """A tensor kept for backward. A result is kept without its history, which would be a cycle."""

    __slots__ = ("output", "packed", "storage", "tensor", "version")

    def __init__(self, tensor: Tensor, output: int | None) -> None:
        self.output = output
        self.tensor = tensor if output is None else alias(tensor)
        self.packed: Packed | None = None
        if local.saved_hooks and not hooks.busy:
            self.packed = pack(self.tensor)
        state = current(tensor)
        self.storage = state._graphc_storage
        self.version = state._graphc_storage.version

    def get(self, node: FunctionNode | None) -> Tensor:
        if self.storage.version != self.version and self.packed is None:
            raise RuntimeError(located(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: a tensor of shape {list(self.tensor.shape)} saved by "
                f"{'a custom Function' if node is None else node.name()} is at version "
                f"{self.storage.version}; expected version {self.version} instead."
            ))
        tensor = self.tensor if self.packed is None else unpack(self.packed)
        if self.output is None or node is None:
            return tensor
        result = alias(tensor)
        result._graphc_node, result._graphc_output = node, self.output
        return result


class FunctionNode(Node):
    """The tape's entry of a custom Function."""

    def __init__(
        self,
        function: type[Function],
        ctx: FunctionCtx,
        edges: tuple[Edge | None, ...],
        out_types: tuple[TensorType, ...],
        is_tensor: tuple[bool, ...],
    ) -> None:
        super().__init__(edges, out_types)
        self.function = function
        self.is_tensor = is_tensor  # of what forward returned: backward gets None for the rest
        self.ctx = ctx

    @property
    def _forward_cls(self) -> type[Function]:
        return self.function

    def __getattr__(self, name: str) -> Any:
        """What the context has, saved_tensors say: in torch it is the node."""
        if name.startswith("_") or "ctx" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.ctx, name)

    def release(self) -> None:
        self.released = True
        if self.ctx._saved:
            self.ctx._saved = None

    def gradients(self, grads: list[Any], needs: Sequence[bool], world: World) -> Sequence[Any]:
        given: list[Any] = []
        like = world.to_expr(next(g for g in grads if g is not None))
        for value, type_ in zip(grads, self.out_types, strict=True):
            if value is None and self.ctx.materialize_grads:
                value = world.from_expr(zeros(like, type_))
            given.append(None if value is None else world.to_tensor(value))
        rule = self.function.backward
        if rule is Function.backward:
            rule = self.function.vjp
        of_tensors = iter(given)
        found = callout(rule)(
            self.ctx, *(next(of_tensors) if there else None for there in self.is_tensor)
        )
        found = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        count = len(self.edges)
        if len(found) < count or any(f is not None for f in found[count:]):
            raise RuntimeError(located(
                f"function {self.name()} returned an incorrect number of gradients (expected "
                f"{count}, got {len(found)})"
            ))
        for i, gradient in enumerate(found):
            if gradient is not None and not isinstance(gradient, Tensor):
                raise RuntimeError(located(
                    f"expected Variable or None (got {type(gradient).__name__}): function "
                    f"{self.name()}, gradient {i}"
                ))
        return [None if g is None else world.from_tensor(g) for g in found[:count]]


_CLASSES: WeakKeyDictionary[type[Function], type[FunctionNode]] = WeakKeyDictionary()


def _node_class(function: type[Function]) -> type[FunctionNode]:
    """The class of a Function's nodes, named after it as torch names them."""
    found = _CLASSES.get(function)
    if found is None:
        name, names = f"{function.__name__}Backward", {"__module__": function.__module__}
        found = _CLASSES[function] = type(name, (FunctionNode,), names)
    return found


class Function:
    """Subclass with static methods forward(ctx, ...) and backward(ctx, *grads); call apply()."""

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the results; `ctx` comes first unless setup_context is defined."""
        raise NotImplementedError("You must implement the forward function for custom Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Save what backward needs, when forward takes no ctx."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """One gradient (or None) per argument of forward."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function"
        )

    @staticmethod
    def vjp(ctx: Any, *grads: Any) -> Any:
        """Another name for backward."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function"
        )

    @staticmethod
    def jvp(ctx: Any, *grads: Any) -> Any:
        """Accepted; forward-mode derivatives come from backward, differentiated once more."""
        raise NotImplementedError("You must implement the jvp function for custom Function.")

    generate_vmap_rule = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Functions have no instances that are called. Raises RuntimeError."""
        raise RuntimeError(located(
            "Legacy autograd function with non-static forward method is deprecated. Please use "
            "new-style autograd function with static forward method. (Example: "
            "https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function) Cure: "
            f"{type(self).__name__}.apply(...)"
        ))

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run forward, and record the backward if an argument requires a gradient."""
        states = [current(a) if isinstance(a, Tensor) else None for a in args]
        needs = tuple([s is not None and requires_grad(s) for s in states])
        trace = local.trace
        records = local.grad and any(needs)
        if trace is not None and records and trace.runs_eagerly("a custom Function"):
            with trace.eager(f"{cls.__name__}.apply()"):
                return cls.apply(*args)
        ctx = FunctionCtx(needs)
        edges = tuple([
            edge(s) if s is not None and need else None
            for s, need in zip(states, needs, strict=True)
        ])
        saved_mode = local.grad
        local.grad = False
        try:
            if cls.setup_context is not Function.setup_context:
                result = callout(cls.forward)(*args)
                callout(cls.setup_context)(ctx, args, result)
            else:
                result = callout(cls.forward)(ctx, *args)
        finally:
            local.grad = saved_mode
        several = isinstance(result, (tuple, list))
        outputs = _own_outputs(list(result) if several else [result], args, ctx, records)
        if records:
            _attach(cls, ctx, edges, outputs, result if several else (result,))
        else:
            ctx._saved = None
        return tuple(outputs) if several else outputs[0]


def _own_outputs(
    outputs: list[Any], args: tuple[Any, ...], ctx: FunctionCtx, records: bool
) -> list[Any]:
    """Results as tensors of their own: an input handed through becomes an alias of it."""
    dirty = {id(t) for t in ctx._dirty}
    inputs = {id(a) for a in args if isinstance(a, Tensor)}
    owned: list[Any] = []
    for value in outputs:
        if isinstance(value, Tensor) and id(value) in inputs and id(value) not in dirty:
            value = alias(value)
        elif isinstance(value, Tensor) and id(value) not in dirty:
            state = current(value)
            if state._graphc_node is not None or state._graphc_requires_grad:
                value = alias(value)
            elif records:
                state._base, state._graphc_chain = None, ()
        owned.append(value)
    return owned


def _attach(
    cls: type[Function],
    ctx: FunctionCtx,
    edges: tuple[Edge | None, ...],
    outputs: list[Any],
    returned: Sequence[Any],
) -> None:
    is_tensor = tuple([isinstance(t, Tensor) for t in outputs])
    types = tuple([t._graphc_type for t in outputs if isinstance(t, Tensor)])
    node = _node_class(cls)(cls, ctx, edges, types, is_tensor)
    if Anomaly.enabled:
        node.loc = user_location()
    ctx._graphc_node = node
    fixed = {id(t) for t in ctx._fixed}
    places: dict[int, int] = {}  # of results, by identity
    position = 0
    for value, given in zip(outputs, returned, strict=True):
        if not isinstance(value, Tensor):
            continue
        places[id(given)] = places[id(value)] = position
        state = current(value)
        if id(given) not in fixed and state._graphc_type.dtype.differentiable:
            if id(given) in {id(t) for t in ctx._dirty}:
                _check_dirty(state)
            state._graphc_node, state._graphc_output = node, position
        position += 1
    if any(t is not None and current(t)._graphc_storage.inference for t in ctx._to_save):
        raise RuntimeError(located(INFERENCE_SAVED))
    inputs = {id(t) for t in ctx._to_save} - {id(t) for t in outputs}
    ctx._saved = tuple([
        None if t is None else _Saved(t, None if id(t) in inputs else places.get(id(t)))
        for t in ctx._to_save
    ])
    ctx._to_save = ()


def _check_dirty(state: Tensor) -> None:
    if state._graphc_node is None and state._graphc_requires_grad:
        raise RuntimeError(located(
            "a leaf Variable that requires grad is being used in an in-place operation."
        ))


class OnceNode(Node):
    """The history of gradients that a once_differentiable backward computed: an error."""

    def gradients(self, grads: list[Any], needs: Sequence[bool], world: World) -> Sequence[Any]:
        raise RuntimeError(located(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        ))


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a backward whose own operations are not recorded: differentiating its results
    raises RuntimeError, but for a gradient that is asked of other tensors alone: it ends here."""

    @functools.wraps(function)
    def wrapper(ctx: Any, *grads: Any) -> Any:
        saved = local.grad
        local.grad = False
        try:
            found = callout(function)(ctx, *grads)
        finally:
            local.grad = saved
        if not saved or not any(
            isinstance(g, Tensor) and requires_grad(current(g)) for g in grads
        ):
            return found
        several = isinstance(found, tuple)
        results: list[Any] = []
        for value in found if several else (found,):
            if isinstance(value, Tensor) and value.dtype.differentiable:
                value, end = alias(value), value.detach().requires_grad_()
                value._graphc_node = OnceNode((edge(current(end)),), (value._graphc_type,))
            results.append(value)
        return tuple(results) if several else results[0]

    return wrapper


__all__ = ["Function", "FunctionCtx", "once_differentiable"]
