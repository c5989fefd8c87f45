"""Contractions: general matrix products, and convolution with its two gradients.

conv, conv_input_grad and conv_weight_grad are bilinear in three tensors x, w, g; each one's
gradients are the other two, so that they differentiate to any order.

Of float32 numbers, `tf32=True` (what is not said is False) lets a machine that gains from it round
what is multiplied to TF32, a float of 10 bits: their sums stay float32. Gradients have it, too.
"""

from __future__ import annotations

from typing import Any

from ..dim import DimEnv, Size
from ..op import Attrs, Op, register
from ..rounding import LINEAR
from ..types import Shape, TensorType, Type
from ._rules import ops, permute
from ._types import (
    FLOATS,
    RING,
    Types,
    fail,
    merge_sizes,
    require_dims,
    require_dtype,
    require_length,
    require_one_dtype,
    same_shape,
    sizes_text,
)

Dims = tuple[int, ...]
_TF32 = frozenset({"tf32"})

# --- dot_general -----------------------------------------------------------------------------


def _rest(rank: int, *taken: Dims) -> Dims:
    """The dims that none of `taken` names, ascending."""
    return tuple(d for d in range(rank) if not any(d in dims for dims in taken))


def _mismatch(a: TensorType, b: TensorType, contract_a: Dims, contract_b: Dims) -> str:
    if a.rank == b.rank == 2 and len(contract_a) == len(contract_b) == 1:
        rows, k = a.shape if contract_a == (1,) else a.shape[::-1]
        inner, columns = b.shape if contract_b == (0,) else b.shape[::-1]
        return f"mat1 and mat2 shapes cannot be multiplied ({rows}x{k} and {inner}x{columns})"
    return (
        f"dot_general: sizes of {sizes_text(a.shape)} along {contract_a} and of "
        f"{sizes_text(b.shape)} along {contract_b} must match"
    )


def _dot_general_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    a, b = types
    dtype = require_one_dtype("dot_general", types)
    require_dtype("dot_general", dtype, RING)
    batch_a, batch_b = attrs["batch_a"], attrs["batch_b"]
    contract_a, contract_b = attrs["contract_a"], attrs["contract_b"]
    require_dims("dot_general", batch_a + contract_a, a.rank)
    require_dims("dot_general", batch_b + contract_b, b.rank)
    if len(batch_a) != len(batch_b) or len(contract_a) != len(contract_b):
        fail("dot_general: a and b need as many batch and contracted dims as each other, got "
             f"{batch_a} {batch_b} and {contract_a} {contract_b}")
    shape: list[Size] = []
    for da, db in zip(batch_a, batch_b, strict=True):
        merged = merge_sizes(env, a.shape[da], b.shape[db])
        if merged is None:
            fail(_mismatch(a, b, batch_a, batch_b))
        shape.append(merged)
    for da, db in zip(contract_a, contract_b, strict=True):
        if not env.equal(a.shape[da], b.shape[db]):
            fail(_mismatch(a, b, contract_a, contract_b))
    shape += [a.shape[d] for d in _rest(a.rank, batch_a, contract_a)]
    shape += [b.shape[d] for d in _rest(b.rank, batch_b, contract_b)]
    return TensorType(dtype, tuple(shape))


def _operand_gradient(
    g: Any, other: Any, rank: int, mine: tuple[Dims, Dims], theirs: tuple[Dims, Dims],
    g_other: Dims, precision: Attrs,
) -> Any:
    """The gradient of the operand of `rank` dimensions with (batch, contract) dims `mine`.

    `other` is the other operand, with dims `theirs`; its free dims are `g_other` of g.
    """
    (batch, contract), (other_batch, other_contract) = mine, theirs
    free = _rest(rank, batch, contract)
    other_free = _rest(len(other.type.shape), other_batch, other_contract)
    g_batch = tuple(range(len(batch)))
    # what is left of `other` is its contracted dims, ascending: the partners of these of mine
    partners = [contract[other_contract.index(d)] for d in sorted(other_contract)]
    order = [*batch, *free, *partners]  # my dim at each place of dot(g, other)
    swapped = [*batch, *partners, *free]  # ... of dot(other, g)
    if order != sorted(order) and swapped == sorted(swapped):
        return ops.dot_general(
            other, g, batch_a=other_batch, batch_b=g_batch, contract_a=other_free,
            contract_b=g_other, **precision,
        )
    product = ops.dot_general(
        g, other, batch_a=g_batch, batch_b=other_batch, contract_a=g_other,
        contract_b=other_free, **precision,
    )
    return permute(product, [order.index(d) for d in range(rank)])


def _dot_general_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any,
    *, batch_a: Dims, batch_b: Dims, contract_a: Dims, contract_b: Dims, **precision: Any,
) -> Any:
    (g,), (a, b) = grads, inputs
    rank_a, rank_b = len(a.type.shape), len(b.type.shape)
    of_a, of_b = (batch_a, contract_a), (batch_b, contract_b)
    first_b = rank_a - len(contract_a)  # g is batch, free a, free b
    g_a = tuple(range(len(batch_a), first_b))
    g_b = tuple(range(first_b, len(g.type.shape)))
    return (
        _operand_gradient(g, b, rank_a, of_a, of_b, g_b, precision) if needs[0] else None,
        _operand_gradient(g, a, rank_b, of_b, of_a, g_a, precision) if needs[1] else None,
    )


register(
    Op(
        "dot_general", "contract", _dot_general_type, _dot_general_vjp, arity=2,
        attrs=("batch_a", "batch_b", "contract_a", "contract_b"), optional=_TF32,
        domain=(-2.0, 2.0), cost=None, rounding=LINEAR, takes_complex=True,
        doc="Sum of products over the contracted dims; result is batch, free a, free b.",
    )
)

# --- convolution -----------------------------------------------------------------------------

_WINDOW = ("stride", "pad_low", "pad_high", "dilation")


def require_window(name: str, attrs: Attrs, spatial: int) -> None:
    """Raise unless the window attributes fit `spatial` dimensions."""
    for attribute in _WINDOW:
        value = attrs[attribute]
        require_length(name, attribute, value, spatial)
        least = 1 if attribute in ("stride", "dilation") else 0
        if any(v < least for v in value):
            word = "negative padding" if least == 0 else f"non-positive {attribute}"
            fail(f"{name}: {word} is not supported, got {value}")


def window_counts(sizes: Shape, window: Shape, attrs: Attrs, env: DimEnv) -> Shape | None:
    """How many positions a window has along each of `sizes`; None where it does not fit."""
    out: list[Size] = []
    for size, k, s, low, high, d in zip(
        sizes, window, *(attrs[attribute] for attribute in _WINDOW), strict=True
    ):
        span, padded = (k - 1) * d + 1, size + (low + high)
        if not env.at_most(span, padded):
            return None
        out.append((padded - span) // s + 1)
    return tuple(out)


def conv_output_shape(sizes: Shape, window: Shape, attrs: Attrs, env: DimEnv) -> Shape:
    """The spatial sizes of a convolution's result. Raises where the kernel does not fit."""
    out = window_counts(sizes, window, attrs, env)
    if out is None:
        pads = zip(sizes, attrs["pad_low"], attrs["pad_high"], strict=True)
        have = " x ".join(str(n + low + high) for n, low, high in pads)
        spans = ((k - 1) * d + 1 for k, d in zip(window, attrs["dilation"], strict=True))
        want = " x ".join(map(str, spans))
        fail(f"Calculated padded input size per channel: ({have}). Kernel size: ({want}). "
             "Kernel size can't be greater than actual input size")
    return out


def _conv_result(x: Shape, w: Shape, attrs: Attrs, env: DimEnv, name: str = "conv") -> Shape:
    """The shape of conv of shapes x [N,C,*S] and w [O,C/groups,*K]."""
    groups: int = attrs["groups"]
    if len(x) != len(w) or not 3 <= len(x) <= 5:
        fail(f"{name}: Expected input [N, C, *S] and weight [O, C/groups, *K] with 1 to 3 spatial "
             f"dims, got {sizes_text(x)} and {sizes_text(w)}")
    require_window(name, attrs, len(x) - 2)
    if groups < 1:
        fail(f"{name}: non-positive groups is not supported, got {groups}")
    if not env.equal(w[1] * groups, x[1]):
        fail(
            f"Given groups={groups}, weight of size {sizes_text(w)}, expected "
            f"input{sizes_text(x)} to have {w[1] * groups} channels, "
            f"but got {x[1]} channels instead"
        )
    if not env.divides(groups, w[0]):
        fail(f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, "
             f"but got weight of size {sizes_text(w)} instead")
    return (x[0], w[0], *conv_output_shape(x[2:], w[2:], attrs, env))


def _require_conv_gradient(
    name: str, g: TensorType, x: Shape, w: Shape, attrs: Attrs, env: DimEnv
) -> None:
    expected = _conv_result(x, w, attrs, env, name)
    if not same_shape(env, g.shape, expected):
        fail(f"{name}: expected a gradient of shape {sizes_text(expected)}, "
             f"got {sizes_text(g.shape)}")


def _conv_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    x, w = types
    require_dtype("conv", require_one_dtype("conv", types), FLOATS)
    return TensorType(x.dtype, _conv_result(x.shape, w.shape, attrs, env))


def _conv_input_grad_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    g, w = types
    require_dtype("conv_input_grad", require_one_dtype("conv_input_grad", types), FLOATS)
    _require_conv_gradient("conv_input_grad", g, attrs["input_shape"], w.shape, attrs, env)
    return TensorType(g.dtype, attrs["input_shape"])


def _conv_weight_grad_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    x, g = types
    require_dtype("conv_weight_grad", require_one_dtype("conv_weight_grad", types), FLOATS)
    _require_conv_gradient("conv_weight_grad", g, x.shape, attrs["weight_shape"], attrs, env)
    return TensorType(x.dtype, attrs["weight_shape"])


def _conv_vjp(grads: Any, inputs: Any, outs: Any, needs: Any, **window: Any) -> Any:
    (g,), (x, w) = grads, inputs
    return (
        ops.conv_input_grad(g, w, input_shape=x.type.shape, **window) if needs[0] else None,
        ops.conv_weight_grad(x, g, weight_shape=w.type.shape, **window) if needs[1] else None,
    )


def _conv_input_grad_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, input_shape: Shape, **window: Any
) -> Any:
    (x,), (g, w) = grads, inputs
    return (
        ops.conv(x, w, **window) if needs[0] else None,
        ops.conv_weight_grad(x, g, weight_shape=w.type.shape, **window) if needs[1] else None,
    )


def _conv_weight_grad_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, weight_shape: Shape, **window: Any
) -> Any:
    (w,), (x, g) = grads, inputs
    return (
        ops.conv_input_grad(g, w, input_shape=x.type.shape, **window) if needs[0] else None,
        ops.conv(x, w, **window) if needs[1] else None,
    )


register(
    Op(
        "conv", "contract", _conv_type, _conv_vjp, arity=2, attrs=(*_WINDOW, "groups"),
        keeps_channels="any",
        optional=_TF32, domain=(-2.0, 2.0),
        cost=None, rounding=LINEAR, takes_complex=False,
        doc="Cross-correlation of x [N,C,*S] with w [O,C/groups,*K], 1 to 3 spatial dims.",
    )
)
register(
    Op(
        "conv_input_grad", "contract", _conv_input_grad_type, _conv_input_grad_vjp, arity=2,
        attrs=("input_shape", *_WINDOW, "groups"), optional=_TF32, domain=(-2.0, 2.0),
        keeps_channels="any",
        cost=None, rounding=LINEAR, takes_complex=False,
        doc="conv's gradient for x, from g and w; the transposed convolution.",
    )
)
register(
    Op(
        "conv_weight_grad", "contract", _conv_weight_grad_type, _conv_weight_grad_vjp, arity=2,
        attrs=("weight_shape", *_WINDOW, "groups"), optional=_TF32, domain=(-2.0, 2.0),
        cost=None, rounding=LINEAR, takes_complex=False,
        doc="conv's gradient for w, from x and g.",
    )
)
