"""Calls as in PyTorch's first releases, which it still takes, and rarer ones of today's."""

from tests.parity.records import case, fixed, integers, real

case("add with a factor first", lambda t, x, y: (
    t.add(x, 2, y), x.add(-0.5, y), x.clone().add_(-0.1, y), t.sub(x, 2, y), x.sub(3, y),
    x.clone().sub_(0.5, y), x.add(3, 2)), real(3, 4), real(3, 4))
case("addcmul and addcdiv with a value first", lambda t, x, y: (
    x.addcmul(0.5, y, y), x.clone().addcmul_(-0.5, y, x), t.addcdiv(x, 2, x, y.abs() + 1),
    x.clone().addcdiv_(-0.1, x, y.abs() + 1)), real(3, 4), real(3, 4))
case("scaled products with numbers first", lambda t, x, a, b: (
    t.addmm(2, x, 3, a, b), t.addmm(2, x, a, b), x.addmm(2, 3, a, b), x.addmm(2, a, b),
    x.clone().addmm_(0.5, 2, a, b), t.addmv(2, x[0], 3, b.t(), a[0]),
    t.addr(2, x, 3, a[:, 0], b[0]),
    t.baddbmm(2, x[None], 3, a[None], b[None]), t.addbmm(2, x, 3, a[None], b[None])),
    real(3, 4), real(3, 2), real(2, 4))
case("out= gives new tensors their dtype", lambda t: (
    t.ones(3, out=t.zeros(3, dtype=t.bool)), t.zeros(2, out=t.ones(2, dtype=t.int64)),
    t.full((2,), 3.5, out=t.zeros(2, dtype=t.int64)), t.full((2,), 3, out=t.zeros(2)),
    t.full((2,), t.tensor(2.0), out=t.zeros(2))), grad=False)
case("copy_ of a number", lambda t, x: (
    x.clone().copy_(3), x.clone().copy_(2.5), x.clone().copy_(True)), real(3), grad=False,
     dtypes=("float32", "int64", "bool", "float16"))
case("nan_to_num of None", lambda t, x: x.nan_to_num(None, 3.0, None),
     fixed([1.0, float("nan"), float("inf"), -float("inf")]))
case("a remainder of 0 has the dividend's sign", lambda t, x, y: t.atan2(x % y, x % y),
     fixed([-1.5, 1.5, -0.0, 0.0, 3.0, -3.0]), fixed([1.5, -1.5, 1.0, -1.0, 1.5, 1.5]),
     dtypes=("float32", "float64", "float16", "bfloat16"), grad=False)
case("topk of no rows", lambda t, x: (x.topk(3), x.topk(1)), real(0, 40), grad=False)
case("cumulative_trapezoid of nothing", lambda t, x: t.cumulative_trapezoid(x, dim=1), real(2, 0),
     grad=False)
case("nuclear_norm with keepdim second", lambda t, x: t.nuclear_norm(x, True), real(3, 2))
case("map_", lambda t, x, y: x.clone().map_(y, lambda a, b: a + 2 * b), real(2, 3), real(3),
     grad=False, segments="map_()")
case("positions lie column by column", lambda t, x: (t.nonzero(x), t.argwhere(x)),
     integers(3, 4, low=0, high=2), dtypes=("int64",), grad=False, segments="nonzero()",
     strides=True)
case("names of functions that write", lambda t, x: (
    t.fix_(x.clone()), t.ldexp_(x.clone(), t.tensor(2)), t.get_device(x)), real(4), grad=False)
