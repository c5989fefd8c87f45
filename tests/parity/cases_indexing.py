"""x[...], gather, scatter, index_*, masks."""

import numpy as np

from tests.parity.records import ALL, NUMBERS, bools, case, fixed, integers, real

_X = real(4, 5, 6)
_I = integers(3, high=4)
_DATA = "size depends on values"

case("getitem basic", lambda t, x: (x[0], x[-1], x[1:3], x[:, 2], x[..., 0], x[None], x[1, 2, 3],
                                    x[::2], x[1:, ::3, None], x[:, None, 1], x[..., None],
                                    x[2:1], x[:100], x[-2:], x[0, ..., 1]), _X, strides=True)
case("getitem tensor", lambda t, x, i: (x[i], x[:, i], x[i, i], x[..., i], x[i, 1:3], x[0, i],
                                        x[i[None]], x[i.int()]), _X, _I)
case("getitem tensors apart", lambda t, x, i: (x[i, :, i], x[:, i, None, i], x[i, None, i],
                                               x[0, :, i]), _X, _I)
case("getitem broadcast", lambda t, x, i: (x[i[:, None], i[None, :]], x[i[:, None], :, i]), _X, _I)
case("getitem list", lambda t, x: (x[[0, 2]], x[[1]], x[:, [0, -1]], x[[0, 1], [2, 3]], x[[]]), _X)
case("getitem numpy", lambda t, x: (x[np.array([0, 2])], x[np.int64(1)],
                                    x[np.array([True, False, True, True])]), _X,
     segments=_DATA)
case("getitem mask", lambda t, x, m: (x[m], x[m, 0], x[:, 0][m[:, 0]],
                                     x[0][m[0]]), _X, bools(4, 5), segments=_DATA)
case("getitem full mask", lambda t, x: (x[x > 0], x[(x > 0) & (x < 1)]), _X, segments=_DATA)
case("getitem mask and tensor", lambda t, x, i: x[t.tensor([True, False, True, True]), i], _X,
     _I, segments=_DATA)
case("getitem bool", lambda t, x: (x[True], x[False], x[t.tensor(True)]), _X, segments=_DATA)
case("getitem 0-d tensor", lambda t, x: (x[t.tensor(1)], x[:, t.tensor(2)], x[t.tensor(1), 2]), _X)
case("getitem 0-d", lambda t, x: (x[()], x[...], x[None], x[None, ...]), real())
case("getitem tuple of all", lambda t, x: (x[:, :, :], x[()], x[...]), _X, strides=True)
case("getitem duplicate", lambda t, x: x[[0, 0, 1, 0]], _X)
case("getitem int dtypes", lambda t, x, i: x[i], real(4, 3), _I, dtypes=ALL)


def _set(change):  # type: ignore[no-untyped-def]
    def run(t, x, *rest):  # type: ignore[no-untyped-def]
        y = x * 1 if x.dtype != t.bool else x.clone()
        change(t, y, *rest)
        return y

    return run


def _assign(name, index, value, *inputs, **options):  # type: ignore[no-untyped-def]
    def change(t, y, *rest):  # type: ignore[no-untyped-def]
        y[index(t, *rest[:1]) if callable(index) else index] = (
            value(t, *rest) if callable(value) else value
        )

    case(f"setitem {name}", _set(change), _X, *inputs, **options)


_assign("int", 1, 0.0)
_assign("int number dtypes", 1, 1, dtypes=ALL)
_assign("slice", slice(1, 3), 2.5)
_assign("slice step", (slice(None), slice(0, 5, 2)), 1)
_assign("ellipsis", (..., 0), -1)
_assign("all", ..., 3)
_assign("none", (None, 0), 3)
_assign("value", 1, lambda t, v: v, real(5, 6))
_assign("value broadcast", slice(1, 3), lambda t, v: v, real(6))
_assign("value leading ones", 1, lambda t, v: v[None, None], real(5, 6))
_assign("tensor index", lambda t, i: i, lambda t, i: 2.0, _I)
_assign("tensor index value", lambda t, i: i, lambda t, i, v: v, fixed([0, 2, 3], "int64"),
        real(3, 5, 6))
_assign("two tensors", lambda t, i: (i, i), lambda t, i, v: v, fixed([0, 2, 3], "int64"),
        real(3, 6))
_assign("tensors apart", lambda t, i: (i, slice(None), i), lambda t, i, v: v,
        fixed([0, 2, 3], "int64"), real(3, 5))
_assign("list", [0, 2], 5.0)
_assign("mask", lambda t, m: m, 0.0, bools(4, 5, 6))
_assign("mask leading", lambda t, m: m, 1.0, bools(4))
_assign("mask tensor 0-d", lambda t, m: m, lambda t, m, v: v, bools(4, 5, 6), real())
_assign("mask values", lambda t, m: m, lambda t, m, v: v, fixed([True, False, True, False], "bool"),
        real(2, 5, 6), segments=_DATA)
_assign("mask row", lambda t, m: m, lambda t, m, v: v, fixed([True, False, True, False], "bool"),
        real(6), segments=_DATA)
_assign("negative", -1, 9)
case("setitem chained view", _set(lambda t, y: y[1:].__setitem__((0, slice(None), 2), 7)), _X)
case("setitem augmented", _set(lambda t, y: y.__setitem__(0, y[0] * 2 + y[1])), _X)

case("gather", lambda t, x, i: (x.gather(1, i), t.gather(x, 1, i[:, :1]), x.gather(-1, i)),
     real(3, 4), integers(3, 4, high=4), dtypes=NUMBERS)
case("gather dim 0", lambda t, x, i: x.gather(0, i), real(3, 4), integers(2, 4))
case("scatter", lambda t, x, i, s: (x.scatter(1, i, s), t.scatter(x, 1, i, 2.5),
                                   x.detach().scatter(1, i, s.detach(), reduce="add")),
     real(3, 4),
     fixed([[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2]], "int64"), real(3, 4))
case("scatter multiply", lambda t, x, i, s: x.scatter(0, i, s, reduce="multiply"), real(3, 4),
     integers(2, 4), real(2, 4), grad=False)
case("scatter larger src", lambda t, x, i, s: x.scatter_add(0, i, s), real(3, 4), integers(2, 3),
     real(3, 4), grad=False)
case("scatter_", lambda t, i: t.zeros(3, 4).scatter_(1, i, 1), integers(3, 1, high=4), grad=False)
case("scatter_add", lambda t, x, i, s: (x.scatter_add(1, i, s), (x * 1).scatter_add_(0, i % 3, s)),
     real(3, 4), integers(3, 4, high=4), real(3, 4))
for _r in ("sum", "prod", "mean", "amax", "amin"):
    case(f"scatter_reduce {_r}", lambda t, x, i, s, r=_r: (
        x.scatter_reduce(0, i, s, r), x.scatter_reduce(0, i, s, r, include_self=False)),
        real(4), integers(9, high=4), real(9), grad=_r in ("sum", "mean"))
case("index_select", lambda t, x, i: (x.index_select(0, i), t.index_select(x, -1, i)), _X, _I)
case("index_add", lambda t, x, i, s: (x.index_add(0, i, s), t.index_add(x, 0, i, s, alpha=2),
                                     (x * 1).index_add_(0, i, s)), real(4, 2), _I, real(3, 2))
case("index_copy", lambda t, x, i, s: x.index_copy(0, i, s), real(4, 2), fixed([3, 0, 1], "int64"),
     real(3, 2))
case("index_fill", lambda t, x, i: (x.index_fill(0, i, 7), (x * 1).index_fill_(1, i[:2] % 2, -1)),
     real(4, 2), _I)
case("index_put", lambda t, x, i, v: (
    x.index_put((i,), v), t.index_put(x, (i, i % 2), v[:, 0], accumulate=True)), real(4, 2),
    fixed([3, 0, 1], "int64"), real(3, 2))
case("masked_fill", lambda t, x, m: (x.masked_fill(m, 0), x.masked_fill(m[0], -1e9),
                                    t.masked_fill(x, m, t.tensor(2.0)),
                                    x.masked_fill(m, float("-inf"))), real(3, 4), bools(3, 4))
case("masked_fill int", lambda t, x, m: x.masked_fill(m, 3), integers(3, 4), bools(3, 4),
     grad=False)
case("masked_select", lambda t, x, m: (x.masked_select(m), t.masked_select(x, m[0])), real(3, 4),
     bools(3, 4), segments=_DATA)
case("masked_scatter", lambda t, x, m, s: x.masked_scatter(m, s), real(3, 4), bools(3, 4), real(12))
case("take", lambda t, x, i: (t.take(x, i), x.take(i)), real(3, 4), integers(5, high=12))
case("take_along_dim", lambda t, x, i: (t.take_along_dim(x, i, 1), t.take_along_dim(x, i[0])),
     real(3, 4), integers(1, 4, high=4))
case("nonzero", lambda t, x: (x.nonzero(), t.nonzero(x, as_tuple=True), t.argwhere(x)),
     fixed([[0, 1, 2], [3, 0, 0]]), dtypes=ALL, grad=False, segments=_DATA)
case("where condition", lambda t, m: t.where(m), bools(3, 4), grad=False, segments=_DATA)
case("iteration", lambda t, x: [row * 2 for row in x], real(3, 4))
case("unpacking", lambda t, x: (lambda a, b, c: a + b * c)(*x), real(3, 4))
