"""Operators that move elements and compute nothing: views, copies and updates of regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import dtypes
from ..dim import Dim, DimEnv, Size, ceil_div, product
from ..op import LIGHT, Attrs, Op, TypeRule, VjpRule, register
from ..rounding import EXACT
from ..types import Shape, TensorType, Type
from ._rules import filled, ops, permute, reshape, sum_to, zeros
from ._types import (
    Types,
    fail,
    merge_sizes,
    require_dim,
    require_dims,
    require_length,
    require_one_dtype,
    same_shape,
    sizes_text,
)

# --- type rules ------------------------------------------------------------------------------


def _reshape_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    shape: Shape = attrs["shape"]
    if shape != x.shape and not env.equal(product(shape), x.elements):
        fail(f"shape '{sizes_text(shape)}' is invalid for input of size {x.elements}")
    return TensorType(x.dtype, shape)


def _permute_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    dims: tuple[int, ...] = attrs["dims"]
    require_length("permute", "dims", dims, x.rank)
    require_dims("permute", dims, x.rank)
    return TensorType(x.dtype, tuple(x.shape[d] for d in dims))


def _expand_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    shape: Shape = attrs["shape"]
    extra = len(shape) - x.rank
    if extra < 0:
        fail(
            f"expand: the number of sizes provided ({len(shape)}) must be greater or equal to "
            f"the number of dimensions in the tensor ({x.rank})"
        )
    for i, have in enumerate(x.shape, extra):
        want = shape[i]
        if have == want or (isinstance(have, int) and have == 1) or env.equal(have, want):
            continue
        if not env.equal(have, 1):
            fail(
                f"The expanded size of the tensor ({want}) must match the existing size ({have}) "
                f"at non-singleton dimension {i}.  Target sizes: {sizes_text(shape)}.  "
                f"Tensor sizes: {sizes_text(x.shape)}"
            )
    return TensorType(x.dtype, shape)


def sliced_shape(
    name: str, shape: Shape, attrs: Attrs, env: DimEnv
) -> Shape:
    """The shape of `shape[starts:stops:steps]`. Raises unless 0 <= start <= stop <= size."""
    starts, stops, steps = attrs["starts"], attrs["stops"], attrs["steps"]
    for attribute, value in (("starts", starts), ("stops", stops), ("steps", steps)):
        require_length(name, attribute, value, len(shape))
    out: list[Size] = []
    for size, start, stop, step in zip(shape, starts, stops, steps, strict=True):
        if isinstance(step, Dim) or step < 1:
            fail(f"{name}: slice step must be positive, got {step}", ValueError)
        in_order = start == stop or env.at_most(start, stop)
        if not in_order or not env.not_negative(start):
            fail(f"{name}: slice start {start} must be between 0 and its stop {stop}", IndexError)
        if stop != size and not env.at_most(stop, size):
            fail(f"{name}: slice stop {stop} is beyond the size {size}", IndexError)
        out.append(ceil_div(stop - start, step))
    return tuple(out)


def _slice_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    return TensorType(types[0].dtype, sliced_shape("slice", types[0].shape, attrs, env))


def _require_source(name: str, source: TensorType, shape: Shape, env: DimEnv) -> None:
    if not same_shape(env, source.shape, shape):
        fail(
            f"{name}: expected src to have a size equal to the region of self. "
            f"src size = {sizes_text(source.shape)}, region size = {sizes_text(shape)}"
        )


def _slice_update_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    x, source = types
    require_one_dtype("slice_update", types)
    _require_source("slice_update", source, sliced_shape("slice_update", x.shape, attrs, env), env)
    return x


def _check_strided(name: str, x: TensorType, attrs: Attrs, env: DimEnv) -> None:
    size, stride, offset = attrs["size"], attrs["stride"], attrs["offset"]
    require_length(name, "stride", stride, len(size))
    if not env.not_negative(offset) or not all(env.not_negative(s) for s in stride):
        fail(f"{name}: Negative strides and offsets are not supported, got strides: "
             f"{sizes_text(stride)}, offset: {offset}")
    if any(isinstance(n, int) and n == 0 for n in size):
        return
    if not all(env.not_negative(n) for n in size):
        fail(f"{name}: sizes must not be negative, got {sizes_text(size)}")
    needed = offset + 1
    for n, s in zip(size, stride, strict=True):
        needed = needed + (n - 1) * s
    if not env.at_most(needed, x.elements):
        fail(
            f"setStorage: sizes {sizes_text(size)}, strides {sizes_text(stride)}, storage offset "
            f"{offset} require {needed} elements, but the storage has {x.elements}"
        )


def _as_strided_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    _check_strided("as_strided", types[0], attrs, env)
    return TensorType(types[0].dtype, attrs["size"])


def _as_strided_update_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    x, source = types
    require_one_dtype("as_strided_update", types)
    _check_strided("as_strided_update", x, attrs, env)
    _require_source("as_strided_update", source, attrs["size"], env)
    return x


def _flip_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    require_dims("flip", attrs["dims"], types[0].rank)
    return types[0]


def _pad_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    shape: list[Size] = []
    for attribute in ("low", "high", "interior"):
        require_length("pad", attribute, attrs[attribute], x.rank)
        for amount in attrs[attribute]:
            if not env.not_negative(amount):
                fail(f"pad: {attribute} must not be negative, got {attrs[attribute]}; slice first")
    for n, low, high, interior in zip(
        x.shape, attrs["low"], attrs["high"], attrs["interior"], strict=True
    ):
        if interior and not env.equal(n, 0):
            n = n + (n - 1) * interior
        shape.append(low + n + high)
    return TensorType(x.dtype, tuple(shape))


def _concat_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    if not types:
        fail("torch.cat(): expected a non-empty list of Tensors")
    dim: int = attrs["dim"]
    dtype = require_one_dtype("concat", types)
    require_dim("concat", dim, types[0].rank)
    shape = list(types[0].shape)
    for number, other in enumerate(types[1:], 1):
        if other.rank != len(shape):
            fail(f"Tensors must have same number of dimensions: got {len(shape)} and {other.rank}")
        for i, size in enumerate(other.shape):
            if i == dim:
                shape[i] = shape[i] + size
                continue
            merged = merge_sizes(env, shape[i], size)
            if merged is None:
                fail(
                    f"Sizes of tensors must match except in dimension {dim}. Expected size "
                    f"{shape[i]} but got size {size} for tensor number {number} in the list."
                )
            shape[i] = merged
    return TensorType(dtype, tuple(shape))


# --- gradients -------------------------------------------------------------------------------


def _reshape_vjp(grads: Any, inputs: Any, outs: Any, needs: Any, *, shape: Shape) -> Any:
    return (reshape(grads[0], inputs[0].type.shape),)


def _permute_vjp(grads: Any, inputs: Any, outs: Any, needs: Any, *, dims: tuple[int, ...]) -> Any:
    return (permute(grads[0], sorted(range(len(dims)), key=dims.__getitem__)),)


def _expand_vjp(grads: Any, inputs: Any, outs: Any, needs: Any, *, shape: Shape) -> Any:
    return (sum_to(grads[0], inputs[0].type.shape),)


def slice_gradient(g: Any, shape: Shape, starts: Shape, stops: Shape, steps: Sequence[int]) -> Any:
    """Zeros of `shape` with `g` at the slice: a pad, which fuses, where its amounts are known."""
    low, high, interior = [], [], []
    for n, size, start, step in zip(g.type.shape, shape, starts, steps, strict=True):
        if step > 1 and (isinstance(n, Dim) or n == 0):
            background = filled(g, shape, 0, g.type.dtype)
            return ops.slice_update(
                background, g, starts=starts, stops=stops, steps=tuple(steps)
            )
        span = n if step == 1 else (n - 1) * step + 1
        low.append(start)
        high.append(size - start - span)
        interior.append(step - 1)
    return ops.pad(g, low=tuple(low), high=tuple(high), interior=tuple(interior), value=0.0)


def _slice_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, starts: Shape, stops: Shape, steps: Any
) -> Any:
    return (slice_gradient(grads[0], inputs[0].type.shape, starts, stops, steps),)


def _slice_update_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, starts: Shape, stops: Shape, steps: Any
) -> Any:
    (g,), (_, source) = grads, inputs
    where = {"starts": starts, "stops": stops, "steps": steps}
    return (
        ops.slice_update(g, zeros(source), **where) if needs[0] else None,
        ops.slice(g, **where) if needs[1] else None,
    )


def _strided_positions(like: Any, size: Shape, stride: Shape, offset: Size) -> Any:
    """The flat i64 position of each element of an as_strided view."""
    i64 = dtypes.i64
    total = filled(like, size, offset, i64)
    for d, step in enumerate(stride):
        index = ops.iota.like(like, shape=size, dim=d, dtype=i64)
        total = total + index * filled(like, (), step, i64)
    return total


def _as_strided_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, size: Shape, stride: Shape, offset: Size
) -> Any:
    # elements of a strided view may overlap, so their gradients add
    (g,), (x,) = grads, inputs
    flat = filled(g, (x.type.elements,), 0, g.type.dtype)
    positions = _strided_positions(g, size, stride, offset)
    total = ops.index_put(flat, g, positions, dim=0, accumulate=True)
    return (reshape(total, x.type.shape),)


def _as_strided_update_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, size: Shape, stride: Shape, offset: Size
) -> Any:
    (g,), (_, source) = grads, inputs
    where = {"size": size, "stride": stride, "offset": offset}
    return (
        ops.as_strided_update(g, zeros(source), **where) if needs[0] else None,
        ops.as_strided(g, **where) if needs[1] else None,
    )


def _flip_vjp(grads: Any, inputs: Any, outs: Any, needs: Any, *, dims: tuple[int, ...]) -> Any:
    return (ops.flip(grads[0], dims=dims),)


def _pad_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any,
    *, low: Shape, high: Shape, interior: tuple[int, ...], value: float,
) -> Any:
    (g,) = grads
    stops = tuple(size - h for size, h in zip(g.type.shape, high, strict=True))
    return (ops.slice(g, starts=low, stops=stops, steps=tuple(i + 1 for i in interior)),)


def _concat_vjp(grads: Any, inputs: Any, outs: Any, needs: Any, *, dim: int) -> Any:
    (g,) = grads
    shape = g.type.shape
    results: list[Any] = []
    start: Size = 0
    for x, needed in zip(inputs, needs, strict=True):
        stop = start + x.type.shape[dim]
        if needed:
            starts = tuple(start if i == dim else 0 for i in range(len(shape)))
            stops = tuple(stop if i == dim else size for i, size in enumerate(shape))
            results.append(ops.slice(g, starts=starts, stops=stops, steps=(1,) * len(shape)))
        else:
            results.append(None)
        start = stop
    return results


# --- records ---------------------------------------------------------------------------------


def _movement(
    name: str,
    infer: TypeRule,
    vjp: Callable[..., Any],
    attrs: tuple[str, ...],
    doc: str,
    *,
    arity: int | None = 1,
    view: bool = False,
    in_its_order: bool = False,
    keeps_channels: str = "",
) -> None:
    rule: VjpRule = vjp
    register(Op(
        name, "movement", infer, rule, arity=arity, attrs=attrs, view=view, doc=doc,
        in_its_order=in_its_order, keeps_channels=keeps_channels, cost=LIGHT, rounding=EXACT,
        takes_complex=True,
    ))


_SLICE = ("starts", "stops", "steps")
_STRIDED = ("size", "stride", "offset")

_movement(
    "reshape", _reshape_type, _reshape_vjp, ("shape",),
    "The elements in order with another shape; a view where the strides allow.", view=True,
)
_movement(
    "permute", _permute_type, _permute_vjp, ("dims",), "Result dim i is x's dim dims[i].",
    view=True,
)
_movement(
    "expand", _expand_type, _expand_vjp, ("shape",),
    "Dims of size 1 repeated to `shape`, which may have further dims in front.", view=True,
)
_movement(
    "slice", _slice_type, _slice_vjp, _SLICE,
    "x[start:stop:step] in every dim; 0 <= start <= stop <= size, step > 0.", view=True,
)
_movement(
    "as_strided", _as_strided_type, _as_strided_vjp, _STRIDED,
    "Element i is x's flat element offset + sum(i * stride); x counts as contiguous.", view=True,
)
_movement(
    "flip", _flip_type, _flip_vjp, ("dims",), "x with the order along `dims` reversed.",
    in_its_order=True,
)
_movement(
    "pad", _pad_type, _pad_vjp, ("low", "high", "interior", "value"),
    "`value` put before, after and between the elements of each dim; no negative amounts.",
    keeps_channels="first",
)
_movement(
    "concat", _concat_type, _concat_vjp, ("dim",), "The inputs one after another along `dim`.",
    arity=None, keeps_channels="all",
)
_movement(
    "slice_update", _slice_update_type, _slice_update_vjp, _SLICE,
    "x with x[start:stop:step] replaced by src.", arity=2,
)
_movement(
    "as_strided_update", _as_strided_update_type, _as_strided_update_vjp, _STRIDED,
    "x with the elements of its as_strided view replaced by src; the last of overlaps wins.",
    arity=2,
)
