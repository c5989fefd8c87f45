"""Arithmetic, transcendentals, comparison, logic."""

from tests.parity.records import (
    ALL,
    FLOATS,
    HALVES,
    NUMBERS,
    SPECIAL,
    bools,
    case,
    fixed,
    integers,
    positive,
    real,
)

for _name in "exp exp2 expm1 sin cos tan atan sinh cosh tanh asinh erf erfc sigmoid sinc".split():
    case(_name, lambda t, x, n=_name: getattr(t, n)(x), real(3, 4), dtypes=(*ALL, *HALVES))
    case(f"{_name} special", lambda t, x, n=_name: getattr(t, n)(x), SPECIAL, grad=False)
for _name in "log log2 log10 log1p sqrt rsqrt reciprocal lgamma digamma".split():
    case(_name, lambda t, x, n=_name: getattr(t, n)(x), positive(3, 4), dtypes=(*FLOATS, "int64"))
    case(f"{_name} special", lambda t, x, n=_name: getattr(t, n)(x), SPECIAL, grad=False)
for _name in "asin acos atanh erfinv".split():
    case(_name, lambda t, x, n=_name: getattr(t, n)(x), real(3, 4, low=-0.9, high=0.9),
         dtypes=FLOATS)
case("acosh", lambda t, x: t.acosh(x + 1), positive(3, 4), dtypes=FLOATS)
case("logit", lambda t, x: t.logit(x), real(5, low=0.1, high=0.9))
case("logit edges", lambda t, x: (t.logit(x), t.logit(x, 0.0), t.logit(x, 0.6)),
     fixed([0.0, 1.0, -0.1, 1.1, 0.5, 0.75]))
case("logit eps", lambda t, x: t.logit(x, eps=0.2), real(9, low=0.0, high=1.0))
for _name in "abs sign neg square relu floor ceil trunc round".split():
    _kinds = tuple(d for d in (*ALL, *HALVES) if d != "bool" or _name in ("sign", "square"))
    _kinds = tuple(d for d in _kinds if not (_name == "neg" and d == "bool"))
    case(_name, lambda t, x, n=_name: getattr(t, n)(x), real(3, 4), dtypes=_kinds)
    case(f"{_name} special", lambda t, x, n=_name: getattr(t, n)(x), SPECIAL, grad=False)
case("round decimals", lambda t, x: t.round(x, decimals=2), real(7), grad=False)
case("frac", lambda t, x: t.frac(x), real(7))
for _name in "isnan isinf isfinite".split():
    case(_name, lambda t, x, n=_name: getattr(t, n)(x), SPECIAL, dtypes=(*FLOATS,), grad=False)
    case(f"{_name} int", lambda t, x, n=_name: getattr(t, n)(x), integers(4), grad=False)
case("bitwise_not", lambda t, x: ~x, integers(6, low=-4), grad=False)
case("bitwise_not bool", lambda t, x: ~x, bools(6), grad=False)

# --- two operands ------------------------------------------------------------------------------

case("add", lambda t, x, y: x + y, real(3, 4), real(4), dtypes=ALL)
case("add alpha", lambda t, x, y: t.add(x, y, alpha=2), real(3, 4), real(3, 4), dtypes=NUMBERS)
case("add number", lambda t, x: (x + 1, 2 + x, x + 1.5, x + True), real(3, 4), dtypes=ALL)
case("sub", lambda t, x, y: (x - y, x - 1, 1 - x), real(3, 1), real(1, 4), dtypes=NUMBERS)
case("sub alpha", lambda t, x, y: t.sub(x, y, alpha=0.5), real(3), real(3))
case("rsub", lambda t, x, y: t.rsub(x, y, alpha=2), real(3), real(3))
case("mul", lambda t, x, y: (x * y, x * 2, 2.5 * x), real(3, 4), real(4), dtypes=ALL)
case("div", lambda t, x, y: (x / y, x / 2, 3 / y), real(3, 4), positive(4), dtypes=(*ALL, *HALVES))
for _mode in ("floor", "trunc"):
    case(f"div {_mode}", lambda t, x, y, m=_mode: t.div(x, y, rounding_mode=m),
         real(20), positive(20), dtypes=NUMBERS)
case("floor_divide", lambda t, x, y: (x // y, x // 2), real(20), positive(20), dtypes=NUMBERS,
     grad=False)
case("remainder", lambda t, x, y: (x % y, x % 3, x % -2), real(20), positive(20), dtypes=NUMBERS)
case("fmod", lambda t, x, y: (t.fmod(x, y), t.fmod(x, 2)), real(20), positive(20), dtypes=NUMBERS)
case("pow tensor", lambda t, x, y: x**y, positive(3, 4), real(4), dtypes=FLOATS)
case("pow number", lambda t, x: (x**2, x**3, x**0.5, x**-1, x**0, t.pow(x, 2.5)), positive(5),
     dtypes=(*FLOATS, *HALVES))
case("pow negative base", lambda t, x: (x**2, x**3, x**2.0, x**1, x**-2), real(5))
case("pow int", lambda t, x, y: (x**y, x**2, x**3), real(5), integers(5), dtypes=("int64",),
     grad=False)
case("pow int float", lambda t, x: (x**0.5, x**2.0), positive(5), dtypes=("int64",), grad=False)
case("rpow", lambda t, x: (2**x, 2.5**x), real(5), dtypes=FLOATS)
case("pow at zero", lambda t, x: (x**2, x**1.5, x**0), fixed([0.0, 1.0, 2.0]))
case("pow zero base tensor", lambda t, x, y: x**y, fixed([0.0, 0.0, 1.0]), fixed([0.0, 2.0, 0.0]))
case("float_power", lambda t, x: t.float_power(x, 2), real(4), dtypes=NUMBERS, grad=False)
for _name in "maximum minimum fmax fmin".split():
    case(_name, lambda t, x, y, n=_name: getattr(t, n)(x, y), real(3, 4), real(4), dtypes=NUMBERS)
    case(f"{_name} ties", lambda t, x, y, n=_name: getattr(t, n)(x, y), fixed([1.0, 2.0, 3.0]),
         fixed([1.0, 3.0, 3.0]))
    case(f"{_name} nan", lambda t, x, y, n=_name: getattr(t, n)(x, y), SPECIAL,
         fixed([1.0] * 11 + [float("nan")]), grad=False)
for _name in "atan2 hypot copysign".split():
    case(_name, lambda t, x, y, n=_name: getattr(t, n)(x, y), real(3, 4), positive(4),
         dtypes=FLOATS)
for _name in "eq ne lt le gt ge".split():
    case(_name, lambda t, x, y, n=_name: (getattr(t, n)(x, y), getattr(x, n)(1)), real(3, 4),
         real(4), dtypes=ALL, grad=False)
case("compare operators", lambda t, x, y: (x == y, x != 1, x < y, x <= 0, x > 0.5, x <= 1), real(5),
     real(5), dtypes=NUMBERS, grad=False)
for _name in "bitwise_and bitwise_or bitwise_xor".split():
    case(_name, lambda t, x, y, n=_name: getattr(t, n)(x, y), integers(9, low=-9, high=9),
         integers(9, high=9), grad=False)
    case(f"{_name} bool", lambda t, x, y, n=_name: getattr(t, n)(x, y), bools(9), bools(9),
         grad=False)
case("bit operators", lambda t, x, y: (x & y, x | 1, x ^ y, x << 2, x >> y), integers(9, high=9),
     integers(9), grad=False)
for _name in "logical_and logical_or logical_xor".split():
    case(_name, lambda t, x, y, n=_name: getattr(t, n)(x, y), real(6), bools(6),
         dtypes=("float32", "int64", "bool"), grad=False)
case("logical_not", lambda t, x: t.logical_not(x), real(6), dtypes=ALL, grad=False)
case("xlogy", lambda t, x, y: t.xlogy(x, y), real(5), positive(5))
case("xlogy zero", lambda t, x, y: t.xlogy(x, y), fixed([0.0, 0.0, 2.0]), fixed([0.0, 1.0, 3.0]),
     grad=False)
case("xlogy's slope at zero", lambda t, x, y: (
    t.xlogy(x, y), t.special.xlog1py(x, y), t.xlogy(x[:2], -1.0).signbit(),
    t.xlogy(x, 0.5).signbit(), t.special.xlog1py(x[:2], -y[:2]),
), fixed([0.0, -0.0, 2.0, 0.0, -1.0]), fixed([1.5, 3.0, 3.0, 1.0, 1.0]))
case("logaddexp", lambda t, x, y: t.logaddexp(x, y), real(5), real(5), dtypes=FLOATS)
case("heaviside", lambda t, x, y: t.heaviside(x, y), fixed([-1.0, 0.0, 2.0]), real(3), grad=False)
case("deg2rad", lambda t, x: (t.deg2rad(x), t.rad2deg(x)), real(5))

# --- three and more ----------------------------------------------------------------------------

case("where", lambda t, c, x, y: t.where(c, x, y), bools(3, 4), real(3, 4), real(4), dtypes=ALL)
case("where number", lambda t, c, x: (t.where(c, x, 0), t.where(c, 1.5, x), x.where(c, x * 2)),
     bools(3, 4), real(3, 4), dtypes=NUMBERS)
case("where numbers", lambda t, c: (t.where(c, 1, 0), t.where(c, 1.0, 0.0)), bools(4), grad=False)
case("where mixed", lambda t, c, x, y: t.where(c, x, y), bools(4), real(4), integers(4))
case("clamp", lambda t, x: (x.clamp(-1, 1), t.clamp(x, min=0), t.clamp(x, max=0.5), x.clip(0, 1)),
     real(9), dtypes=NUMBERS)
case("clamp tensors", lambda t, x, a, b: t.clamp(x, a, b), real(9), real(9, low=-1, high=0),
     real(9, low=0, high=1))
case("clamp_min", lambda t, x: (x.clamp_min(0), x.clamp_max(1)), real(9), dtypes=NUMBERS)
case("clamp nan", lambda t, x: x.clamp(-1, 1), SPECIAL, grad=False)
case("lerp", lambda t, x, y, w: (t.lerp(x, y, 0.3), t.lerp(x, y, 0.8), t.lerp(x, y, w)), real(5),
     real(5), real(5), dtypes=FLOATS)
case("addcmul", lambda t, x, y, z: (t.addcmul(x, y, z), t.addcmul(x, y, z, value=0.5)), real(5),
     real(5), real(5), dtypes=FLOATS)
case("addcdiv", lambda t, x, y, z: (t.addcdiv(x, y, z), t.addcdiv(x, y, z, value=0.5)), real(5),
     real(5), positive(5), dtypes=FLOATS)
case("nan_to_num", lambda t, x: (t.nan_to_num(x), t.nan_to_num(x, 1.0, 2.0, -3.0)), SPECIAL,
     grad=False)

# --- promotion ---------------------------------------------------------------------------------

case("promote int float", lambda t, x, i: (x + i, i * x, i / 2, i + 1.5), real(4), integers(4))
case("promote 0-d", lambda t, x, i: (i + x[0], i * x.sum(), x + i[0]), real(4), integers(4))
case("promote double 0-d", lambda t, x: x + t.tensor(1.0, dtype=t.float64), real(4))
case("promote int32 int64", lambda t, i, j: i + j, integers(4, dtype="int32"), integers(4),
     grad=False)
case("promote uint8 int8", lambda t, i, j: i + j, integers(4, dtype="uint8"),
     integers(4, dtype="int8"), grad=False)
case("promote bool int", lambda t, b, i: (b + i, b * 2, b + b, b * 1.5), bools(4), integers(4),
     grad=False)
case("promote half", lambda t, x, y: (x.half() + y, x.half() + x.bfloat16(), x.half() * 2.5),
     real(4), real(4), grad=False)
case("int overflow wraps", lambda t, i: (
    i + t.tensor([250], dtype=t.uint8), i + 300, i * -1, i - 500, i < 300, i == 256 + 5, i // 300,
    i.int() + 2**40, t.where(i > 3, i, t.tensor(300))), integers(9, high=20, dtype="uint8"),
    grad=False)

# --- in place ----------------------------------------------------------------------------------


def _after(change):  # type: ignore[no-untyped-def]
    def run(t, x, *rest):  # type: ignore[no-untyped-def]
        y = x * 1
        result = change(t, y, *rest)
        assert result is None or result is y
        return y

    return run


case("add_", _after(lambda t, y, z: y.add_(z, alpha=2)), real(3, 4), real(4), dtypes=NUMBERS)
case("iadd", _after(lambda t, y, z: y.__iadd__(z)), real(3, 4), real(4))
case("sub_", _after(lambda t, y: y.sub_(1)), real(3, 4), dtypes=NUMBERS)
case("mul_", _after(lambda t, y, z: y.mul_(z)), real(3, 4), real(4), dtypes=NUMBERS)
case("div_", _after(lambda t, y, z: y.div_(z)), real(3, 4), positive(4))
case("pow_", _after(lambda t, y: y.pow_(2)), real(3, 4))
case("exp_", _after(lambda t, y: y.exp_()), real(3, 4))
case("sqrt_", _after(lambda t, y: y.sqrt_()), positive(3, 4))
case("relu_", _after(lambda t, y: y.relu_()), real(3, 4))
case("clamp_", _after(lambda t, y: y.clamp_(-1, 1)), real(3, 4))
case("zero_", _after(lambda t, y: y.zero_()), real(3, 4), dtypes=ALL)
case("fill_", _after(lambda t, y: y.fill_(2)), real(3, 4), dtypes=ALL)
case("copy_", _after(lambda t, y, z: y.copy_(z)), real(3, 4), real(4))
case("copy_ cast", _after(lambda t, y, z: y.copy_(z)), real(3), integers(3))
case("addcmul_", _after(lambda t, y, a, b: y.addcmul_(a, b, value=2)), real(3), real(3), real(3))
case("addcdiv_", _after(lambda t, y, a, b: y.addcdiv_(a, b, value=2)), real(3), real(3),
     positive(3))
case("lerp_", _after(lambda t, y, a: y.lerp_(a, 0.1)), real(3), real(3))
case("masked_fill_", _after(lambda t, y, m: y.masked_fill_(m, 7)), real(3, 4), bools(3, 4))
case("in place on view", _after(lambda t, y: y[1].mul_(2) is None or None), real(3, 4))
case("comparison in place", _after(lambda t, y: y.gt_(0)), real(5), grad=False)
