"""Sorting, selection, counting, comparison of whole tensors."""

import math

from tests.parity.records import NUMBERS, bools, case, fixed, integers, real

_DATA = "size depends on values"
_TIES = fixed([[3.0, 1.0, 2.0, 1.0], [2.0, 2.0, 0.0, 5.0]])

case("sort", lambda t, x: (x.sort(), t.sort(x, 0), x.sort(dim=-1, descending=True)), real(4, 5),
     dtypes=NUMBERS)
case("sort stable", lambda t, x: (t.sort(x, stable=True), t.sort(x, stable=True, descending=True)),
     _TIES, dtypes=NUMBERS)
case("sort nan", lambda t, x: (x.sort().values, x.sort(descending=True).values),
     fixed([1.0, math.nan, -math.inf, 3.0, math.inf, math.nan]), grad=False)
case("sort bool", lambda t, x: x.sort(stable=True), bools(6), grad=False)
case("argsort", lambda t, x: (x.argsort(), t.argsort(x, 0, descending=True)), real(4, 5),
     grad=False)
case("msort", lambda t, x: t.msort(x), real(4, 3))
case("topk", lambda t, x: (x.topk(2), t.topk(x, 3, dim=0), x.topk(2, largest=False)), real(4, 5))
case("topk int", lambda t, x: x.topk(2).values, real(4, 5), dtypes=("int64",), grad=False)
case("kthvalue", lambda t, x: (t.kthvalue(x, 2), x.kthvalue(1, 0, True)), real(4, 5))
case("median", lambda t, x: (x.median(), x.median(1), t.median(x, 0, keepdim=True)), real(4, 5))
case("median odd", lambda t, x: (x.median(), x.median(0).values), real(5, 3), dtypes=NUMBERS,
     grad=False)
case("median nan", lambda t, x: (x.median(), x.nanmedian(), x.median(1).values,
                                 x.nanmedian(1).values),
     fixed([[1.0, math.nan, 3.0], [2.0, 5.0, 4.0]]), grad=False)
case("ranks of many", lambda t, x: (
    t.kthvalue(x, 20), x.kthvalue(7, 0, True), x.median(), x.median(1), x.nanmedian(0, True),
    x.t().median(0), x.flip(1).median(1).values, x[:, ::2].kthvalue(3).values), real(40, 51))
case("ranks of ties", lambda t, x: (
    t.kthvalue(x, 20).values, x.median(), x.median(1).values,
    x.gather(1, x.median(1, True).indices), x.gather(0, x.kthvalue(9, 0, True).indices)),
     integers(40, 51, high=9), dtypes=NUMBERS, grad=False)
case("ranks of many beside nan", lambda t, x: (
    (x / x).kthvalue(2).values, t.where(x > 2, t.nan, x).median(1).values, (0 / x).median(),
    t.where(x > 2, t.nan, x).nanmedian(1).values, t.where(x > 2, t.inf, x).median(0).values),
     integers(40, 51, high=9), dtypes=("float32",), grad=False)
case("mode", lambda t, x: (t.mode(x).values, x.mode(0).values), _TIES, grad=False,
     segments="counts on the host")
for _how in ("linear", "lower", "higher", "midpoint", "nearest"):
    case(f"quantile {_how}", lambda t, x, h=_how: (
        t.quantile(x, 0.3, interpolation=h), x.quantile(0.6, dim=1, interpolation=h),
        x.quantile(0.5, dim=0, keepdim=True, interpolation=h)), real(4, 5))
case("quantile tensor", lambda t, x, q: (t.quantile(x, q, dim=0), x.quantile(q)), real(4, 5),
     fixed([0.1, 0.5, 0.9]), grad=False)
case("unique", lambda t, x: (t.unique(x), x.unique(return_inverse=True, return_counts=True),
                             t.unique(x, dim=0), t.unique(x, return_counts=True)),
     integers(4, 3, high=4), grad=False, segments=_DATA)
case("unique of many", lambda t, x: (
    t.unique(x), x.unique(return_inverse=True), x.unique(return_counts=True),
    (x - 4).unique(return_inverse=True, return_counts=True),
    (x * 70000).unique(return_inverse=True)),
     integers(40, 51, high=9), dtypes=("int64", "int32", "uint8", "float32"), grad=False,
     segments=_DATA)
case("unique_consecutive", lambda t, x: (
    t.unique_consecutive(x), x.unique_consecutive(return_inverse=True, return_counts=True)),
    fixed([1, 1, 2, 2, 3, 1, 1], "int64"), grad=False, segments=_DATA)
case("searchsorted", lambda t, x, v: (
    t.searchsorted(x.sort().values, v), t.searchsorted(x.sort().values, v, right=True),
    t.bucketize(v, x.sort().values), t.searchsorted(x.sort().values, 0.5)), real(9), real(3, 4),
    grad=False)
case("searchsorted rows", lambda t, x, v: t.searchsorted(x.sort(-1).values, v), real(3, 5),
     real(3, 4), grad=False)
case("bincount", lambda t, x, w: (t.bincount(x), x.bincount(minlength=8), x.bincount(w)),
     integers(9, high=5), real(9), grad=False, segments=_DATA)
case("histc", lambda t, x: (t.histc(x, 5), t.histc(x, 4, min=-1, max=1)), real(30), grad=False,
     segments=_DATA)
case("isin", lambda t, x: (t.isin(x, t.tensor([1, 3])), t.isin(x, 2),
                           t.isin(x, x[:2], invert=True)), integers(9, high=5), grad=False)
case("isclose", lambda t, x, y: (t.isclose(x, x + 1e-7), t.isclose(x, y), x.isclose(y, atol=1.0)),
     real(5), real(5), grad=False)
case("allclose", lambda t, x, y: (t.allclose(x, x), t.allclose(x, y), x.allclose(y, rtol=10.0)),
     real(5), real(5), grad=False, segments="gives a bool")
case("equal", lambda t, x: (t.equal(x, x.clone()), x.equal(x + 1), t.equal(x, x[:2])), real(5),
     grad=False, segments="gives a bool")
case("isclose int", lambda t, x: t.isclose(x, x + 1), integers(5), grad=False)
case("isclose nan", lambda t, x: (t.isclose(x, x), t.isclose(x, x, equal_nan=True)),
     fixed([1.0, math.nan, math.inf, -math.inf]), grad=False)

# --- segments: sorted places ---------------------------------------------------------------------

_OFFSETS = fixed([0, 2, 2, 5, 6], "int64")
for _r in ("sum", "mean", "max", "min", "prod", "amax", "amin"):
    case(f"segment_reduce {_r}", lambda t, x, o, r=_r: (
        t.segment_reduce(x, r, offsets=o), t.segment_reduce(x, r, offsets=o, initial=0.5),
        t._segment_reduce(x[:4], r, offsets=t.tensor([1, 3]))), real(6, 3), _OFFSETS)
    case(f"segment_reduce rows {_r}", lambda t, x, n, r=_r: t.segment_reduce(
        x, r, lengths=n, axis=1, initial=2), real(2, 5, 2),
        fixed([[2, 0, 3], [1, 4, 0]], "int64"))
case("segment_reduce int32", lambda t, x: t.segment_reduce(
    x, "sum", lengths=t.tensor([4, 2], dtype=t.int32), unsafe=True), real(6))
case("rows of csr", lambda t, r: (
    t._convert_indices_from_coo_to_csr(r, 5),
    t._convert_indices_from_coo_to_csr(r, 5, out_int32=True)),
    fixed([0, 0, 2, 3, 3], "int64"), grad=False)
case("rows of coo", lambda t, c, j: (
    t._convert_indices_from_csr_to_coo(c, j),
    t._convert_indices_from_csr_to_coo(c, j, out_int32=True, transpose=True)),
    fixed([0, 2, 2, 3, 5], "int64"), fixed([0, 1, 2, 0, 1], "int64"), grad=False)
