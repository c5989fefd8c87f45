"""Reading arguments as torch does: dims, shapes, `out=`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from graphc.ir import dtypes
from graphc.ir.dim import Dim, DimEnv
from graphc.ir.dim import Size as DimSize
from graphc.ir.dtypes import DType
from graphc.ir.op import OpError
from graphc.ir.ops import broadcast_shapes

from ..context import local
from ..dispatch import inplace
from ..errors import kind_name, located, raise_op_error, warn_once, warn_user
from ..known import values
from ..layouts import NotDense
from ..nodes import OpNode, rename
from ..numbers import is_traced_number, plain_size
from ..overlap import check_apart
from ..placement import is_loose, mixed, place_at
from ..promote import _name as dtype_name
from ..promote import cast as to_dtype
from ..promote import check_inplace
from ..storage import note_read, reads_later
from ..tensor import Tensor
from ..unsaved import keep_values
from ..values import Eager
from ..views import OVERLAP, may_overlap
from ..wrapped import wraps
from .dtype_names import CPP_NAMES, LARGEST, PYTHON

F = TypeVar("F", bound=Callable[..., Any])


def wrap_dim(dim: Any, rank: int) -> int:
    """`dim` as a non-negative int. Raises IndexError outside [-rank, rank-1]."""
    span = max(rank, 1)
    if not hasattr(dim, "__index__"):
        raise TypeError(located(f"argument 'dim' must be int, not {type(dim).__name__}: {dim!r}"))
    dim = dim.__index__()
    if not -span <= dim < span:
        raise IndexError(located(
            f"Dimension out of range (expected to be in range of [{-span}, {span - 1}], "
            f"but got {dim})"
        ))
    return int(dim) % span


def wrap_dims(dims: Any, rank: int) -> tuple[int, ...]:
    """Sorted non-negative dims; None or () mean all. Raises RuntimeError on a repeated one."""
    if dims is None:
        return tuple(range(rank))
    given = tuple(dims) if isinstance(dims, (tuple, list)) else (dims,)
    if not given:
        return tuple(range(rank))
    wrapped = [wrap_dim(dim, rank) for dim in given]
    for dim in wrapped:
        if wrapped.count(dim) > 1:
            raise RuntimeError(located(f"dim {dim} appears multiple times in the list of dims"))
    return tuple(sorted(wrapped)) if rank else ()


def shape_of(sizes: tuple[Any, ...], name: str = "") -> tuple[Any, ...]:
    """Sizes given as f(2, 3), f((2, 3)) or f(torch.Size) as a tuple of ints and Dims."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    return tuple([size if type(size) is int else as_size(size, name) for size in sizes])


def as_size(size: Any, name: str = "") -> Any:
    """One size. Raises TypeError on what is not an integer."""
    if type(size) is int or isinstance(size, Dim):
        return size
    if is_traced_number(size):
        return plain_size(size)
    if isinstance(size, Tensor):
        return int(values(size, "using a tensor as a size", "use an int").item())
    if isinstance(size, (bool, float)) or not hasattr(size, "__index__"):
        raise TypeError(located(
            f"{name}(): argument 'size' (position 1) must be tuple of ints, not "
            f"{type(size).__name__}: {size!r}"
        ))
    return size.__index__()


_FIT_NAMES = {**CPP_NAMES, dtypes.i64: "int64_t", dtypes.i16: "int16_t", dtypes.i8: "int8_t",
              dtypes.u8: "uint8_t"}


def fitting(value: Any, dtype: DType) -> Any:
    """A number as `dtype` has it (a float among integers is truncated).

    Raises RuntimeError where it lies outside the dtype's range, as fills and comparisons do.
    """
    if dtype.kind in ("bool", "complex"):
        return value
    if is_traced_number(value):
        # what 64 bits hold is checked as the number enters the graph
        wide = dtype in (dtypes.i64, dtypes.f64)
        same_kind = value.is_integer_number or not dtype.is_integer
        if same_kind and (wide or -LARGEST[dtype] <= value <= LARGEST[dtype]):
            return value
        value = value.decided()
    given = value
    if isinstance(value, complex):
        if value.imag:
            _overflow(value, dtype)
        value = value.real
    if dtype.is_float:
        if type(value) is int:
            value = float(value)
        too_big = math.isfinite(value) and abs(value) > LARGEST[dtype]
    else:
        whole, unsigned = math.isfinite(value), dtype.kind == "uint"
        # torch lets a negative integer wrap into an unsigned dtype, no float
        low = -LARGEST[dtype] if unsigned and type(value) is not float else (
            0 if unsigned else -LARGEST[dtype] - 1
        )
        too_big = not whole or not low <= value <= LARGEST[dtype]
        value = int(value) if whole else 0
    if too_big:
        _overflow(given, dtype)
    return value


def _overflow(value: Any, dtype: DType) -> None:
    raise RuntimeError(located(
        f"value cannot be converted to type {_FIT_NAMES[dtype]} without overflow: {value}"
    ))


def non_negative(shape: Iterable[Any]) -> None:
    """Raise RuntimeError on a negative size."""
    sizes = tuple(shape)
    for size in sizes:
        if isinstance(size, int) and size < 0:
            raise RuntimeError(located(
                f"Trying to create tensor with negative dimension {size}: {list(sizes)}"
            ))


_STATIC = DimEnv()


def environment() -> DimEnv:
    """Where decisions about sizes are taken: the trace's, or one for plain ints."""
    return _STATIC if local.trace is None else local.trace.builder.env


def public_size(size: DimSize) -> Any:
    """An IR size as the user sees it: an int, or a SymInt of the running trace."""
    if isinstance(size, Dim):
        trace = local.trace
        assert trace is not None
        return trace.lift_size(size)
    return size


def shape(x: Tensor) -> tuple[Any, ...]:
    """The IR's sizes of a tensor: ints and Dims."""
    try:
        return (
            x._graphc_type.shape
            if local.trace is not None or x._graphc_trace is not None
            else x._graphc_array.shape
        )
    except NotDense:
        return x._graphc_type.shape
    except AttributeError:
        if isinstance(x, Tensor):
            raise
        raise TypeError(located(f"expected a Tensor, but got {kind_name(x)}")) from None


def broadcast_sizes(*shapes: tuple[Any, ...]) -> tuple[Any, ...]:
    """The common shape. Raises RuntimeError where there is none."""
    try:
        return tuple(broadcast_shapes(environment(), *shapes))
    except OpError as error:
        raise_op_error(error)


def require_fit(source: Tensor, sizes: tuple[Any, ...]) -> None:
    """Raise RuntimeError unless the value broadcasts to the place."""
    have = shape(source)
    extra = len(have) - len(sizes)
    lead = have[: max(extra, 0)]
    env = environment()
    fits = all(n == 1 for n in lead) and all(
        n == m or env.equal(n, 1) or env.equal(n, m)
        for n, m in zip(reversed(have), reversed(sizes), strict=False)
    )
    if fits:
        return
    if extra > 0:
        raise RuntimeError(located(
            f"expand(torch.FloatTensor{{{list(have)}}}, size={list(sizes)}): the number of sizes "
            f"provided ({len(sizes)}) must be greater or equal to the number of dimensions in the "
            f"tensor ({len(have)})"
        ))
    for i, (n, m) in enumerate(zip(have, sizes[-len(have) :], strict=True), -extra):
        if n not in (1, m):
            raise RuntimeError(located(
                f"The expanded size of the tensor ({m}) must match the existing size ({n}) at "
                f"non-singleton dimension {i}.  Target sizes: {list(sizes)}.  Tensor sizes: "
                f"{list(have)}"
            ))


def as_sequence(value: Any) -> tuple[Any, ...]:
    """One value or a list of them as a tuple."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def is_mask(index: Tensor) -> bool:
    """Whether an index is truths, as bytes are, of which torch warns."""
    if index.dtype is dtypes.u8:
        warn_user(
            "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool "
            "instead."
        )
    return index.dtype in (dtypes.bool_, dtypes.u8)


def condition_of(where: Any) -> Tensor:
    """What where() chooses by, as truths. Raises TypeError for no tensor, RuntimeError for one of
    numbers other than bytes."""
    if not isinstance(where, Tensor):
        raise TypeError(located(
            f"where(): argument 'condition' (position 1) must be Tensor, not {kind_name(where)}"
        ))
    if where.dtype is dtypes.bool_:
        return where
    if where.dtype is not dtypes.u8:
        raise RuntimeError(located(
            "where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{dtype_name(where.dtype)}"
        ))
    warn_once(
        "where received a uint8 condition tensor. This behavior is deprecated and will be removed "
        "in a future version of PyTorch. Use a boolean condition instead."
    )
    return to_dtype(where, dtypes.bool_)


def numpy_names(function: F) -> F:
    """Let `axis` and `keepdims` stand for `dim` and `keepdim`, as torch does."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            if "axis" in kwargs:
                kwargs["dim"] = kwargs.pop("axis")
            if "keepdims" in kwargs:
                kwargs["keepdim"] = kwargs.pop("keepdims")
        return function(*args, **kwargs)

    return cast(F, wrapper)


def named(result: Tensor, name: str) -> Tensor:
    """The result, its grad_fn printed as torch's `name`."""
    rename(result._graphc_node, name)
    return result


def forgotten(result: Tensor) -> Tensor:
    """A result that torch computes by an operator whose rule does not read it: it may be written
    to before the backward pass."""
    node, late = result._graphc_node, frozenset({~0})
    if not isinstance(node, OpNode) or node.saved_out is None or node.packed:
        return result
    if node.trace is not None:
        keep_values(node, late)
    else:
        node.late = late
        note_read(result._graphc_storage)
        reads_later(node)
    return result


def recorded_as(name: str) -> Callable[[F], F]:
    """Let what a function of several operators gives (the first of several results) have torch's
    `name` for its grad_fn."""
    def decorate(function: F) -> F:
        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            found = function(*args, **kwargs)
            result = found[0] if isinstance(found, tuple) else found
            if not (args and result is args[0]):
                rename(result._graphc_node, name)
            return found

        return cast(F, wrapper)

    return decorate


def variadic(name: str) -> Callable[[F], F]:
    """Let a function of (input, *values) also take the values by keyword: reshape(x, shape=s)."""

    def decorate(function: F) -> F:
        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if kwargs and name in kwargs:
                if "input" in kwargs:
                    args = (kwargs.pop("input"),)
                args = (*args, kwargs.pop(name))
            return function(*args, **kwargs)

        return cast(F, wrapper)

    return decorate


def check_dtype(dtype: Any) -> DType | None:
    """A dtype, also from a Python type. Raises TypeError for anything else."""
    if dtype is None or isinstance(dtype, DType):
        return dtype
    found = PYTHON.get(dtype)
    if found is None:
        raise TypeError(located(f"dtype must be torch.dtype, not {dtype!r}"))
    return found


# what torch writes while it still reads the inputs
_APART = frozenset(
    "cat gather index_select kthvalue masked_select mode take_flat take_along_dim".split()
)
# of which torch does not look at the memory, nor at that of linalg's and fft's functions
_ANYWHERE = frozenset(
    "addmv all amax amin any argmax argmin bmm bucketize diag diff dot histc inner log_softmax "
    "logsumexp matmul max mean min mm multigammaln mv nanmean nanquantile nansum ndtr norm prod "
    "quantile searchsorted slice_scatter softmax std sum tensordot tril triu var vdot".split()
)
# `out` must have the result's dtype
_EXACT = frozenset(
    "_int_mm abs absolute addmm all amax amin aminmax any argmax argmin bitwise_not bmm bucketize "
    "ceil complex conj_physical cummax cummin diag dot fix float_power floor frac frexp gather "
    "heaviside histc index_select inner isin isneginf isposinf kthvalue lerp log_softmax "
    "logcumsumexp masked_select matmul median mm mode msort mv nan_to_num nanmedian nanquantile "
    "neg negative nonzero norm polar quantile renorm round searchsorted sgn sign signbit "
    "slice_scatter softmax sort take_flat tensordot topk tril triu trunc vdot where".split()
)
# which are computed in the dtype of `out`
_IN_ITS_DTYPE = frozenset("cumprod cumsum nansum prod sum".split())


def with_out(function: F) -> F:
    """Give a function the keyword `out`: a tensor (or tuple) that the result is copied into."""
    name = function.__name__
    anywhere = name in _ANYWHERE or function.__module__.startswith(("graphc.linalg", "graphc.fft"))

    @wraps(function)
    def wrapper(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        if out is None:
            return function(*args, **kwargs)
        _check_out(name, out)
        if not anywhere:
            _check_apart(name, out, (*args, *kwargs.values()))
        if name in _IN_ITS_DTYPE and kwargs.get("dtype") is None:
            kwargs["dtype"] = out.dtype
        result = function(*args, **kwargs)
        if name in _EXACT:
            _check_same_dtype(as_sequence(out), as_sequence(result))
        if any(x.requires_grad for x in ((result,) if isinstance(result, Tensor) else result)):
            raise RuntimeError(located(
                f"{function.__name__}(): functions with out=... arguments don't support automatic "
                "differentiation, but one of the arguments requires grad."
            ))
        if isinstance(result, Tensor):
            _check_out(name, [out])
            if not anywhere and any(x is out for x in (*args, *kwargs.values())):
                _check_keeps_shape(out, result)
            return write_out(out, result)
        for target, value in zip(out, result, strict=True):
            write_out(target, value)
        return type(result)(*out) if hasattr(result, "_fields") else tuple(out)

    return cast(F, wrapper)


def _check_out(name: str, out: Any) -> None:
    for each in out if isinstance(out, (tuple, list)) else (out,):
        if not isinstance(each, Tensor):
            raise TypeError(located(
                f"{name}(): argument 'out' must be Tensor, not {type(each).__name__}"
            ))


def _check_same_dtype(targets: Iterable[Tensor], results: Iterable[Tensor]) -> None:
    for target, found in zip(targets, results, strict=True):
        truths = found.dtype is dtypes.bool_ and target.dtype is dtypes.u8  # of older programs
        if target.dtype is not found.dtype and not truths:
            raise RuntimeError(located(
                f"Expected out tensor to have dtype {CPP_NAMES[found.dtype]}, but got "
                f"{CPP_NAMES[target.dtype]} instead"
            ))


def _check_keeps_shape(out: Tensor, value: Tensor) -> None:
    """Raise RuntimeError where an operand given as `out` would have to take on another shape."""
    if tuple(out.shape) != tuple(value.shape):
        raise RuntimeError(located(
            f"output with shape {list(out.shape)} doesn't match the broadcast shape "
            f"{list(value.shape)}"
        ))


def _check_single(out: Tensor) -> None:
    """Raise RuntimeError where two elements of `out` are one."""
    if out._graphc_trace is None and may_overlap(
        out._graphc_array.shape, out._graphc_array.strides, _STATIC
    ):
        raise RuntimeError(located(OVERLAP))


def _check_apart(name: str, outs: Any, inputs: Iterable[Any]) -> None:
    """Raise RuntimeError where torch refuses `out` for the memory that it shares with an input,
    or an element of an input that is a list."""
    operands = [x for value in inputs for x in as_sequence(value) if isinstance(x, Tensor)]
    for out in as_sequence(outs):
        if name in _APART:
            _check_single(out)
        for x in operands:
            check_apart(out, x, whole=name not in _APART)


def dtype_beside(out: Tensor | None, dtype: DType | None) -> DType | None:
    """The dtype asked for, which is that of `out=`. Raises RuntimeError where they differ."""
    if out is None:
        return dtype
    if not isinstance(out, Tensor):
        raise TypeError(located(f"argument 'out' must be Tensor, not {type(out).__name__}"))
    if dtype is out.dtype:
        return dtype
    if dtype is not None:
        raise RuntimeError(located(
            f"dtype {dtype_name(dtype)} does not match dtype of out parameter "
            f"({dtype_name(out.dtype)})"
        ))
    return out.dtype


def given_out(result: Tensor, requires_grad: bool, out: Tensor | None) -> Tensor:
    """What a function that makes tensors returns."""
    if out is not None:
        return write_out(out, result, warns=False)
    return result.requires_grad_() if requires_grad else result


def write_out(out: Tensor, value: Tensor, warns: bool = True) -> Tensor:
    """Copy a result into `out=`, resizing it as torch does, which warns of that."""
    check_inplace(out, value)
    if Eager.elsewhere is not None and not is_loose(value):
        here, there = place_at(out), place_at(value)
        if here is not there:
            raise mixed(here, there)
    if tuple(out.shape) != tuple(value.shape):
        if warns and out._graphc_type.elements != 0:
            warn_user(
                "An output with one or more elements was resized since it had shape "
                f"{list(out.shape)}, which does not match the required output shape "
                f"{list(value.shape)}. This behavior is deprecated, and in a future PyTorch "
                "release outputs will not be resized unless they have zero elements. You can "
                "explicitly reuse an out tensor t by resizing it, inplace, to zero elements with "
                "t.resize_(0)."
            )
        if local.trace is None:
            out.data = value.detach().clone().to(out.dtype)
            return out
        local.trace.end_segment(
            f"out= of shape {list(out.shape)}, which takes on the shape {list(value.shape)},",
            "give it the right shape",
        )
        with local.trace.suspended():
            out.data = value.detach().clone().to(out.dtype)
        return out
    return inplace(out, value, overwrite=True)
