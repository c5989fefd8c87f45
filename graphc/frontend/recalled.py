"""Views that eager mode has made before: a function, its arguments and the sizes of its tensor say
which view it gives, so the second call reads neither arguments nor sizes.

    @recalled
    def transpose(input, dim0, dim1): ...

What the first call has appended to the tensor's chain of views is what later ones append; the nodes
of their history, too. Only integers (and tuples of them) are arguments that are recalled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from graphc.ir import dtypes
from graphc.ir.op import Attrs
from graphc.ir.types import TensorType

from . import views
from .anomaly import Anomaly
from .context import local
from .eager import Signature
from .history import edge, requires_grad
from .near import is_near
from .nodes import OpNode
from .programs import GradientPlan
from .tensor import Tensor
from .views import Chain, Step

F = TypeVar("F", bound=Callable[..., Any])
Shape = tuple[int, ...]
_LIMIT = 20_000
_new: Any = object.__new__


class Recalled:
    """A view of a tensor of known sizes."""

    __slots__ = ("_kinds", "_recorded", "_shapes", "_views", "steps")

    def __init__(self, source: Tensor, steps: Chain, result: Tensor) -> None:
        self.steps = steps
        array = source._graphc_array
        self._views = _array_views(steps, array.shape)
        self._shapes = _shapes(steps, array)
        # by dtype: the signatures of the steps, and the plans of their gradients
        self._recorded: dict[Any, list[tuple[Signature, GradientPlan]]] = {}
        self._kinds: tuple[type[OpNode], ...] | None = None
        self.learn(result)

    def learn(self, result: Tensor) -> None:
        """Note which nodes the steps leave, if this result has got them."""
        kinds: list[type[OpNode]] = []
        node: Any = result._graphc_node
        for op, _ in reversed(self.steps):
            if not isinstance(node, OpNode) or node.op is not op:
                return
            kinds.append(type(node))
            node = node.edges[0] and node.edges[0][0]
        self._kinds = tuple(reversed(kinds))

    def of(self, source: Tensor) -> Tensor | None:
        """The view; None where the function has to make it."""
        array = source._graphc_array
        for take in self._views:
            if take is None:
                return None
            array = take(array)
            if array is None:
                return None
        recorded = (
            local.grad
            and (
                source._graphc_node is not None
                or source._graphc_requires_grad
                or source._base is not None
            )
            and requires_grad(source)
        )
        if recorded and (
            self._kinds is None or Anomaly.enabled or array.dtype.char not in _DIFFERENTIABLE
        ):
            return None
        storage, base = source._graphc_storage, source._base
        result: Tensor = _new(Tensor)
        result._graphc_array = array
        result._graphc_storage = storage
        result._base = source if base is None else views.base_of(source)
        result._graphc_chain = (*source._graphc_chain, *self.steps)
        result._graphc_seen = storage.version
        if not local.grad or source._graphc_no_grad_view:
            result._graphc_no_grad_view = True
        if source._graphc_several is not None:
            result._graphc_several = ""
        if recorded:
            self._record(source, result)
        return result

    def _record(self, source: Tensor, result: Tensor) -> None:
        key = result._graphc_array.dtype
        known = self._recorded.get(key)
        if known is None:
            known = self._recorded[key] = self._planned(dtypes.from_numpy(key))
        end = edge(source, known[0][0].inputs[0])
        assert self._kinds is not None
        for kind, (op, attrs), (signature, plan) in zip(
            self._kinds, self.steps, known, strict=True
        ):
            node = kind(op, attrs, (end,), signature.inputs, signature.results)
            node.plan = plan
            node.saved_in, node.saved_out = plan.no_inputs, plan.no_outputs
            end = node, 0
        result._graphc_node = end[0]

    def _planned(self, dtype: dtypes.DType) -> list[tuple[Signature, GradientPlan]]:
        found = []
        for (op, attrs), shape in zip(self.steps, self._shapes, strict=True):
            signature = Signature(op, (TensorType(dtype, shape),), attrs)
            plan = GradientPlan(op, signature.inputs, signature.results, attrs, (True,))
            assert not plan.inputs and not plan.outputs, f"{op.name} is a view"
            found.append((signature, plan))
        return found


# whose views the operators of `Recalled` are: each carries a gradient
_DIFFERENTIABLE = frozenset("fdeEFD")
_RECALLED = frozenset({"reshape", "permute", "expand", "slice", "as_strided"})


# --- the array of a view -----------------------------------------------------------------------


def _shapes(steps: Chain, array: np.ndarray) -> list[Shape]:
    """The sizes that each step is given."""
    found = []
    probe = np.broadcast_to(np.zeros((), np.int8), array.shape)
    for op, attrs in steps:
        found.append(probe.shape)
        if op.name in ("reshape", "expand"):
            probe = np.broadcast_to(np.zeros((), np.int8), attrs["shape"])
        elif op.name == "permute":
            probe = probe.transpose(attrs["dims"])
        elif op.name == "as_strided":
            probe = np.broadcast_to(np.zeros((), np.int8), attrs["size"])
        else:
            probe = probe[tuple(map(slice, attrs["starts"], attrs["stops"], attrs["steps"]))]
    return found


def _array_views(steps: Chain, shape: Shape) -> list[Callable[[Any], Any] | None]:
    """Functions of an array which make the view; None where it is not known to be one."""
    found: list[Callable[[Any], Any] | None] = []
    rest = list(steps)
    while rest:
        op, attrs = rest.pop(0)
        if op.name == "slice":
            entries: list[Any] = list(map(slice, attrs["starts"], attrs["stops"], attrs["steps"]))
            sizes = [len(range(*e.indices(n))) for e, n in zip(entries, shape, strict=True)]
            if rest and (dropped := _dropped(rest[0], sizes)) is not None:
                rest.pop(0)
                for d in dropped:
                    entries[d] = entries[d].start
            shape = tuple([n for e, n in zip(entries, sizes, strict=True) if type(e) is slice])
            found.append(_indexed((*entries, Ellipsis)))
            continue
        found.append(VIEW_OF[op.name](attrs, shape))
        if op.name == "permute":
            shape = tuple([shape[d] for d in attrs["dims"]])
        else:
            shape = attrs["size" if op.name == "as_strided" else "shape"]
    return found


def _dropped(step: Step, sizes: list[int]) -> list[int] | None:
    """The dim that a reshape drops of these sizes, the only one of size 1; None: it does more."""
    op, attrs = step
    ones = [d for d, n in enumerate(sizes) if n == 1]
    if op.name != "reshape" or len(ones) != 1:
        return None
    return ones if attrs["shape"] == tuple([n for n in sizes if n != 1]) else None


def _indexed(entries: tuple[Any, ...]) -> Callable[[Any], Any]:
    return lambda array: array[entries]


def _reshaped(attrs: Attrs, shape: Shape) -> Callable[[Any], Any]:
    new, reshape = tuple(attrs["shape"]), views.ARRAYS["reshape"]

    def take(array: Any) -> Any:
        return array.reshape(new) if array.flags.c_contiguous else reshape(array, attrs)

    return take


def _permuted(attrs: Attrs, shape: Shape) -> Callable[[Any], Any]:
    dims = attrs["dims"]
    return lambda array: array.transpose(dims)


def _expanded(attrs: Attrs, shape: Shape) -> Callable[[Any], Any]:
    expand, new = views.ARRAYS["expand"], tuple(attrs["shape"])
    added = len(new) - len(shape)
    repeated = [n != m for n, m in zip(shape, new[added:], strict=True)]

    strides: dict[Any, tuple[int, ...]] = {}  # of the view, by the array's

    def take(array: Any) -> Any:
        if not array.flags.c_contiguous or not array.size:
            return expand(array, attrs)
        known = strides.get(array.strides)
        if known is None:
            own = [0 if r else s for r, s in zip(repeated, array.strides, strict=True)]
            known = strides[array.strides] = (*[0] * added, *own)
        return np.ndarray(new, array.dtype, array, 0, known)

    return take


def _strided(attrs: Attrs, shape: Shape) -> Callable[[Any], Any]:
    """Its bounds hang on the sizes alone, and were found to hold."""
    stride, new, offset = views.ARRAYS["as_strided"], tuple(attrs["size"]), attrs["offset"]
    bytes_of: dict[int, tuple[int, tuple[int, ...]]] = {}  # by the size of a number

    def take(array: Any) -> Any:
        if not array.flags.c_contiguous or not array.size or 0 in new:
            return stride(array, attrs)
        known = bytes_of.get(array.itemsize)
        if known is None:
            size = array.itemsize
            known = offset * size, tuple([s * size for s in attrs["stride"]])
            bytes_of[size] = known
        return np.ndarray(new, array.dtype, array, *known)

    return take


VIEW_OF: dict[str, Callable[[Attrs, Shape], Callable[[Any], Any]]] = {
    "reshape": _reshaped, "permute": _permuted, "expand": _expanded,
    "as_strided": _strided,
}


# --- functions ---------------------------------------------------------------------------------

_known: dict[Any, Recalled] = {}
_seen: dict[Any, None] = {}  # keys of one call so far: a data set's numbers come once in an epoch


def _all_integers(values: tuple[Any, ...]) -> bool:
    return all(type(value) is int for value in values)


def recall(key: Any, source: Tensor) -> Tensor | None:
    """The view that `note` has noted under a key; the caller has seen that nobody records or
    counts operators, and that the tensor lies on the CPU."""
    found = _known.get(key)
    return None if found is None else found.of(source)


def note(key: Any, source: Tensor, result: Any) -> None:
    """Note which view of `source` a function has given, from the second time on."""
    if key not in _known and key not in _seen:
        if len(_seen) >= _LIMIT:
            _seen.clear()
        _seen[key] = None
        return
    _seen.pop(key, None)
    found = noted(_known.get(key), source, result)
    if found is not None:
        if len(_known) >= _LIMIT:
            _known.clear()
        _known[key] = found


def noted(found: Recalled | None, source: Tensor, result: Any) -> Recalled | None:
    """How a function has made a view of `source`; what was `found` of it before, where that is the
    same. None: it is no view that is recalled."""
    if type(result) is not Tensor or result._base is None or source._graphc_trace is not None:
        return None
    before = len(source._graphc_chain)
    steps = result._graphc_chain[before:]
    if not steps or result._graphc_chain[:before] != source._graphc_chain or (
        result._graphc_storage is not source._graphc_storage or result._graphc_reshaped
    ):
        return None
    if not all(op.name in _RECALLED for op, _ in steps):
        return None
    if found is None or found.steps != steps:
        return Recalled(source, steps, result)
    if found._kinds is None:
        found.learn(result)
    return found


def recalled(function: F) -> F:
    """A function of a tensor and integers that gives a view of it, recalled in eager mode."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if local.trace is not None or not args or local.counted is not None:
            return function(*args, **kwargs)
        source, *rest = args
        for value in rest:
            if type(value) is not int and not (
                type(value) is tuple and _all_integers(value)
            ):
                return function(*args, **kwargs)
        if kwargs:
            if not _all_integers(tuple(kwargs.values())):
                return function(*args, **kwargs)
            rest += kwargs.items()
        try:
            key = (function, source._graphc_array.shape, *rest)
        except AttributeError:  # no tensor of now
            return function(*args, **kwargs)
        if not is_near(source):
            return function(*args, **kwargs)
        known = _known.get(key)
        if known is not None:
            found = known.of(source)
            if found is not None:
                return found
        result = function(*args, **kwargs)
        note(key, source, result)
        return result

    return cast(F, wrapper)
