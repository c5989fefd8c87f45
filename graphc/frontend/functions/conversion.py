"""From a tensor to Python, NumPy, another dtype or another layout of memory."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NoReturn

import numpy as np

from graphc.ir import dtypes
from graphc.ir.dtypes import DType
from graphc.ir.memory import DeviceArray

from .. import promote
from ..context import local
from ..device import device as device_type
from ..device import registered
from ..errors import kind_name, located, user_location, warn_once
from ..history import requires_grad
from ..known import known, values
from ..layouts import NotDense
from ..layouts import layout as layout
from ..layouts import sparse_bsc as sparse_bsc
from ..layouts import sparse_bsr as sparse_bsr
from ..layouts import sparse_coo as sparse_coo
from ..layouts import sparse_csc as sparse_csc
from ..layouts import sparse_csr as sparse_csr
from ..layouts import strided as strided
from ..overriding import answers
from ..placement import Pinned, place_at, place_of
from ..tensor import Tensor, concrete, current, from_array, held
from ..transfer import moved
from ..values import Eager
from . import dtype_names
from .arguments import public_size, shape, wrap_dim
from .copies import clone, contiguous, contiguous_format, in_format, preserve_format
from .joining import flip
from .parts import unbind
from .pointwise import eq
from .reduction import any as any_of
from .to_arguments import check_order, to_one

# --- dtypes and devices ------------------------------------------------------------------------


def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """to(dtype), to(device, dtype), to(other): the tensor itself where nothing changes."""
    if len(args) == 1 and not kwargs and (found := to_one(self, args[0])) is not None:
        return found
    dtype, device = kwargs.pop("dtype", None), kwargs.pop("device", None)
    other, copy = kwargs.pop("other", None), kwargs.pop("copy", False)
    layout = kwargs.pop("memory_format", None)
    later = kwargs.pop("non_blocking", False)
    if kwargs:
        raise TypeError(located(f"to() got an unexpected keyword argument {next(iter(kwargs))!r}"))
    check_order(args)
    flags = []
    for value in args:
        if isinstance(value, DType):
            dtype = value
        elif isinstance(value, Tensor):
            other = value
        elif isinstance(value, bool):
            flags.append(value)
        elif value is None or isinstance(value, (str, int, device_type)):
            device = value if value is not None else device
        elif value in dtype_names.PYTHON:
            dtype = dtype_names.PYTHON[value]
        else:
            raise TypeError(located(
                f"to() received an invalid combination of arguments - got {value!r}; expected a "
                "dtype, a device or a Tensor"
            ))
    later = flags[0] if flags else later
    if len(flags) == 2:
        copy = flags[1]
    if other is not None:
        dtype, device = other.dtype, other.device
    place = place_at(self) if device is None else place_of(device)
    with Pinned.later() if later else nullcontext():
        result = promote.converted(self, None if dtype is None else _dtype(dtype), place)
    result = _laid_out(result, layout, copy or result is not self)
    return clone(result) if copy and result is self else result


def _laid_out(x: Tensor, layout: Any, copied: bool = False) -> Tensor:
    if layout is None or layout is preserve_format:
        return x
    return contiguous(x) if copied and layout is contiguous_format else in_format(x, layout)


def _dtype(dtype: Any) -> DType:
    if isinstance(dtype, DType):
        return dtype
    found = dtype_names.PYTHON.get(dtype)
    if found is None:
        raise TypeError(located(f"dtype must be torch.dtype, not {dtype!r}"))
    return found


def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    """The type's name ("torch.FloatTensor", "torch.meta.FloatTensor"), or the tensor as another
    dtype, and where a type names them both, on another device."""
    if dtype is None:
        kind = "" if (place := place_at(self)) is None else f"{place.device.type}."
        return f"torch.{kind}{dtype_names.TYPE_NAMES[self.dtype]}"
    if isinstance(dtype, DType) or dtype in dtype_names.PYTHON:
        return promote.cast(self, _dtype(dtype))
    if isinstance(dtype, str):
        module, _, name = dtype.rpartition(".")
        package, _, kind = module.partition(".")
        if package != "torch" or name not in dtype_names.TYPE_STRINGS or not (
            kind in registered if kind else module == package
        ):
            raise ValueError(located(f"invalid type: {dtype!r}"))
        place = place_of(kind) if kind else None
        return promote.converted(self, dtype_names.TYPE_STRINGS[name], place)
    found = getattr(dtype, "dtype", None)
    if isinstance(found, DType):
        return promote.converted(self, found, None)
    raise TypeError(located(f"invalid type: {dtype!r}"))


def type_as(self: Tensor, other: Tensor) -> Tensor:
    """The dtype of `other`."""
    if not isinstance(other, Tensor):
        raise TypeError(located(
            f"type_as(): argument 'other' (position 1) must be Tensor, not {kind_name(other)}"
        ))
    return promote.cast(self, other.dtype)


def _as(dtype: DType, name: str) -> Any:
    def method(self: Tensor, memory_format: Any = preserve_format) -> Tensor:
        return _laid_out(promote.cast(self, dtype), memory_format, dtype is not self.dtype)

    method.__name__ = name
    method.__doc__ = f"The tensor as {dtype}."
    return method


CASTS = {
    name: _as(dtype, name)
    for name, dtype in {
        "float": dtypes.f32, "double": dtypes.f64, "half": dtypes.f16, "bfloat16": dtypes.bf16,
        "long": dtypes.i64, "int": dtypes.i32, "short": dtypes.i16, "char": dtypes.i8,
        "byte": dtypes.u8, "bool": dtypes.bool_, "cfloat": dtypes.c64, "cdouble": dtypes.c128,
    }.items()
}


def cpu(self: Tensor, memory_format: Any = preserve_format) -> Tensor:
    """A copy on the CPU, or the tensor itself where it is there, in the layout asked for."""
    return _laid_out(moved(self, None), memory_format)


def cuda(
    self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None
) -> Tensor:
    """A copy on a GPU. Raises RuntimeError where there is none."""
    place = place_of("cuda" if device is None else device)
    with Pinned.later() if non_blocking else nullcontext():
        result = moved(self, place)
    return _laid_out(result, memory_format)


# --- to Python ---------------------------------------------------------------------------------

_CURE = "use tensor operations (torch.where, ...), or compute it outside the compiled function"


# whose elements NumPy gives as Python's numbers
_PLAIN = frozenset("?bhilqBfd")


def item(self: Tensor) -> Any:
    """The only element as a Python number. Raises RuntimeError for other sizes."""
    if local.trace is None and local.counted is None and self._graphc_trace is None:
        held = self._graphc_array
        if type(held) is np.ndarray and held.size == 1 and held.dtype.char in _PLAIN:
            return held.item()
    array = known(self)
    trace = local.trace
    _require_elements(self)
    if array is None and trace is not None and self._graphc_type.elements == 1:
        pending = trace.pending_item(self)
        if pending is not None:
            return pending
    if array is None:
        array = concrete(self, "item()", _CURE)
    if array.size != 1:
        raise RuntimeError(located(
            f"a Tensor with {array.size} elements cannot be converted to Scalar"
        ))
    found = array.reshape(()).item()
    # not the tensor's dtype: a segment that begins here would have it as an input
    return float(found) if dtypes.from_numpy(array.dtype).is_float else found


def _require_elements(self: Tensor) -> None:
    if Eager.elsewhere is not None and self.device.type == "meta":
        raise RuntimeError(located("Tensor.item() cannot be called on meta tensors"))


def tolist(self: Tensor) -> Any:
    """Nested lists of Python numbers; a number for a 0-d tensor."""
    array = values(self, "tolist()", _CURE)
    if dtypes.from_numpy(array.dtype) is dtypes.bf16:
        array = array.astype(np.float32)
    return array.tolist()


_REQUIRES_GRAD = (
    "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
)


def numpy(self: Tensor, *, force: bool = False) -> np.ndarray:
    """A NumPy array on the same memory. Raises RuntimeError if a gradient is required."""
    trace = local.trace
    if trace is not None and not (force or self.requires_grad or self.dtype is dtypes.bf16):
        pending: np.ndarray | None = trace.pending_array(self)
        if pending is not None:
            return pending
    if not force and local.grad and self.requires_grad:
        raise RuntimeError(located(_REQUIRES_GRAD))
    array: np.ndarray = held(self, "numpy()", _CURE)
    if isinstance(array, DeviceArray):
        return array.memory.read(array).copy() if force else np.asarray(array)
    if self._graphc_type.dtype is dtypes.bf16:
        if force:
            return array.astype(np.float32)
        raise TypeError(located(
            "Got unsupported ScalarType BFloat16. Use tensor.float().numpy()"
        ))
    if self._graphc_trace is not None:  # a copy, which a survey gives
        return array
    self._graphc_storage.expose()
    if trace is not None:
        trace.exposed(self)
    return array


def _array(self: Tensor, dtype: Any = None, copy: Any = None) -> np.ndarray:
    if local.grad and self.requires_grad and local.trace is None:
        # asked by a library that plots: the line that helps is the one that called it
        raise RuntimeError(located(_REQUIRES_GRAD, user_location(beyond="site-packages")))
    array = numpy(self)
    if dtype is not None:
        array = array.astype(dtype, copy=bool(copy))
    elif copy:
        array = array.copy()
    return array


def _array_wrap(
    self: Tensor, array: np.ndarray, context: Any = None, return_scalar: bool = False
) -> Any:
    """np.sin(tensor) is a tensor, as in torch: one without dimensions, too; truth is uint8."""
    array = np.asarray(array)
    return from_array(array.astype(np.uint8) if array.dtype == np.bool_ else array)


def _bool(self: Tensor) -> bool:
    if local.trace is None and local.counted is None and self._graphc_trace is None:
        array = self._graphc_array
        if type(array) is np.ndarray and array.size == 1 and array.dtype.char in _PLAIN:
            return bool(array.item())
    count = self._graphc_type.elements
    if count == 0:
        raise RuntimeError(located("Boolean value of Tensor with no values is ambiguous"))
    if count != 1:
        raise RuntimeError(located(
            "Boolean value of Tensor with more than one value is ambiguous"
        ))
    _require_elements(self)
    return bool(values(self, "bool(tensor)", _CURE).reshape(()))


def _float(self: Tensor) -> float:
    if local.trace is None and local.counted is None and self._graphc_trace is None:
        array = self._graphc_array
        if type(array) is np.ndarray and array.size == 1 and array.dtype.char in _PLAIN and (
            self._graphc_node is None and not self._graphc_requires_grad
        ):
            return float(array.item())
    return float(_scalar(self, "double"))


def _int(self: Tensor) -> int:
    if local.trace is None and local.counted is None and self._graphc_trace is None:
        array = self._graphc_array
        if type(array) is np.ndarray and array.size == 1 and array.dtype.char in _PLAIN and (
            self._graphc_node is None and not self._graphc_requires_grad
        ):
            return int(array.item())
    return int(_scalar(self, "int64_t"))


def _scalar(self: Tensor, kind: str) -> Any:
    """The only element, a complex one by its real part. Raises RuntimeError where there is
    another."""
    if kind == "double" and local.grad and requires_grad(current(self)):
        warn_once(
            "Converting a tensor with requires_grad=True to a scalar may lead to unexpected "
            "behavior.\nConsider using tensor.detach() first."
        )
    value = _single(self)
    if not isinstance(value, complex):
        return value
    if value.imag:
        raise RuntimeError(located(
            f"value cannot be converted to type {kind} without overflow. Cure: .real or .abs()"
        ))
    return value.real


def _single(self: Tensor) -> Any:
    if self._graphc_type.elements != 1:
        raise ValueError(located("only one element tensors can be converted to Python scalars"))
    return item(self)


def _index(self: Tensor) -> int:
    if self.dtype.is_float or self._graphc_type.elements != 1:
        raise TypeError(located(
            "only integer tensors of a single element can be converted to an index"
        ))
    return int(item(self))


def _len(self: Tensor) -> int:
    sizes = shape(self)
    if not sizes:
        raise TypeError(located("len() of a 0-d tensor"))
    return int(public_size(sizes[0]))


def _iter(self: Tensor) -> Any:
    if type(self) is not Tensor and answers(self):
        return iter(self.unbind(0)) if self.dim() else _no_elements()
    if self.ndim == 0:
        _no_elements()
    return iter(unbind(self, 0))


def _no_elements() -> NoReturn:
    raise TypeError(located("iteration over a 0-d tensor"))


def _reversed(self: Tensor) -> Tensor:
    return flip(self, 0) if self.ndim else self


def _contains(self: Tensor, element: Any) -> bool:
    if isinstance(element, Tensor) or promote.is_number(element):
        return bool(any_of(eq(self, element)))
    raise RuntimeError(located(
        "Tensor.__contains__ only supports Tensor or scalar, but you passed in a "
        f"{element.__class__.__name__}."
    ))


def _format(self: Tensor, specification: str) -> str:
    if self.ndim == 0 and not answers(self):
        return format(item(self), specification)
    return object.__format__(self, specification)


# --- facts -------------------------------------------------------------------------------------


def size(self: Tensor, dim: int | None = None) -> Any:
    """The shape, or one size of it."""
    if type(dim) is int and local.trace is None and self._graphc_trace is None:
        given = self._graphc_array.shape
        if -len(given) <= dim < len(given):
            return given[dim]
    if dim is None:
        return self.shape
    sizes = self.shape
    if not sizes:
        raise IndexError(located(f"Dimension specified as {dim} but tensor has no dimensions"))
    return sizes[wrap_dim(dim, len(sizes))]


def numel(input: Tensor) -> Any:
    """The number of elements."""
    if not isinstance(input, Tensor):
        raise TypeError(located(
            f"numel(): argument 'input' must be Tensor, not {input.__class__.__name__}"
        ))
    if local.trace is None and input._graphc_trace is None:
        try:
            return input._graphc_array.size
        except NotDense:
            pass
    return public_size(input._graphc_type.elements)


def dim(self: Tensor) -> int:
    """The number of dimensions."""
    return self.ndim


def element_size(self: Tensor) -> int:
    """Bytes per element."""
    return self.dtype.itemsize


def is_tensor(obj: Any) -> bool:
    """Whether `obj` is a Tensor."""
    return isinstance(obj, Tensor)


def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a float."""
    return input.dtype.is_float


def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not 0."""
    return _bool(input)


def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return input.dtype.is_signed


def get_device(self: Tensor) -> int:
    """The number of a device among those of its type; -1: the CPU, the meta device."""
    index = self.device.index
    return -1 if index is None else index


def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both are the same view of the same memory."""
    return (
        current(self)._graphc_storage is current(tensor)._graphc_storage
        and tuple(self.shape) == tuple(tensor.shape)
        and self.stride() == tensor.stride()
        and self.storage_offset() == tensor.storage_offset()
    )


def number_of(value: Any) -> Any:
    """A 0-d tensor as a Python number; a number as it is."""
    return item(value) if isinstance(value, Tensor) else value


def to_dense(self: Tensor, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """The tensor itself, which is dense already, or cast."""
    return self if dtype is None else to(self, dtype)


PROPERTIES = {
    "is_cuda": property(lambda self: self.device.type == "cuda"),
    "is_cpu": property(lambda self: self.device.type == "cpu"),
    "is_mps": property(lambda self: False),
    "is_vulkan": property(lambda self: False),
    "is_ipu": property(lambda self: False),
    "is_sparse_csr": property(lambda self: False),
    "is_mkldnn": property(lambda self: False),
    "is_xla": property(lambda self: False),
    "is_xpu": property(lambda self: False),
    "is_sparse": property(lambda self: False),
    "is_quantized": property(lambda self: False),
    "is_meta": property(lambda self: self.device.type == "meta"),
    "is_nested": property(lambda self: False),
    "itemsize": property(element_size),
    "nbytes": property(lambda self: numel(self) * element_size(self)),
    "layout": property(lambda self: strided),
    "name": property(lambda self: None),
}


def is_inference(input: Tensor) -> bool:
    """Whether its memory was made in inference mode."""
    found: bool = current(input)._graphc_storage.root.inference
    return found


METHODS = {
    "to": to, "to_dense": to_dense,
    "type": type_, "type_as": type_as, "cpu": cpu, "cuda": cuda,
    "item": item, "tolist": tolist, "numpy": numpy,
    "size": size, "numel": numel, "nelement": numel, "dim": dim, "ndimension": dim,
    "element_size": element_size, "is_floating_point": is_floating_point,
    "is_nonzero": is_nonzero, "is_signed": is_signed,
    "get_device": get_device, "is_set_to": is_set_to,
    "is_inference": is_inference, "is_conj": lambda self: False, "is_neg": lambda self: False,
    "__array__": _array, "__bool__": _bool, "__float__": _float, "__int__": _int,
    "__index__": _index, "__len__": _len, "__iter__": _iter, "__contains__": _contains,
    "__format__": _format, "__array_priority__": 1000, "__array_wrap__": _array_wrap,
    "__reversed__": _reversed,
    "sparse_dim": lambda self: 0, "dense_dim": dim,
    **CASTS,
}
