"""Tensors from data, constants and ranges."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from graphc.ir import dtypes, ops
from graphc.ir.dtypes import DType

from .. import promote
from ..context import local
from ..dispatch import apply, constant
from ..errors import located, warn_user
from ..numbers import TracedNumber, is_traced_number
from ..ownership import owns_result
from ..placement import makes, makes_like, place_at, place_of
from ..promote import get_default_dtype
from ..replayed import replayed
from ..tensor import Tensor, from_array
from .arguments import (
    as_sequence,
    check_dtype,
    dtype_beside,
    fitting,
    given_out,
    non_negative,
    shape_of,
)
from .copies import clone, laid_out_as
from .cuda_arrays import from_cuda_array
from .data_as import converted, floats_fit
from .filled import filled, filled_beside, like_alone
from .joining import stack
from .storages import UntypedStorage


def finish(result: Tensor, requires_grad: bool) -> Tensor:
    """A new leaf."""
    return result.requires_grad_() if requires_grad else result


_NUMBERS = frozenset({float, int, bool, complex})


def _has_tensor(data: Any) -> bool:
    if isinstance(data, (list, tuple)):
        return not _NUMBERS.issuperset(map(type, data)) and any(map(_has_tensor, data))
    return isinstance(data, Tensor) or is_traced_number(data)


def _nested(data: Any) -> Tensor:
    """A nested sequence that holds tensors: stacked level by level."""
    if isinstance(data, Tensor):
        return _element(data)
    if is_traced_number(data):
        return promote.operand(data, promote.number_dtype(data))
    if isinstance(data, (list, tuple)):
        return stack([_nested(item) for item in data])
    return constant(_array(data, None))


def _element(data: Tensor) -> Tensor:
    """A tensor inside of a sequence: it stands for its one number."""
    if data.numel() == 1:
        number: Tensor = data.detach().reshape(())
        return number
    if data.is_floating_point() or data.is_complex():
        raise ValueError(located("only one element tensors can be converted to Python scalars"))
    raise TypeError(located(
        "only integer tensors of a single element can be converted to an index"
    ))


def _inexact_dtype(data: Any) -> DType:
    """The dtype of nested numbers that are not all integers: NumPy's own keep theirs."""
    found: set[DType] = set()
    work = [data]
    while work:
        items = work.pop()
        kinds = set(map(type, items)) if isinstance(items, (list, tuple)) else {type(items)}
        for kind in kinds:
            if kind is float:
                found.add(get_default_dtype())
            elif kind is int or kind is bool:
                continue
            elif issubclass(kind, (list, tuple)):
                work.extend(item for item in items if isinstance(item, (list, tuple)))
            elif issubclass(kind, np.generic):
                found.add(dtypes.from_numpy(np.dtype(kind)))
            elif _gives_array(kind):
                arrays = items if isinstance(items, (list, tuple)) else [items]
                found |= {
                    dtypes.from_numpy(np.asarray(a).dtype) for a in arrays if isinstance(a, kind)
                }
            elif issubclass(kind, complex):
                found.add(dtypes.complex_of(get_default_dtype()))
            elif issubclass(kind, float):
                found.add(get_default_dtype())
    return functools.reduce(dtypes.promote, found) if found else get_default_dtype()


def _without_protocol(data: Any) -> Any:
    """What gives itself as an array (a pandas Series, an image) as that array, for its dtype."""
    plain = (list, tuple, np.ndarray, np.generic, Tensor)
    if isinstance(data, plain) or not _gives_array(type(data)):
        return data
    array = np.asarray(data)
    return array.tolist() if array.dtype.kind in "OSU" else array


def _gives_array(kind: type) -> bool:
    if issubclass(kind, TracedNumber):  # a number, to what is traced
        return False
    return hasattr(kind, "__array__") or hasattr(kind, "__array_interface__")


def _array(data: Any, dtype: DType | None) -> np.ndarray:
    if isinstance(data, (np.ndarray, np.generic)):
        array = np.asarray(data)
        if dtype is None:
            dtypes.from_numpy(array.dtype)
    else:
        try:
            array = np.asarray(data)
        except ValueError as error:
            _check_ragged(data, 0)
            raise ValueError(located(f"not a rectangular nested sequence: {error}")) from None
        if array.dtype == np.uint64:  # NumPy's choice for ints beyond int64
            _refuse(int(array.max()), False)
        if array.dtype.kind in "USOV":
            leaves = list(_leaves(data))
            other = [leaf for leaf in leaves if not isinstance(leaf, (int, float, complex))]
            value = other[0] if other else max(leaves, key=abs)  # then an int is too large
            _refuse(value, isinstance(data, (list, tuple)) and value is leaves[0])
        if array.dtype.kind in "fc" and dtype is None:
            array = array.astype(_inexact_dtype(data).numpy)
        if dtype is not None and dtype.is_integer and array.dtype.kind == "f":
            floats_fit(array, dtype)
    return array if dtype is None else converted(array, dtype)


def _leaves(data: Any) -> Iterator[Any]:
    if not isinstance(data, (list, tuple)):
        yield data
    else:
        for item in data:
            yield from _leaves(item)


def _refuse(value: Any, nested: bool) -> NoReturn:
    """Raise for data that is no number, as torch does."""
    kind = type(value).__name__
    if isinstance(value, int):
        raise ValueError(located(f"Overflow when unpacking long long: {value}"))
    if not isinstance(value, str):
        raise RuntimeError(located(f"Could not infer dtype of {kind}"))
    if nested:
        raise ValueError(located(f"too many dimensions '{kind}'"))
    raise TypeError(located(f"new(): invalid data type '{kind}'"))


def _check_ragged(data: Any, depth: int) -> None:
    if not isinstance(data, (list, tuple)) or not data:
        return
    lengths = [len(item) if isinstance(item, (list, tuple)) else None for item in data]
    for length in lengths:
        if length != lengths[0]:
            if length is None or lengths[0] is None:
                raise TypeError(located("not a sequence: nested sequences must be rectangular"))
            raise ValueError(located(
                f"expected sequence of length {lengths[0]} at dim {depth + 1} (got {length})"
            ))
    for item in data:
        _check_ragged(item, depth + 1)


@makes
def tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A new leaf with a copy of the data: numbers, nested sequences, NumPy arrays, tensors."""
    return _leaf(data, dtype, requires_grad, "torch.tensor")


def _leaf(data: Any, dtype: Any, requires_grad: bool, name: str) -> Tensor:
    dtype = check_dtype(dtype)
    data = _without_protocol(data)
    if local.trace is not None and isinstance(data, np.ndarray) and _shareable(data):
        data = from_numpy(data)  # a run-time input: its elements may be others at the next call
    if isinstance(data, Tensor):
        if local.trace is None:  # where NumPy's arrays, too, are tensors
            warn_user(
                "To copy construct from a tensor, it is recommended to use sourceTensor.detach()."
                "clone() or sourceTensor.detach().clone().requires_grad_(True), "
                f"rather than {name}(sourceTensor)."
            )
        copied = data.detach().clone()
        return finish(copied if dtype is None else promote.cast(copied, dtype), requires_grad)
    if is_traced_number(data):
        kind = promote.number_dtype(data) if dtype is None else dtype
        return promote.operand(data, kind)
    if _has_tensor(data):
        stacked = _nested(data)
        return finish(stacked if dtype is None else promote.cast(stacked, dtype), requires_grad)
    return finish(constant(_array(data, dtype)), requires_grad)


def _shareable(array: np.ndarray) -> bool:
    try:
        dtypes.from_numpy(array.dtype)
    except TypeError:
        return False
    return all(stride >= 0 for stride in array.strides)


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """The data as a tensor, sharing memory with a tensor or NumPy array where it can."""
    dtype = check_dtype(dtype)
    if isinstance(data, (np.ndarray, UntypedStorage)):
        data = from_numpy(data) if isinstance(data, np.ndarray) else data.as_tensor()
        place = local.place if device is None else place_of(device)
    elif not isinstance(data, Tensor) and hasattr(data, "__cuda_array_interface__"):
        data = from_cuda_array(data)
        place = place_at(data) if device is None else place_of(device)
    elif not isinstance(data, Tensor):
        return tensor(data, dtype=dtype, device=device)
    else:
        place = place_at(data) if device is None else place_of(device)
    return promote.converted(data, dtype, place)


def asarray(
    obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """as_tensor() that says whether memory is shared: `copy=True` never, `copy=False` always.

    Raises ValueError where memory cannot be shared and `copy` is False.
    """
    found = as_tensor(obj, dtype, device)
    shared = found is obj or (isinstance(obj, np.ndarray) and found._graphc_storage.exposed)
    if copy is False and not shared:
        raise ValueError(located(
            f"can't alias {type(obj).__name__} as a tensor"
            + ("" if dtype is None else f" of dtype {dtype}") + ". Cure: leave copy=False out"
        ))
    if copy and shared:
        found = clone(found)
    if requires_grad is None:
        return found
    return found.requires_grad_() if requires_grad else found.detach()


def from_numpy(ndarray: np.ndarray) -> Tensor:
    """A tensor on the array's memory. Raises TypeError for a dtype that tensors lack."""
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(located(f"expected np.ndarray (got {type(ndarray).__name__})"))
    dtypes.from_numpy(ndarray.dtype)
    if any(stride < 0 for stride in ndarray.strides):
        raise ValueError(located(
            "At least one stride in the given numpy array is negative, and tensors with negative "
            "strides are not currently supported. (You can probably work around this by making a "
            "copy of your array with array.copy().)"
        ))
    result = from_array(ndarray)
    result._graphc_storage.exposed = True
    return result


@makes
@replayed
def full(
    size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False, layout: Any = None, pin_memory: bool = False, out: Any = None,
) -> Tensor:
    """A tensor of one value."""
    dtype = check_dtype(dtype)
    if isinstance(fill_value, Tensor):
        kind = fill_value.dtype if dtype is None else dtype
        result = expand_value(promote.cast(fill_value, kind), shape_of((size,), "full"))
        return given_out(result, requires_grad, out)
    dtype = dtype_beside(out, dtype) or promote.number_dtype(fill_value)
    return _filled(shape_of((size,), "full"), fill_value, dtype, requires_grad, out)


def expand_value(value: Tensor, shape: tuple[Any, ...]) -> Tensor:
    """A new tensor of `shape` filled with a 0-d tensor."""
    expanded: Tensor = apply(ops.expand, value.reshape(()), shape=shape)
    return clone(expanded)


def _filled(
    shape: tuple[Any, ...], value: Any, dtype: DType, requires_grad: bool = False, out: Any = None
) -> Tensor:
    non_negative(shape)
    if isinstance(value, complex):
        result = expand_value(promote.operand(value, dtype), shape)
        return given_out(result, requires_grad, out)
    if is_traced_number(value):
        value = fitting(value, dtype)
    if is_traced_number(value):
        result = expand_value(promote.operand(value, dtype), shape)
    else:
        result = apply(ops.full, shape=shape, value=_plain(value, dtype), dtype=dtype)
    return given_out(result, requires_grad, out)


def _plain(value: Any, dtype: DType) -> Any:
    """A number as the attribute of `full`: bool, int or float by the dtype."""
    if dtype.kind == "bool":
        return bool(value)
    fitted = fitting(value, dtype)
    if dtype.differentiable:
        return float(fitted)
    return int(fitted) % 2**dtype.bits if dtype.kind == "uint" else int(fitted)


def _shaped(value: float, name: str, doc: str) -> Any:
    @makes
    @replayed
    def function(
        *sizes: Any, size: Any = None, dtype: Any = None, device: Any = None,
        requires_grad: bool = False, layout: Any = None, pin_memory: bool = False,
        memory_format: Any = None, out: Any = None, names: Any = None,
    ) -> Tensor:
        if not sizes and size is None:
            raise TypeError(located(
                f"{name}() received an invalid combination of arguments - got no size. Cure: "
                f"{name}(2, 3), or {name}(()) for a single number"
            ))
        kind = dtype_beside(out, check_dtype(dtype)) or get_default_dtype()
        shape = shape_of(sizes if size is None else (size,), name)
        return _filled(shape, value, kind, requires_grad, out)

    function.__name__, function.__doc__ = name, doc
    return function


zeros = _shaped(0, "zeros", "A tensor of zeros.")
ones = _shaped(1, "ones", "A tensor of ones.")
empty = _shaped(0, "empty", "A tensor whose values do not matter (zeros here).")


def _again(shape: tuple[Any, ...], value: Any, dtype: DType) -> Tensor:
    found = filled(shape, value, dtype)
    return _filled(shape, value, dtype) if found is None else found


def _beside(input: Tensor, made: Tensor) -> Tensor:
    """What was made to be like `input`: each sample of vmap has one of its own."""
    notice = getattr(local.trace, "made_like_sample", None)
    if notice is not None:
        notice(input, made)
    return made


def _like(value: Any, name: str) -> Any:
    @makes_like
    def function(
        input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
        layout: Any = None, memory_format: Any = None, pin_memory: bool = False,
    ) -> Tensor:
        kind = check_dtype(dtype) or input.dtype
        made = laid_out_as(input, lambda size: _again(size, value, kind), memory_format)
        return _beside(input, finish(made, requires_grad))

    function.__name__, function.__doc__ = name, f"{name}: the shape and dtype of `input`."
    function.__dict__["quick"] = like_alone(value)
    return function


zeros_like = _like(0, "zeros_like")
ones_like = _like(1, "ones_like")
empty_like = _like(0, "empty_like")


@makes_like
def full_like(
    input: Tensor, fill_value: Any, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False, layout: Any = None, memory_format: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """One value, with the shape and dtype of `input`."""
    kind = check_dtype(dtype) or input.dtype
    made = laid_out_as(input, lambda size: _again(size, fill_value, kind), memory_format)
    return _beside(input, finish(made, requires_grad))


@makes_like
def new_zeros(self: Tensor, *size: Any, dtype: Any = None, **kwargs: Any) -> Tensor:
    """Zeros of this tensor's dtype."""
    made = None if kwargs or dtype is not None else filled_beside(self, size, 0)
    if made is not None:
        return made
    return _beside(self, zeros(*size, dtype=dtype or self.dtype, **kwargs))


@makes_like
def new_ones(self: Tensor, *size: Any, dtype: Any = None, **kwargs: Any) -> Tensor:
    """Ones of this tensor's dtype."""
    return _beside(self, ones(*size, dtype=dtype or self.dtype, **kwargs))


@makes_like
def new_empty(self: Tensor, *size: Any, dtype: Any = None, **kwargs: Any) -> Tensor:
    """A tensor of this one's dtype whose values do not matter."""
    return _beside(self, empty(*size, dtype=dtype or self.dtype, **kwargs))


@makes_like
def new_full(self: Tensor, size: Any, fill_value: Any, *, dtype: Any = None, **kw: Any) -> Tensor:
    """One value of this tensor's dtype."""
    return _beside(self, full(size, fill_value, dtype=dtype or self.dtype, **kw))


@makes_like
def new_tensor(
    self: Tensor, data: Any, *, dtype: Any = None, requires_grad: bool = False, layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """A copy of the data with this tensor's dtype."""
    return _leaf(data, dtype or self.dtype, requires_grad, "tensor.new_tensor")


@makes
def scalar_tensor(
    s: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    layout: Any = None, pin_memory: bool = False,
) -> Tensor:
    """A 0-d tensor of the default dtype."""
    return full((), s, dtype=check_dtype(dtype) or get_default_dtype(), requires_grad=requires_grad)


@owns_result
def empty_strided(size: Any, stride: Any, *, dtype: Any = None, **kwargs: Any) -> Tensor:
    """A tensor with the given strides, in elements."""
    sizes, strides = as_sequence(size), as_sequence(stride)
    reach = 0
    if 0 not in sizes:
        reach = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    memory = zeros(reach, dtype=dtype, **kwargs)
    return memory.as_strided(sizes, strides)  # type: ignore[no-any-return]


@owns_result
def empty_permuted(size: Any, physical_layout: Any, **kwargs: Any) -> Tensor:
    """A tensor whose dims lie in memory in the given order, outermost first."""
    sizes, order = as_sequence(size), as_sequence(physical_layout)
    if len(sizes) != len(order):
        raise RuntimeError(located(
            "Number of dimensions in size does not match the length of the physical_layout; i.e. "
            f"len(size) = {len(sizes)} is not equal to len(physical_layout) = {len(order)}"
        ))
    if sorted(order) != list(range(len(sizes))):
        raise RuntimeError(located(f"Duplicate or invalid dim in physical_layout: {list(order)}"))
    strides, step = [0] * len(sizes), 1
    for dim in reversed(order):
        strides[dim], step = step, step * sizes[dim]
    return empty_strided(sizes, strides, **kwargs)


@owns_result
def new_empty_strided(self: Tensor, size: Any, stride: Any, **kwargs: Any) -> Tensor:
    """empty_strided() of the tensor's dtype."""
    kwargs["dtype"] = kwargs.get("dtype") or self.dtype
    return empty_strided(size, stride, **kwargs)


def frombuffer(
    buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """A 1-d tensor on a buffer's memory."""
    kind = check_dtype(dtype)
    assert kind is not None
    array = np.frombuffer(buffer, kind.numpy, count, offset)
    return finish(from_array(array), requires_grad)


def _triangle(kind: str, name: str) -> Any:
    inside = np.less_equal if kind == "triu" else np.greater_equal

    @makes
    def indices(
        row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None,
        layout: Any = None, pin_memory: bool = False,
    ) -> Tensor:
        places = np.array(inside.outer(np.arange(row) + offset, np.arange(col)).nonzero())
        return constant(places, check_dtype(dtype) or dtypes.i64)

    doc = f"Row and column numbers of the {name} triangle, [2, count]."
    indices.__name__, indices.__doc__ = f"{kind}_indices", doc
    return indices


tril_indices, triu_indices = _triangle("tril", "lower"), _triangle("triu", "upper")
