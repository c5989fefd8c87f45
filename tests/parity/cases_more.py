"""The less common functions."""

import math

import numpy as np

from tests.parity.records import NUMBERS, SPECIAL, bools, case, fixed, integers, positive, real

_HOST = "computed on the host"

case("signbit", lambda t, x: (t.signbit(x), x.isposinf(), x.isneginf(), t.isreal(x)), SPECIAL,
     grad=False)
case("sgn", lambda t, x: (t.sgn(x), x.positive(), t.real(x)), real(4))
case("angle", lambda t, x: (t.angle(x), x.angle()), real(5), grad=False)
case("ldexp", lambda t, x, n: t.ldexp(x, n), real(4), integers(4), grad=False)
case("ldexp of what is small and large", lambda t, x: (
    t.ldexp(x, t.tensor([600, -600, 140, -149, -151, 2**31 - 1, 1, 0])), t.ldexp(x, t.tensor(3)),
    t.ldexp(x.double(), t.tensor(-1080)), t.ldexp(x.half(), t.tensor([-20] * 8)),
    t.ldexp(t.tensor([1, 2]), t.tensor([3, -1]))),
    fixed([0.0, np.inf, 1e-42, 1.0, 3.0, np.nan, -0.0, 2.0]), grad=False)
case("frexp", lambda t, x: t.frexp(x), real(6), grad=False, segments=_HOST)
case("frexp of what is small", lambda t, x: (t.frexp(x), t.frexp(x.double() * 1e-270),
                                             t.frexp(x.half() * 6e-8)),
     fixed([1e-42, -1e-40, 2.0**-149, 1.0, 0.0, -0.0, np.inf, np.nan, 3e38]), grad=False,
     segments=_HOST)
case("fake_quantize_per_tensor_affine", lambda t, x: (
    t.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7),
    t.fake_quantize_per_tensor_affine(x, 0.1, 3, -8, 7),
    t.fake_quantize_per_tensor_affine(x, t.tensor(0.1), t.tensor(2, dtype=t.int32), 0, 255)),
    fixed([0.049, 0.05, 0.15, -0.05, 1.0, -1.0, 100.0, -100.0, 0.0, -0.0, np.inf, -np.inf, np.nan]))
case("fake_quantize_per_channel_affine", lambda t, x: (
    t.fake_quantize_per_channel_affine(
        x, t.tensor([0.1, 0.2, 0.3]), t.tensor([0, 1, 2], dtype=t.int32), 0, 0, 15),
    t.fake_quantize_per_channel_affine(x, t.ones(4) * 0.3, t.zeros(4, dtype=t.int32), 1, -8, 7)),
    real(3, 4))
case("keywords", lambda t, x: (
    t.reshape(input=x, shape=(4, 3)), x.reshape(shape=(2, 6)), x.view(size=(12,)),
    t.permute(x, dims=(1, 0)), x.flip(dims=(0,)), x.repeat(repeats=(2, 1)),
    x.expand(size=(2, 3, 4)),
    x.split(split_size=2), x.tensor_split(sections=2), t.sum(input=x, dim=0), x.sum(axis=1),
    t.cat(tensors=[x, x], dim=0), t.transpose(input=x, dim0=0, dim1=1), x.unsqueeze(dim=0),
    t.clamp(input=x, min=0), t.where(condition=x > 0, input=x, other=x * 2), x.add(other=1),
    t.max(input=x, dim=1), t.matmul(input=x, other=x.T), t.flatten(x, start_dim=0),
    t.gather(input=x, dim=1, index=t.zeros(3, 1, dtype=t.int64)), x.chunk(chunks=2, dim=1)),
    real(3, 4))
case("gcd lcm", lambda t, a, b: (t.gcd(a, b), a.lcm(b)), integers(9, low=-9, high=9),
     integers(9, high=9), grad=False, segments=_HOST)
case("nextafter", lambda t, x, y: t.nextafter(x, y), real(5), real(5), grad=False,
     segments=_HOST)
case("logaddexp2", lambda t, x, y: t.logaddexp2(x, y), real(5), real(5))
case("renorm", lambda t, x: t.renorm(x, 2, 0, 1.0), real(3, 4), grad=False)
case("cov", lambda t, x: (t.cov(x), x.corrcoef(), t.cov(x[0]), t.cov(x, correction=0)), real(3, 5))
case("combinations", lambda t, x: (t.combinations(x), t.combinations(x, 3),
                                   t.combinations(x, 2, with_replacement=True)), real(4))
case("vander", lambda t, x: (t.vander(x), t.vander(x, 3, increasing=True)), real(4), grad=False)
case("hsplit", lambda t, x: (x.hsplit(2), t.vsplit(x, [1]), t.hsplit(x[0], 2), x[None].dsplit(2)),
     real(2, 4))
case("broadcast_shapes", lambda t: (t.broadcast_shapes((2, 1), (3,)), t.broadcast_shapes((1,), 4)),
     grad=False)
case("unravel_index", lambda t, i: t.unravel_index(i, (3, 4)), integers(5, high=12), grad=False)
case("sum_to_size", lambda t, x: (x.sum_to_size(1, 4), x.sum_to_size(4), x.sum_to_size(3, 4)),
     real(3, 4))
case("cumulative_trapezoid", lambda t, y, x: (t.cumulative_trapezoid(y),
                                              t.cumulative_trapezoid(y, x)), real(3, 4), real(4))
case("windows", lambda t: (t.hann_window(8), t.hann_window(7, periodic=False), t.hamming_window(6),
                           t.blackman_window(5), t.bartlett_window(6), t.kaiser_window(6),
                           t.hann_window(1), t.hann_window(0), t.kaiser_window(5, True, 4.0),
                           t.hann_window(4, dtype=t.float64)), grad=False)
case("more creation", lambda t: (t.scalar_tensor(2), t.scalar_tensor(1.5, dtype=t.float64),
                                 t.frombuffer(bytearray(b"\1\0\0\0\2\0\0\0"), dtype=t.int32)),
     grad=False)
case("empty_strided", lambda t: (t.empty_strided((2, 3), (1, 2)).stride(),
                                 t.empty_strided((2, 3), (1, 2)).shape), grad=False)
case("new", lambda t, x: (x.new([1, 2]), x.new(2, 3).shape, x.new_empty(3).shape), real(2),
     grad=False)
case("fill", lambda t, x: (t.fill(x, 3), t.zero_(x.clone()), t.relu_(x.clone() * 1)), real(4),
     grad=False)
case("in-place functions", lambda t, x: [
    getattr(t, n)(x.clone()) for n in "abs_ exp_ sin_ neg_ sigmoid_ tanh_ floor_ square_".split()
], real(4), grad=False)
case("foreach", lambda t, x, y: (
    t._foreach_add([x, y], 2), t._foreach_mul([x, y], [2.0, 3.0]), t._foreach_sqrt([x, y]),
    t._foreach_add([x, y], [y, x], alpha=2), t._foreach_addcmul([x], [y], [y], value=0.5),
    t._foreach_norm([x, y]), t._foreach_neg([x])), positive(3), positive(3))
case("foreach, of other kinds", lambda t, x, y: (
    t._foreach_maximum([x, y], 1.5), t._foreach_minimum([x, y], [1.0, 2.0]),
    t._foreach_maximum([x], [y]), t._foreach_clone([x, y]), t._foreach_max([x, y]),
    t._foreach_mm([x.outer(y)], [y.outer(x)]), t._foreach_cosh([x]),
    t._foreach_frac([y])), positive(3), positive(3))

def _foreach_(t, x, y):  # type: ignore[no-untyped-def]
    xs = [x * 1, y * 1]
    t._foreach_mul_(xs, 0.5)
    t._foreach_add_(xs, [y, x], alpha=3)
    t._foreach_addcdiv_(xs, [y, x], [x, y], value=-0.1)
    t._foreach_lerp_(xs, [y, x], 0.2)
    t._foreach_addcmul_(xs, [y, x], [x, y], [0.5, 2.0])
    given = t._foreach_add_(xs, 1)
    return t._foreach_sqrt_(xs), given is xs


case("foreach in place", _foreach_, positive(3), positive(3))


def _foreach_bounds(t, x, y):  # type: ignore[no-untyped-def]
    xs = [x * 1, y * 1]
    t._foreach_maximum_(xs, [0.5, 1.0])
    t._foreach_minimum_(xs, [y, x])
    return xs, t._foreach_powsum([x, -y], 3)


case("foreach without gradients", _foreach_bounds, positive(3), positive(3), grad=False)
case("apply_", lambda t, x: x.clone().apply_(lambda v: v * 2), real(4), grad=False,
     segments="runs Python on each element")
case("resize_", lambda t, x: (x.clone().resize_(2, 2), x.clone().resize_(4)), real(6), grad=False,
     segments="changes the tensor itself")
case("set_", lambda t, x: t.zeros(1).set_(x * 2), real(3), grad=False, segments="changes storage")
case("t_", lambda t, x: (x.clone().t_(), x.clone().unsqueeze_(0), x[None].clone().squeeze_(),
                         x.clone().transpose_(0, 1)), real(2, 3), grad=False)
case("storage", lambda t, x: (x.untyped_storage().nbytes(), len(x[1:].untyped_storage()),
                              x.data_ptr() == x.view(-1).untyped_storage().data_ptr()),
     real(2, 3), grad=False, segments="asks for memory")
case("dlpack", lambda t, x: (t.from_dlpack(x), np.from_dlpack(x).sum().item()), integers(2, 3),
     grad=False, segments="asks for memory")
case("reversed", lambda t, x: list(reversed(x)), real(3))
case("xlogy_", lambda t, x, y: (x * 1).xlogy_(y), positive(3), positive(3))
case("isfinite of empty", lambda t: (t.zeros(0).isfinite().all(), t.zeros(0).sum()), grad=False)
case("typename", lambda t, x: (t.typename(x), x.type()), real(1), grad=False)
case("maximum of numbers", lambda t, x: (t.max(x, t.tensor(0.5)), x.min(t.tensor(0.5))), real(4))
case("einsum numbers", lambda t, x: t.einsum("...ij->...ji", x), real(2, 3, 4))
case("long chain", lambda t, x: (
    ((x.exp().log1p() + 1).rsqrt() * x.sigmoid()).cumsum(-1).softmax(-1)), real(3, 4),
    dtypes=("float32", "float64"))
case("bool mean through float", lambda t, m: m.float().mean(), bools(9), grad=False)
case("nan handling", lambda t, x: (x.nansum(), x.nan_to_num(nan=1.0), x.isnan().any(), x.max(),
                                   x.sort()[0]), fixed([1.0, math.nan, 3.0]), grad=False)
case("int reductions", lambda t, x: (x.sum(), x.prod(), x.max(), x.float().mean(), x.cumsum(0)),
     integers(5, low=1, high=5), dtypes=("int64",), grad=False)
case("uint8 arithmetic", lambda t, x: (x - 5, x * 3, x // 2, x % 7, -x, ~x, x << 1, x & 3),
     integers(9, high=255, dtype="uint8"), grad=False)
case("number types", lambda t, x: (x + np.float64(1.5), x * np.int64(2), x / np.float32(3)),
     real(3), dtypes=NUMBERS, grad=False)

# --- sizes taken from tensors, symbolic in test_symbolic.py ---------------------------------------

case("sizes in shapes", lambda t, x: (
    x.view(x.shape[0], -1), x.reshape(x.size(0) * x.size(1), -1), t.zeros(x.shape) + x,
    x.new_zeros(x.size(0), 2), t.full((x.shape[0],), 2.0), t.ones(x.size()), x.flatten(1),
    t.zeros_like(x) + 1, x.transpose(0, 1).contiguous().view(x.shape[1], -1),
    x.expand(2, *x.shape), x.unsqueeze(1).repeat(1, x.shape[0], 1, 1),
    x.view(*x.shape[:-1], x.shape[-1] // 2, 2)), real(2, 3, 4))
case("sizes in numbers", lambda t, x: (
    x / x.shape[0], x * x.size(1), x.sum() / x.numel(), x ** x.dim(), x - x.shape[-1] ** 0.5,
    x.sum(0) / (x.shape[0] - 1), t.arange(x.size(1)), t.arange(x.shape[0]) * x.shape[1],
    t.arange(0, x.size(1), 2), t.linspace(0, 1, x.size(0)), t.eye(x.size(1))), real(4, 5))
case("sizes in slices", lambda t, x: (
    x[:, : x.shape[1] // 2], x[x.shape[0] - 1], x[:, -x.shape[0]:], x[..., : x.size(1) - 1],
    x.narrow(1, 0, x.shape[1] - 1), x.split(x.shape[1] // 2, dim=1), x.chunk(2, dim=1),
    x[: x.shape[0] // 2].mean(), x.select(1, x.shape[1] - 1)), real(4, 6))
case("causal mask", lambda t, x: (
    x.masked_fill(t.tril(t.ones(x.shape[1], x.shape[1])) == 0, float("-inf")).softmax(-1),
    x.masked_fill(t.triu(t.ones(x.size(1), x.size(1), dtype=t.bool), 1), -1e9).softmax(-1),
    x + t.full((x.shape[1], x.shape[1]), float("-inf")).triu(1)), real(2, 5, 5), grad=False)
case("attention", lambda t, q, k, v: (
    (q @ k.transpose(-2, -1) / q.size(-1) ** 0.5).softmax(-1) @ v,
    t.einsum("bqd,bkd->bqk", q, k).softmax(-1)), real(2, 3, 4), real(2, 5, 4), real(2, 5, 6))
case("heads", lambda t, x: (
    x.view(x.size(0), x.size(1), 2, x.size(2) // 2).transpose(1, 2),
    x.view(x.size(0), x.size(1), 2, -1).permute(2, 0, 1, 3).reshape(2 * x.size(0), x.size(1), -1),
    x.transpose(1, 2).contiguous().view(x.size(0), -1)), real(2, 3, 4))
case("layer norm by hand", lambda t, x, w, b: (
    (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt() * w
    + b), real(2, 3, 4), real(4), real(4))
case("one-hot by hand", lambda t, i: (
    t.zeros(i.shape[0], 4).scatter_(1, i.unsqueeze(1), 1.0), t.eye(4)[i],
    (i[:, None] == t.arange(4)).float()), integers(5, high=4), grad=False)
case("cross entropy by hand", lambda t, x, i: (
    -x.log_softmax(1).gather(1, i[:, None]).mean(),
    -x.log_softmax(1)[t.arange(x.shape[0]), i].mean(),
    (x.argmax(1) == i).float().mean()), real(5, 3), integers(5, high=3))
case("positions", lambda t, x: (
    t.arange(x.size(1)).unsqueeze(0).expand(x.size(0), -1) + 0,
    (t.arange(x.size(1)).float()[:, None] * t.exp(t.arange(0, 4, 2) * -0.5)).sin()), real(2, 3),
    grad=False)
case("running statistics", lambda t, x: (
    t.zeros(x.shape[1]).mul_(0.9).add_(x.mean(0).detach(), alpha=0.1),
    t.ones(x.shape[1]).lerp_(x.var(0).detach(), 0.1)), real(4, 3), grad=False)
case("dims of 1 kept apart", lambda t, x: (x.squeeze(0), x.squeeze(), x.mean(1, keepdim=True)),
     real(1, 3, 1))
# LLVM folds 0 / where(x == 0, 1, y) of constant vectors to 0 / y
case("angles of constants", lambda t, x: x + t.atan2(t.arange(9.0), t.arange(9.0)), real(9))
