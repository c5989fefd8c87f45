"""Sums, means, extremes, moments, norms, running sums."""

import math

from tests.parity.records import ALL, FLOATS, HALVES, NUMBERS, bools, case, fixed, positive, real

_KINDS = (*ALL, *HALVES)

case("sum", lambda t, x: (x.sum(), t.sum(x, 0), x.sum(dim=1, keepdim=True), x.sum((0, 2)),
                          x.sum(-1), x.sum(axis=0)), real(2, 3, 4), dtypes=_KINDS)
case("sum dtype", lambda t, x: (x.sum(dtype=t.float64), x.sum(0, dtype=t.float32)), real(3, 4),
     dtypes=NUMBERS, grad=False)
case("sum empty", lambda t, x: (x.sum(), x.sum(0), x.sum(1), x.prod(), x.prod(1)), real(3, 0),
     grad=False)
case("sum 0-d", lambda t, x: (x.sum(), x.sum(0), x.mean(-1), x.prod(0)), real())
case("mean", lambda t, x: (x.mean(), t.mean(x, 0), x.mean((0, 2), keepdim=True), x.mean(-1)),
     real(2, 3, 4), dtypes=(*FLOATS, *HALVES))
case("mean int dtype", lambda t, x: x.mean(dtype=t.float32), real(4), dtypes=("int64",), grad=False)
case("mean empty", lambda t, x: (x.mean(), x.mean(1)), real(3, 0), grad=False)
case("prod", lambda t, x: (x.prod(), t.prod(x, 0), x.prod(1, keepdim=True)), real(2, 3),
     dtypes=ALL)
case("prod zeros", lambda t, x: (x.prod(), x.prod(1)), fixed([[0.0, 2.0, 3.0], [0.0, 0.0, 2.0]]))
case("nansum", lambda t, x: (x.nansum(), x.nansum(0)), fixed([[1.0, math.nan], [2.0, 3.0]]))
case("nanmean", lambda t, x: (x.nanmean(), x.nanmean(0)), fixed([[1.0, math.nan], [2.0, 3.0]]),
     grad=False)
case("count_nonzero", lambda t, x: (t.count_nonzero(x), x.count_nonzero(0)), real(3, 4),
     dtypes=ALL, grad=False)
case("any all", lambda t, x: (x.any(), x.all(), x.any(0), x.all(1, keepdim=True), t.any(x, dim=-1),
                              x.all((0, 1))), real(3, 4), dtypes=ALL, grad=False)
case("any all no dims", lambda t, x: (x.any(dim=()), x.all(()), t.any(x, dim=[], keepdim=True)),
     real(2, 3), grad=False)
case("sum prod to bool", lambda t, x: (
    x.sum(dtype=t.bool), x.sum(0, dtype=t.bool), x.sum((0, 1), True, dtype=t.bool),
    x.prod(dtype=t.bool), x.prod(0, dtype=t.bool)), fixed([[0.5, 0.0], [0.0, 0.0], [2.0, 0.0]]),
    dtypes=("float32", "int64"), grad=False)
case("any all bool", lambda t, x: (x.any(1), x.all(1), (~x).all()), bools(3, 2), grad=False)
for _name in ("amax", "amin"):
    case(_name, lambda t, x, n=_name: (getattr(x, n)(), getattr(x, n)(0), getattr(x, n)((0, 2)),
                                       getattr(x, n)(-1, keepdim=True)), real(2, 3, 4), dtypes=ALL)
    case(f"{_name} ties", lambda t, x, n=_name: getattr(x, n)(1),
         fixed([[1.0, 1.0, 0.0], [0.0, 2.0, 2.0]]))
case("aminmax", lambda t, x: (x.aminmax(), x.aminmax(dim=1)), real(3, 4))
for _name in ("max", "min"):
    case(f"{_name} all", lambda t, x, n=_name: (getattr(t, n)(x), getattr(x, n)()), real(3, 4),
         dtypes=ALL)
    case(f"{_name} dim", lambda t, x, n=_name: (getattr(t, n)(x, 0), getattr(x, n)(1, keepdim=True),
                                               getattr(x, n)(dim=-1)), real(3, 4),
         dtypes=("float32", "int32"))
    case(f"{_name} other", lambda t, x, y, n=_name: (getattr(t, n)(x, y), getattr(x, n)(other=y)),
         real(3, 4), real(4), dtypes=NUMBERS)
    case(f"{_name} nan", lambda t, x, n=_name: (getattr(x, n)(), getattr(x, n)(1)),
         fixed([[1.0, math.nan, 3.0], [0.0, 5.0, 2.0]]), grad=False)
    case(f"{_name} 0-d", lambda t, x, n=_name: getattr(x, n)(0), real())
    case(f"{_name} bool", lambda t, x, n=_name: (getattr(x, n)(), getattr(x, n)(1).values),
         bools(3, 4), grad=False)
case("max values indices", lambda t, x: (x.max(1).values, x.max(1).indices, x.max(1)[0]),
     real(3, 4))
case("argmax", lambda t, x: (x.argmax(), t.argmax(x, 0), x.argmax(-1, keepdim=True),
                             x.argmax(dim=1), x.argmax(keepdim=True)), real(3, 4), dtypes=NUMBERS,
     grad=False)
case("argmin", lambda t, x: (x.argmin(), x.argmin(1), t.argmin(x, dim=0)), real(3, 4),
     dtypes=NUMBERS, grad=False)
case("argmax ties", lambda t, x: (x.argmax(1), x.argmin(1)),
     fixed([[1.0, 1.0, 0.0], [0.0, 2.0, 2.0]]), grad=False)
case("argmax nan", lambda t, x: (x.argmax(1), x.argmin(1), x.argmax()),
     fixed([[1.0, math.nan, 3.0], [0.0, 5.0, 2.0]]), grad=False)
for _name in ("var", "std"):
    case(_name, lambda t, x, n=_name: (getattr(x, n)(), getattr(t, n)(x, 0), getattr(x, n)((0, 1)),
                                       getattr(x, n)(1, keepdim=True)), real(3, 4, 2),
         dtypes=(*FLOATS, *HALVES))
    case(f"{_name} unbiased", lambda t, x, n=_name: (
        getattr(x, n)(unbiased=False), getattr(x, n)(0, False), getattr(x, n)(False),
        getattr(x, n)(dim=1, correction=0), getattr(x, n)(correction=2)), real(3, 4))
    case(f"{_name}_mean", lambda t, x, n=_name: (
        getattr(t, f"{n}_mean")(x), getattr(t, f"{n}_mean")(x, 1, keepdim=True),
        getattr(t, f"{n}_mean")(x, dim=(0, 1), correction=0)), real(3, 4))
case("var of one", lambda t, x: (x.var(), x.var(0), x.var(correction=0)), real(1), grad=False)
case("std zero gradient", lambda t, x: x.std(1, unbiased=False), fixed([[1.0, 1.0], [1.0, 2.0]]))
case("norm", lambda t, x: (x.norm(), t.norm(x, 2), x.norm(dim=1), x.norm(p=1), x.norm(1, 0),
                           t.norm(x, p="fro", dim=(0, 1)), x.norm(2, 1, True)), real(3, 4),
     dtypes=FLOATS)
case("norm others", lambda t, x: (x.norm(math.inf), x.norm(-math.inf), x.detach().norm(0),
                                  x.norm(3), x.norm(0.5), x.norm(3, dim=1)), real(3, 4))
case("norm at zero", lambda t, x: (x.norm(), x.norm(2, 1), x.norm(1)), fixed([[0.0, 0], [3, 4]]))
case("norm halves", lambda t, x: x.norm(), real(40), dtypes=HALVES, grad=False)
case("dist", lambda t, x, y: (t.dist(x, y), t.dist(x, y, 1)), real(5), real(5))
case("logsumexp", lambda t, x: (x.logsumexp(0), t.logsumexp(x, (0, 2)),
                                x.logsumexp(-1, keepdim=True), x.logsumexp((0, 1), keepdim=True)),
     real(2, 3, 4), dtypes=FLOATS)
case("softmax", lambda t, x: (x.softmax(-1), t.softmax(x, 0), t.log_softmax(x, dim=1),
                              x.log_softmax(-1)), real(3, 4), dtypes=FLOATS)
case("softmax dtype", lambda t, x: x.softmax(0, dtype=t.float64), real(3, 4))
case("cumsum", lambda t, x: (x.cumsum(0), t.cumsum(x, -1), x.cumsum(1, dtype=t.float64)),
     real(3, 4), dtypes=ALL)
case("cumprod", lambda t, x: (x.cumprod(0), t.cumprod(x, -1)), positive(3, 4), dtypes=NUMBERS)
case("cumprod zeros", lambda t, x: x.cumprod(0), fixed([2.0, 0.0, 3.0, 0.0, 4.0]))
case("cummax", lambda t, x: (x.cummax(1), t.cummin(x, 0)), real(3, 4), dtypes=NUMBERS)
case("logcumsumexp", lambda t, x: (x.logcumsumexp(1), t.logcumsumexp(x, 0)), real(3, 4))
case("diff", lambda t, x: (t.diff(x), x.diff(n=2, dim=0), x.diff(dim=0, prepend=x[:1])), real(4, 5),
     dtypes=NUMBERS)
case("trapezoid", lambda t, x, y: (t.trapezoid(x), t.trapezoid(x, dx=0.5),
                                   t.trapezoid(x, y, dim=1)), real(3, 4), real(4))
