"""In-place variants: each is its out-of-place function, written back into the tensor."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.ir import dtypes, ops
from graphc.ir.memory import may_share, overwrite
from graphc.ir.op import Op

from .. import promote
from ..context import local
from ..dispatch import inplace
from ..eager import apply_two, is_plain, write_two
from ..errors import kind_name, located
from ..few_places import clamp_few, fill_few, scatter_few
from ..history import requires_grad
from ..layouts import NotDense, again
from ..overlap import check_apart
from ..placement import Pinned
from ..rewritten import add_scaled, is_many, write_few, write_one, write_whole
from ..tensor import Parameter, Tensor
from ..written_at import write_again, write_by_name
from . import (
    complex_numbers,
    cumulative,
    gathering,
    index_reduce,
    inplace_shape,
    joining,
    linalg_basic,
    pointwise,
    pointwise_combined,
    pointwise_composed,
)
from .arguments import fitting, shape
from .copies import clone
from .parts import slice_dim

ARITHMETIC = (
    "abs absolute acos acosh add addcdiv addcmul arccos arccosh arcsin arcsinh arctan arctan2 "
    "arctanh asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_not bitwise_or "
    "bitwise_right_shift bitwise_xor ceil clamp clamp_max clamp_min clip copysign cos cosh deg2rad "
    "digamma div divide erf erfc erfinv exp exp2 expm1 fix floor floor_divide fmod frac heaviside "
    "hypot lerp lgamma log log10 log1p log2 logit mul multiply nan_to_num neg negative pow rad2deg "
    "reciprocal relu remainder round rsqrt sigmoid sign sin sinc sinh sqrt square sub subtract tan "
    "tanh true_divide trunc xlogy"
).split()
TRUTH = (
    "eq ne lt le gt ge logical_and logical_or logical_xor logical_not greater greater_equal less "
    "less_equal not_equal"
).split()


# whose arithmetic stays in the dtype: a quotient of integers does not
_MOST_FACTORS = 1000
_FEW = 256  # elements, of which each call costs more than they do
_COMPUTED = {"f": dtypes.f32, "d": dtypes.f64, "l": dtypes.i64}
_DIRECT = {"add": ops.add, "sub": ops.sub, "mul": ops.mul, "div": ops.div}


# which say by types and numbers alone what they come to, and go element by element
_WHOLE = frozenset(
    "abs add addcdiv addcmul ceil clamp clamp_max clamp_min div exp floor fmod lerp log mul neg "
    "pow reciprocal relu remainder round rsqrt sigmoid sign sqrt square sub tanh".split()
)

# which follow from types and numbers; those that are one operator have a `quick`, too
_AGAIN = frozenset([*ARITHMETIC, "cumsum", "cumprod", "tril", "triu"])

# written at some places
_PLACED = frozenset("index_add index_copy index_fill scatter scatter_add".split())

# which read an operand after they have written
_STRICT = frozenset("index_add index_copy scatter scatter_add scatter_reduce".split())

# made of several operators, some of which keep the tensor's former contents for their gradients
_KEEPS_SELF = frozenset(
    "xlogy sinc logit float_power renorm nan_to_num index_reduce".split()
)


def _check_rank(target: Tensor, value: Tensor) -> None:
    """Raise RuntimeError for a value of more dims; x[...] = value alone drops those of size 1."""
    if value.ndim > target.ndim:
        raise RuntimeError(located(
            f"output with shape {list(shape(target))} doesn't match the broadcast shape "
            f"{list(shape(value))}"
        ))


def _written(function: Callable[..., Tensor], check: bool) -> Callable[..., Tensor]:
    keeps = function.__name__ in _KEEPS_SELF
    apart = function.__name__ != "masked_scatter"  # torch looks at its mask alone
    whole = function.__name__ in _WHOLE
    placed = function.__name__ if function.__name__ in _PLACED else ""
    strict = function.__name__ in _STRICT
    again_of_few = function.__name__ in _AGAIN
    quick = function.__dict__.get("quick")
    one = quick and quick.args[0]  # the operator that it is of one float tensor

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if one and not args and not kwargs and write_one(one, self):
            return self
        if again_of_few and write_few(function, self, args, kwargs):
            return self
        if whole and write_whole(function, self, args, kwargs):
            return self
        if placed and write_by_name(placed, self, args, kwargs):
            return self
        try:
            for operand in (*args, *kwargs.values()) if apart else ():
                if isinstance(operand, Tensor) and (strict or operand is not self):
                    check_apart(self, operand, whole=not strict)
            value = function(clone(self) if keeps else self, *args, **kwargs)
            if check:
                promote.check_inplace(self, value)
            _check_rank(self, value)
            return inplace(self, value)
        except NotDense as error:
            return again(error, method, (self, *args), kwargs)  # type: ignore[no-any-return]

    method.__name__ = f"{function.__name__}_"
    method.__doc__ = f"{function.__name__}(), written into the tensor."
    return method


def _in_own_dtype(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """cumsum_() or cumprod_(), which torch computes in the tensor's dtype, and not in bool."""

    @functools.wraps(method)
    def checked(self: Tensor, *args: Any, dtype: Any = None, **kwargs: Any) -> Tensor:
        if dtype is not None and dtype is not self.dtype:
            raise RuntimeError(located(
                f"Bad in-place call: input tensor dtype {self.dtype} and output tensor dtype "
                f"{dtype} should match"
            ))
        if self.dtype is dtypes.bool_:
            name = method.__name__.removesuffix("_")
            raise NotImplementedError(located(
                f"\"{name}_out_cpu\" not implemented for 'Bool'. Cure: input.{name}(dim)"
            ))
        return method(self, *args, **kwargs)

    return checked


def _again_first(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """index_add_(), scatter_() and scatter_add_(), of few numbers as it was done before."""
    name = method.__name__.removesuffix("_")

    @functools.wraps(method)
    def direct(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if len(args) == 3 and not kwargs and write_again(name, self, *args):
            return self
        return method(self, *args, **kwargs)

    return direct


def _mask_first(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """masked_fill_() or masked_scatter_(), of few numbers where the mask is of their shape."""
    write = fill_few if method.__name__ == "masked_fill_" else scatter_few

    @functools.wraps(method)
    def direct(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if len(args) == 2 and not kwargs and write(self, *args):
            return self
        return method(self, *args, **kwargs)

    return direct


def _bounds_first(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """clamp_(), of few numbers between numbers."""

    @functools.wraps(method)
    def direct(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if len(args) + len(kwargs) < 3 and kwargs.keys() <= _BOUNDS and (
            clamp_few(self, *args, **kwargs)
        ):
            return self
        return method(self, *args, **kwargs)

    return direct


_BOUNDS = frozenset({"min", "max"})


def _arithmetic(op: Op, method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A method that computes in the tensor's memory where both operands are floats of one dtype."""
    scales = op in (ops.add, ops.sub)

    @functools.wraps(method)
    def direct(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if (
            len(args) == 1 and local.trace is None and self._graphc_trace is None
            and (not kwargs or (scales and len(kwargs) == 1 and "alpha" in kwargs))
        ):
            other = args[0]
            dtype = _COMPUTED.get(self._graphc_array.dtype.char)
            if kwargs:
                if add_scaled(op, self, other, kwargs["alpha"]):
                    return self
                few = not is_many(self) or _is_new(kwargs["alpha"])
                other = _scaled(self, other, kwargs["alpha"], dtype) if few else None
            if dtype is not None:
                if type(other) is int or (type(other) is float and dtype.is_float):
                    other = promote.operand(other, dtype)
                if isinstance(other, Tensor) and write_two(op, self, other):
                    return self
        return method(self, *args, **kwargs)

    return direct


_factors: set[Any] = set()


def _is_new(alpha: Any) -> bool:
    """Whether a factor comes for the first time, as those of a schedule do: to look for one loop
    then takes longer than two do."""
    if type(alpha) not in (int, float) or alpha in _factors:
        return False
    if len(_factors) >= _MOST_FACTORS:
        _factors.clear()
    _factors.add(alpha)
    return True


def _scaled(x: Tensor, other: Any, alpha: Any, dtype: dtypes.DType | None) -> Tensor | None:
    """alpha * other, of a dtype that is a float's, which is to be added to x; None: not as simply
    as that."""
    if (
        dtype is None or not dtype.is_float or type(alpha) not in (int, float)
        or type(other) not in (Tensor, Parameter) or other._graphc_trace is not None
        or other.dtype is not dtype or (local.grad and requires_grad(other))
        or (other is not x and may_share(x._graphc_array, other._graphc_array))
    ):
        return None
    return apply_two(ops.mul, other, promote.operand(alpha, dtype))  # type: ignore[no-any-return]


def _distinct(x: Tensor) -> Tensor:
    """Without the repetitions of an expanded tensor, which torch lets be filled."""
    for dim, (size, stride) in enumerate(zip(shape(x), x.stride(), strict=True)):
        if type(stride) is int and stride == 0 and size != 1:
            x = slice_dim(x, dim, 0, 1) if size != 0 else x
    return x


def zero_(self: Tensor) -> Tensor:
    """Fill with zeros."""
    if is_plain(self):
        array = self._graphc_array
        if array.size > _FEW:  # bytes at a time take less than elements
            array = array.reshape(-1).view(np.uint8)
        array.fill(0)
        self._graphc_storage.version += 1
        return self
    inplace(_distinct(self), _number(0, self.dtype), overwrite=True)
    return self


def fill_(self: Tensor, value: Any) -> Tensor:
    """Fill with one value: a number or a 0-d tensor."""
    if type(value) in (int, float) and is_plain(self) and self._graphc_array.dtype.char in "fd":
        self._graphc_array.fill(fitting(value, self.dtype))
        self._graphc_storage.version += 1
        return self
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(located(
                "fill_ only supports 0-dimension value tensor but got tensor with "
                f"{value.ndim} dimensions."
            ))
        inplace(_distinct(self), promote.cast(value, self.dtype), overwrite=True)
    else:
        inplace(_distinct(self), _number(value, self.dtype), overwrite=True)
    return self


def _number(value: Any, dtype: dtypes.DType) -> Tensor:
    return promote.operand(fitting(value, dtype), dtype)


def fill(input: Tensor, value: Any) -> Tensor:
    """One value, with the shape and dtype of `input`."""
    return fill_(input.clone(), value)


def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Copy the values of a tensor or a number, cast and broadcast, into the tensor."""
    if promote.is_number(src):
        src = promote.operand(src, promote.number_dtype(src))
    if not isinstance(src, Tensor):
        raise TypeError(located(
            f"copy_(): argument 'other' (position 1) must be Tensor, not {kind_name(src)}"
        ))
    if is_plain(self) and src._graphc_trace is None:
        to, of = self._graphc_array, src._graphc_array
        if type(of) is np.ndarray and to.dtype is of.dtype and to.shape == of.shape and not (
            np.may_share_memory(to, of) or (local.grad and requires_grad(src))
        ):
            overwrite(to, of)
            self._graphc_storage.version += 1
            return self
    check_apart(self, src)
    _check_rank(self, src)
    if non_blocking:
        with Pinned.later():
            return inplace(self, src, overwrite=True)
    return inplace(self, src, overwrite=True)


def methods() -> dict[str, Callable[..., Any]]:
    """name_ -> method, for every function that has one."""
    table: dict[str, Callable[..., Any]] = {}
    for name in ARITHMETIC:
        function = next(
            getattr(file, name)
            for file in (pointwise, pointwise_combined, pointwise_composed) if hasattr(file, name)
        )
        table[f"{name}_"] = _written(function, True)
    written = dict(table)
    for name, op in _DIRECT.items():
        table[f"{name}_"] = _arithmetic(op, table[f"{name}_"])
    for name in TRUTH:
        table[f"{name}_"] = _written(getattr(pointwise, name), False)
    for module, names in (
        (gathering, "scatter scatter_add scatter_reduce index_add index_copy index_fill "
                    "masked_fill masked_scatter"),
        (joining, "tril triu"),
        (cumulative, "cumsum cumprod"),
    ):
        for name in names.split():
            table[f"{name}_"] = _written(getattr(module, name), False)
    for name in ("cumsum_", "cumprod_"):
        table[name] = _in_own_dtype(table[name])
    for name in ("index_add_", "scatter_", "scatter_add_"):
        table[name] = _again_first(table[name])
    for name in ("masked_fill_", "masked_scatter_"):
        table[name] = _mask_first(table[name])
    table["clamp_"] = table["clip_"] = _bounds_first(table["clamp_"])
    table |= inplace_shape.methods()
    table |= {
        "zero_": zero_, "fill_": fill_, "copy_": copy_, "index_put_": gathering.index_put_,
        "put_": gathering.put_,
        "index_reduce_": _written(index_reduce.index_reduce, False),
        "renorm_": _written(pointwise_composed.renorm, False),
        "ldexp_": _written(pointwise_composed.ldexp, True),
        "gcd_": _written(pointwise_composed.gcd, True),
        "lcm_": _written(pointwise_composed.lcm, True),
        "nextafter_": _written(pointwise_composed.nextafter, True),
        "float_power_": _written(pointwise_composed.float_power, False),
        "sgn_": _written(complex_numbers.sgn, False),
        "addmm_": _product("addmm"), "addmv_": _product("addmv"),
        "baddbmm_": _product("baddbmm"), "addbmm_": _product("addbmm"), "addr_": _product("addr"),
    }
    for operator, name in {
        "__iadd__": "add_", "__isub__": "sub_", "__imul__": "mul_", "__itruediv__": "div_",
        "__ifloordiv__": "floor_divide_", "__imod__": "remainder_", "__ipow__": "pow_",
        "__iand__": "bitwise_and_", "__ior__": "bitwise_or_", "__ixor__": "bitwise_xor_",
        "__ilshift__": "bitwise_left_shift_", "__irshift__": "bitwise_right_shift_",
    }.items():
        augmented = _augmented(written.get(name, table[name]))
        direct = _DIRECT.get(name[:-1])
        table[operator] = augmented if direct is None else _arithmetic(direct, augmented)
    return table


def _augmented(method: Callable[..., Tensor]) -> Callable[..., Any]:
    """An operator of a tensor and an array is NumPy's, as in torch: `x += array` makes a tensor of
    the dtype that NumPy promotes to, and leaves the former x as it is."""

    @functools.wraps(method)
    def operator(self: Tensor, other: Any) -> Any:
        return NotImplemented if isinstance(other, np.ndarray) else method(self, other)

    return operator


def _product(name: str) -> Callable[..., Tensor]:
    return _written(getattr(linalg_basic, name), True)
