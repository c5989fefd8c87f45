"""What torch's operator database found wrong once."""

from tests.parity.records import case, fixed, integers, positive, real

_HOST = "computed on the host"

case("complex of rows", lambda t, x, y: (
    t.view_as_real(t.complex(x.t(), y.t())), t.view_as_real(t.polar(x.t(), y.t())),
    t.complex(x[:0], y[:0]).shape), positive(3, 4), real(3, 4))
case("float_power of complex", lambda t, x: t.view_as_real(
    t.float_power(t.complex(x, x + 3), 2)), real(4), grad=False)
case("sum_to_size of bools", lambda t, x: (
    x.sum_to_size(()), x.sum_to_size(4), x.sum_to_size(3, 4)), real(3, 4),
    dtypes=("bool", "int32", "float32"), grad=False)
case("ranges into out", lambda t: (
    t.arange(5, out=t.empty(5, dtype=t.int32)), t.linspace(0, 1, 3, out=t.empty(3).double()),
    t.logspace(0, 2, 3, out=t.empty(3)), t.eye(2, out=t.empty(2, 2, dtype=t.int64)),
    t.arange(3, out=t.zeros(3))), grad=False)
case("as_strided of a part", lambda t, x: (
    x[5:].detach().as_strided((2, 2), (1, 2), 0), x[2:8].detach().as_strided((2,), (1,), 7),
    x[5:].detach().as_strided((2, 2), (1, 2))), real(10), grad=False, segments="asks for memory")
case("cat keeps rows", lambda t, x: t.cat([x.t(), x.t()]).view(-1), real(3, 4))
case("addbmm of ints", lambda t, x, a, b: t.addbmm(x, a, b), real(2, 2), real(3, 2, 4),
     real(3, 4, 2), dtypes=("int32", "int64", "float32"), grad=False)
case("addr without the input", lambda t, x, a, b: t.addr(x, a, b, beta=0),
     fixed([[float("nan")] * 2] * 2), real(2), real(2), grad=False)
case("gather nothing", lambda t, x: t.gather(x, 0, t.empty(2, 0, dtype=t.uint8)).shape, real(5),
     grad=False)
case("nextafter gradient", lambda t, x, y: t.nextafter(x, y), real(4), real(4), segments=_HOST)
case("aminmax into out", lambda t, x: t.aminmax(x, dim=0, out=(t.empty(4), t.empty(4))),
     real(3, 4), grad=False)
case("histc order", lambda t, x: t.histc(x, 7, -1.0, 2.0), real(40), grad=False,
     segments=_HOST)
case("rounded quotients", lambda t, x, y: t.div(x, y, rounding_mode="trunc"), real(50),
     positive(50, high=0.5), dtypes=("float32", "float16", "bfloat16"), grad=False)
case("matrix_exp of halves", lambda t, x: t.matrix_exp(x * 0.3), real(3, 3), dtypes=("float32",))
case("cov in the weights' dtype", lambda t, x, w: t.cov(x, aweights=w), real(3, 5), positive(5),
     grad=False)
case("native norms", lambda t, x, w, b: (
    t.native_layer_norm(x, (4,), w, b, 1e-5),
    t.native_group_norm(x, None, None, 3, 4, 1, 2, 1e-5),
    t.native_batch_norm(x, w, b, t.zeros(4), t.ones(4), True, 0.1, 1e-5),
    t.native_batch_norm(x, w, b, t.zeros(4), t.ones(4), False, 0.1, 1e-5)),
    real(3, 4), real(4), real(4), grad=False)  # torch drops the statistics' gradients
case("low rank", lambda t, x, y: (
    t.svd_lowrank(x @ y, 2, niter=3)[1], t.pca_lowrank(x @ y, 2, niter=3)[1]),
    real(7, 2), real(2, 5), grad=False)
case("grid_sampler", lambda t, x, g: t.grid_sampler(x, g, 0, 1, True), real(1, 2, 4, 4),
     real(1, 3, 3, 2, low=-0.9, high=0.9))
case("max_pool2d backward", lambda t, x: t.ops.aten.max_pool2d_with_indices_backward(
    t.ones(1, 2, 2), x, (2, 2), (2, 2), (0, 0), (1, 1), False,
    t.nn.functional.max_pool2d(x, 2, return_indices=True)[1]), real(1, 4, 4), grad=False)
case("aten slice", lambda t, x: t.ops.aten.slice(x, 1, 1, -1, 2), real(3, 6))
case("aten in place, views and copies", lambda t, x: (
    t.ops.aten.add_.Tensor(x.clone(), x, alpha=2), t.ops.aten.alias.default(x) * 2,
    t.ops.aten._to_copy.default(x, dtype=t.float64) + 1, t.ops.aten.mul_(x.clone(), 3.0)),
    real(3, 6))
case("index_add of a slice", lambda t, x, i, s: x.index_add(1, i, s), real(2, 4),
     integers(3, high=4), real(2, 3))
case("logcumsumexp of complex", lambda t, x, y: t.view_as_real(
    t.complex(x, y).logcumsumexp(0)), real(6), real(6, high=6.0), grad=False)
case("out of the rest", lambda t, x, y: [
    t.logaddexp(x, y, out=t.empty(3)), t.xlogy(x, y, out=t.empty(3)), t.frac(x, out=t.empty(3)),
    t.where(x > 1, x, y, out=t.empty(3)), t.softmax(x, 0, out=t.empty(3)),
    t.diff(x, out=t.empty(2)), t.kron(x, y, out=t.empty(9)), t.signbit(x, out=t.empty(3).bool()),
    t.searchsorted(x, y, out=t.empty(3, dtype=t.int64)), t.clamp_min(x, 1, out=t.empty(3))],
    positive(3), positive(3), grad=False)
case("in place of the rest", lambda t, x, n: [
    x.clone().ldexp_(n), x.clone().nextafter_(x * 2), n.clone().gcd_(n * 2), n.clone().lcm_(n + 1),
    x[None].repeat(3, 1).addr_(x, x), t.zeros(2, 2).addbmm_(t.ones(3, 2, 4), t.ones(3, 4, 2))],
    real(3), integers(3, low=1, high=9), grad=False, segments=_HOST)
case("unsafe methods", lambda t, x: (x.unsafe_chunk(2), x.unsafe_split(2), x.narrow_copy(0, 1, 2)),
     real(4, 2))
case("products of mixed dtypes", lambda t, x, y: (
    t.addcmul(x.double(), y, x.half(), value=3), t.addcdiv(x, y.double(), x, value=0.5),
    t.addcdiv(x.bfloat16(), y.bfloat16(), x.bfloat16(), value=3.14)), positive(4), positive(4),
    grad=False)
case("numbers alone", lambda t: (t.mul(2, 3.0), t.mul(True, True), t.floor_divide(-7, 2),
                                 t.add(2, 3, alpha=2)), grad=False)
case("igamma of large numbers", lambda t, a, x: (t.igamma(a, x), t.igammac(a, x)),
     fixed([1e10, 1e20, 3e5, 3e5]), fixed([1e10, 1e20, 3.01e5, 2.99e5]), dtypes=("float64",),
     grad=False)
case("midpoint quantile", lambda t, x: (
    x.quantile(0.4, -1, interpolation="midpoint"), x.nanquantile(0.4, 0), t.cross(x, x + 1, 1)),
    real(4, 3))
case("old division", lambda t, x: x.__rdiv__(2.0), positive(4))
case("histogram density", lambda t, x: (
    t.histogram(x, t.tensor([-1.0, 0.0, 1.0]), density=True),
    t.histogram(x, 4, range=(-1, 1), weight=x * x, density=True),
    t.histogramdd(x.reshape(-1, 2), [3, 2], range=[-1, 1, -2, 2], density=True)), real(20),
    grad=False, segments=_HOST)
case("einsum of ints", lambda t, x: (
    t.einsum("ij->i", x), t.einsum("ij,ij->", x, x), t.einsum("ij,kl->i", x, x)), real(2, 3),
    dtypes=("int32", "int64"), grad=False)
case("lerp of doubles", lambda t, x, y: t.view_as_real(t.lerp(
    t.complex(x, y), t.complex(y, x), 0.7 + 0.2j)), real(4), real(4), dtypes=("float64",),
    grad=False)
