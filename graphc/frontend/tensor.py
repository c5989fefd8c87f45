"""The Tensor: state only. Functions and methods are attached by other files.

A concrete Tensor has `_graphc_array` (a NumPy view) and `_graphc_storage` (the memory it shares). A
traced Tensor (`_graphc_trace` is its Trace) has no array: its value is a graph node that the trace
finds. A concrete Tensor used under a trace keeps its state untouched: reads and writes go to its
*shadow*, a traced Tensor that the trace holds for it (`current()` finds it). Fields that torch does
not have begin with `_graphc_`: subclasses have names of their own.

Attributes are class-level defaults, so that making a Tensor sets two of them only.

To attach a method:   `register_method("add", function)`   (or a table, `register_methods`).
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from graphc.ir import dtypes
from graphc.ir.dtypes import DType
from graphc.ir.memory import DeviceArray, on_host
from graphc.ir.types import TensorType

from . import placement
from .checks import check_flag, check_grad
from .context import local
from .device import CPU, device
from .errors import NOT_A_LEAF, kind_name, located, unsupported_in_trace
from .fields import lie_together
from .history import history, requires_grad
from .hooks import Hooks, RemovableHandle, add_hook, new_hooks
from .nodes import AccumulateGrad, Node
from .numbers import Size
from .storage import LOOSE, Storage, address, contiguous_strides, offset_of, strides_of
from .tree import LEAVES
from .views import Chain, check_bounds, strided

if TYPE_CHECKING:
    from .functionalize import TracedState
    from .trace import Trace

_DTYPE_OF = dtypes.OF_NUMPY


class Tensor:
    """A multi-dimensional array with a gradient, shaped like torch.Tensor."""

    _graphc_array: np.ndarray
    _graphc_storage: Any  # Storage; TracedStorage under a trace
    _graphc_trace: Trace | None = None
    _graphc_traced: TracedState  # where a traced tensor's value is found
    _graphc_concrete: Tensor | None = None  # of a shadow: the concrete tensor it stands for

    _graphc_requires_grad: bool = False
    _grad: Any = None
    _graphc_node: Node | None = None  # grad_fn
    _graphc_output: int = 0  # which of the node's results this is
    _graphc_accumulator: weakref.ref[AccumulateGrad] | None = None
    _graphc_hooks: Hooks | None = None  # of a leaf; those of others are on the node
    _graphc_post_hooks: Hooks | None = None
    # a view: the tensor whose history it follows, how it is made from that, and the version of
    # the storage at which `_graphc_node` was right
    _base: Tensor | None = None
    _graphc_chain: Chain = ()
    _graphc_seen: int = 0
    _graphc_no_grad_view: bool = False
    # of a view that came with others (split, unbind): which it is; of a view of such a one: ""
    _graphc_several: str | None = None
    _graphc_reshaped: bool = False  # by t_() and the like: the base is this tensor as it was before

    _graphc_constructor: Callable[..., Any] | None = None  # torch.Tensor(...), set by functions/

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls._graphc_constructor is None:
            return object.__new__(cls)
        return cls._graphc_constructor(cls, *args, **kwargs)

    # --- what kind of tensor ---------------------------------------------------------------

    @property
    def shape(self) -> Size:
        """The sizes, as torch.Size."""
        trace = local.trace
        if trace is None and self._graphc_trace is None:
            return Size(self._graphc_array.shape)
        return (self if self._graphc_trace is trace else current(self))._graphc_traced.torch_size()

    @property
    def dtype(self) -> DType:
        trace = local.trace
        if trace is None and self._graphc_trace is None:
            return _DTYPE_OF[self._graphc_array.dtype]
        return (self if self._graphc_trace is trace else current(self))._graphc_traced.type.dtype

    @property
    def device(self) -> device:
        if self._graphc_trace is None:
            trace = local.trace
            if trace is not None and trace.whole:
                current(self)  # as an input, it is guarded
            return placement.device_of(self._graphc_array)
        place = self._graphc_trace.lies()
        return CPU if place is None else place.device

    @property
    def ndim(self) -> int:
        trace = local.trace
        if trace is not None or self._graphc_trace is not None:
            state = self if self._graphc_trace is trace else current(self)
            return len(state._graphc_traced.type.shape)
        return self._graphc_array.ndim

    @property
    def _graphc_type(self) -> TensorType:
        """The IR's type: dtype and shape (sizes may be symbolic)."""
        trace = local.trace
        if trace is not None or self._graphc_trace is not None:
            return (self if self._graphc_trace is trace else current(self))._graphc_traced.type
        return TensorType(_DTYPE_OF[self._graphc_array.dtype], self._graphc_array.shape)

    def stride(self, dim: int | None = None) -> Any:
        """Steps between neighbours, in elements: of every dimension, or of `dim`."""
        if local.trace is not None or self._graphc_trace is not None:
            strides: tuple[Any, ...] = current(self)._graphc_traced.torch_strides()
        elif self._graphc_array.size:
            strides = strides_of(self._graphc_array)
        else:  # NumPy says 0
            strides = contiguous_strides(self._graphc_array.shape)
        return strides if dim is None else strides[dim]

    def storage_offset(self) -> Any:
        """Elements between the start of the storage and the first element."""
        if local.trace is not None or self._graphc_trace is not None:
            state = current(self)
            if state._graphc_storage.root.source is None:
                return state._graphc_traced.torch_offset()
            # of memory from before the call: which part of it, each call says
            trace = local.trace
            if trace is None:
                raise unsupported_in_trace("storage_offset()", "ask for it outside")
            trace.end_segment("storage_offset()", "ask for it outside")
        return offset_of(self._graphc_array, self._graphc_storage)

    def data_ptr(self) -> int:
        """The address of the first element. Raises TraceError under a trace."""
        return address(held(self, "data_ptr()", "call it outside the compiled function"))

    @property
    def _version(self) -> int:
        if local.trace is not None:  # how often it was written to before the call is not guarded
            concrete(self, "_version", "ask for it outside the compiled function")
        storage = self._graphc_storage
        if storage.inference:
            raise RuntimeError(located("Inference tensors do not track version counter."))
        version: int = storage.version
        return version

    def _is_view(self) -> bool:
        state = current(self) if self._graphc_trace is not None else self
        return state._base is not None and not state._graphc_reshaped

    # --- history ---------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        return requires_grad(current(self))

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        Tensor.requires_grad_(self, value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Start or stop recording operations on this leaf. Raises RuntimeError for others."""
        state = current(self)
        check_flag(requires_grad, state._graphc_storage)
        if requires_grad and not state._graphc_type.dtype.differentiable:
            raise RuntimeError(located(
                f"only Tensors of floating point dtype can require gradients, got {self.dtype}"
            ))
        if state._graphc_node is not None:
            if not requires_grad:
                raise RuntimeError(located(
                    "you can only change requires_grad flags of leaf variables. If you want to use "
                    "a computed variable in a subgraph that doesn't require differentiation use "
                    "var_no_grad = var.detach()."
                ))
            return self
        state._graphc_requires_grad = bool(requires_grad)
        trace = local.trace
        if trace is not None and state is not self and requires_grad:
            trace.begins(self, state)
        return self

    @property
    def is_leaf(self) -> bool:
        """True if no recorded operation made it."""
        return history(current(self)) is None

    @property
    def grad_fn(self) -> Node | None:
        """The tape's node that made it; None for a leaf."""
        found = history(current(self))
        trace = local.trace
        if found is not None and found.outside is not None and not (trace and trace.whole):
            return history(found.outside)
        if found is not None and found.folded and local.counted is not None:
            found.unfold()  # the call's own: as if it had not begun as a recording
            return found.place(self._graphc_output)[0]
        return found

    @property
    def output_nr(self) -> int:
        """Which result of grad_fn this is."""
        return current(self)._graphc_output

    @property
    def grad(self) -> Any:
        """The accumulated gradient; None before backward()."""
        trace = local.trace
        if trace is not None:
            return trace.get_grad(current(self), asked=True)
        state = current(self)
        found = state._grad
        if found is None and state._graphc_node is not None and not state.retains_grad:
            warnings.warn(NOT_A_LEAF, UserWarning, stacklevel=2)
        return found

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            check_grad(self, value)
        current(self)._grad = value

    @grad.deleter
    def grad(self) -> None:
        current(self)._grad = None

    def detach(self) -> Tensor:
        """A tensor on the same memory without history."""
        result = alias(self)
        if local.counted is not None:
            local.counted.detached(self, result)
        return result

    @property
    def data(self) -> Tensor:
        """A tensor on the same memory without history, whose writes autograd does not see."""
        trace = local.trace
        if trace is not None:
            return trace.untracked(current(self))
        if self._graphc_trace is not None:
            current(self)  # raises: that trace is over
        result: Tensor = object.__new__(Tensor)
        result._graphc_array = self._graphc_array
        result._graphc_storage = self._graphc_storage.sibling()
        return result

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
        trace = local.trace
        if trace is not None:
            trace.set_data(self, value)
            return
        current(self)
        array = held(value, "assigning .data", "assign it under the same trace")
        if (requires_grad(self) or self._graphc_node) and not value.dtype.differentiable:
            raise RuntimeError(located(
                f"data set to a tensor that requires gradients must be floating point, "
                f"got {value.dtype}"
            ))
        self._graphc_array = array
        self._graphc_storage = value._graphc_storage.sibling()
        self._base, self._graphc_chain = None, ()

    def retain_grad(self) -> None:
        """Keep `.grad` of this non-leaf in backward()."""
        state = current(self)
        if not requires_grad(state):
            raise RuntimeError(located("can't retain_grad on Tensor that has requires_grad=False"))
        node = state._graphc_node
        if node is None:
            return
        trace = local.trace
        if trace is not None and trace.hooks_at_once(node, "retain_grad()"):
            with trace.suspended():
                self.retain_grad()
            return
        node.retain(state._graphc_output, state)

    @property
    def retains_grad(self) -> bool:
        state = current(self)
        if state._graphc_node is None:
            return False
        node, output = state._graphc_node.place(state._graphc_output)
        return output in (node.retained or ())

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Call hook(grad) when this tensor's gradient is known; a result replaces it."""
        state = current(self)
        if not requires_grad(state):
            raise RuntimeError(located(
                "cannot register a hook on a tensor that doesn't require gradient"
            ))
        node = state._graphc_node
        if node is None:
            if state._graphc_hooks is None:
                state._graphc_hooks = new_hooks()
            return add_hook(state._graphc_hooks, hook)
        trace = local.trace
        if trace is not None and trace.hooks_at_once(node, "a hook on a tensor"):
            with trace.suspended():
                return self.register_hook(hook)
        return add_hook(node.hooks_of(state._graphc_output), hook)

    def register_post_accumulate_grad_hook(
        self, hook: Callable[[Tensor], None]
    ) -> RemovableHandle:
        """Call hook(self) after backward() has added to this leaf's `.grad`."""
        state = current(self)
        if not requires_grad(state) or state._graphc_node is not None:
            raise RuntimeError(located(
                "post accumulate grad hooks cannot be registered on non-leaf tensors or on those "
                "that do not require gradient"
            ))
        if state._graphc_post_hooks is None:
            state._graphc_post_hooks = new_hooks()
        return add_hook(state._graphc_post_hooks, hook)

    # --- identity --------------------------------------------------------------------------

    def __hash__(self) -> int:
        trace = local.trace
        if trace is not None and trace.hashed is not None:
            trace.hashed(self)
        return id(self)

    if TYPE_CHECKING:  # attached by functions/
        _graphc_made: ClassVar[Any] = None
        __torch_function__ = __torch_dispatch__ = _graphc_parameter_of = _graphc_made

        def __getattr__(self, name: str) -> Any: ...
        def __deepcopy__(self, memo: dict[Any, Any]) -> Any: ...
        def __add__(self, other: Any) -> Tensor: ...
        __sub__ = __mul__ = __truediv__ = __matmul__ = __pow__ = __and__ = __or__ = __add__
        __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rmatmul__ = __add__
        __lt__ = __le__ = __gt__ = __ge__ = __add__
        def __invert__(self) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __getitem__(self, index: Any) -> Tensor: ...
        def __setitem__(self, index: Any, value: Any) -> None: ...


INTERNAL = frozenset(Tensor.__annotations__)  # what a user has set is everything else
# the `__dict__` of a tensor, all of it: a subclass shows what a user has set (subclasses.py)
fields: Callable[[Any], dict[str, Any]] = vars(Tensor)["__dict__"].__get__


class ParameterKind(type):
    """Knows tensors of other classes that are parameters, once there are any (subclasses.py)."""


class Parameter(Tensor, metaclass=ParameterKind):
    """A Tensor that a Module lists among its parameters; it requires a gradient."""

    def __new__(
        cls, data: Tensor | None = None, requires_grad: bool = True, **fields: Any
    ) -> Any:
        if unknown := fields.keys() - INTERNAL:  # accelerate hands on another one's __dict__
            raise TypeError(f"Parameter() got an unexpected argument {min(unknown)!r}")
        if data is None:
            data = from_array(np.zeros(0, np.float32))
        if not isinstance(data, Tensor):  # torch's kind of error
            raise AttributeError(located(
                f"Parameter(): data must be Tensor, not {kind_name(data)}. Cure: torch.tensor(data)"
            ))
        if type(data) is not Tensor and type(data) is not Parameter and (
            made := cls._graphc_parameter_of(data, requires_grad)
        ) is not None:
            return made
        result = alias(data, cls)
        if result._graphc_trace is None:
            result._graphc_storage.away &= ~LOOSE  # a parameter is where it was put
        return result.requires_grad_(requires_grad) if requires_grad else result


LEAVES.update((Tensor, Parameter))


lie_together(Tensor)
lie_together(Parameter)

# --- making tensors --------------------------------------------------------------------------


def from_array(array: np.ndarray, requires_grad: bool = False) -> Tensor:
    """A concrete leaf on an array's memory (shared, not copied)."""
    result: Tensor = object.__new__(Tensor)
    result._graphc_array = array
    result._graphc_storage = Storage(array)
    if requires_grad:
        result._graphc_requires_grad = True
    return result


def alias(tensor: Tensor, cls: type[Tensor] = Tensor) -> Tensor:
    """A new leaf on the same memory, with the same version counter and no history."""
    if cls is not Tensor and cls is not Parameter:
        cls._graphc_made()
    state = current(tensor)
    result: Tensor = object.__new__(cls)
    result._graphc_storage = state._graphc_storage
    if state._graphc_trace is not None:
        result._graphc_trace = state._graphc_trace
        result._graphc_traced = state._graphc_traced.copy()
        state._graphc_trace.adopt(result)
    else:
        result._graphc_array = state._graphc_array
    return result


def rebuild(
    cls: type[Tensor], storage: Storage, offset: int, shape: Any, strides: Any, requires: bool,
    dtype: np.dtype | None = None,
) -> Tensor:
    """A concrete leaf at a place in a storage (what copy and pickle call).

    Raises RuntimeError where the place is outside the storage.
    """
    flat = storage.flat(dtype)
    check_bounds(shape, strides, offset, flat.size)
    if cls is not Tensor and cls is not Parameter:
        cls._graphc_made()
    result: Tensor = object.__new__(cls)
    empty = 0 in shape
    array = flat[:0].reshape(shape) if empty else strided(flat[offset:], shape, strides)
    result._graphc_array = array
    result._graphc_storage = storage
    result._graphc_requires_grad = requires
    return result


# --- state under the running trace -------------------------------------------------------------


def current(tensor: Tensor) -> Tensor:
    """The Tensor that holds `tensor`'s state now: itself, or its shadow under a trace.

    Raises EscapedTensorError for a tensor of a trace that is over.
    """
    trace = local.trace
    if trace is None:
        if tensor._graphc_trace is not None:
            raise tensor._graphc_trace.escaped(tensor)
        return tensor
    return tensor if tensor._graphc_trace is trace else trace.shadow(tensor)


def concrete(tensor: Tensor, what: str, cure: str) -> np.ndarray:
    """The array of a Tensor. Raises TraceError (naming `what` was called, and the cure) if traced.

    Under a trace a concrete Tensor is refused too: its value changes from call to call.
    """
    trace = local.trace
    if trace is None:
        if tensor._graphc_trace is not None:
            raise tensor._graphc_trace.escaped(tensor)
        if local.counted is not None:
            local.counted.demand(what)
        array: Any = tensor._graphc_array
        if type(array) is DeviceArray:
            return array.memory.read(array)
        return array  # type: ignore[no-any-return]
    subject = tensor if tensor._graphc_concrete is None else tensor._graphc_concrete
    return on_host(trace.demand(subject, what, cure))


def held(tensor: Tensor, what: str, cure: str) -> Any:
    """The buffer of a Tensor where it lies; for who asks for memory and not for numbers. Raises
    as concrete() does."""
    trace = local.trace
    if trace is None:
        return current(tensor)._graphc_array
    subject = tensor if tensor._graphc_concrete is None else tensor._graphc_concrete
    return trace.demand(subject, what, cure)


# --- methods -----------------------------------------------------------------------------------


def register_methods(table: Mapping[str, Any]) -> None:
    """Attach a table of methods and properties."""
    for name, function in table.items():
        setattr(Tensor, name, function)
