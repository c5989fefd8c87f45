"""Matrix products and einsum."""

from tests.parity.records import FLOATS, HALVES, case, integers, real

case("matrix_power of any power", lambda t, x: (
    t.matrix_power(x, 3), x.matrix_power(0), x.matrix_power(1), t.matrix_power(x, -2)),
    real(2, 3, 3))
_SHAPES = {
    "vector vector": ((4,), (4,)),
    "matrix vector": ((3, 4), (4,)),
    "vector matrix": ((4,), (4, 5)),
    "matrix matrix": ((3, 4), (4, 5)),
    "batch vector": ((2, 3, 4), (4,)),
    "vector batch": ((4,), (2, 4, 5)),
    "batch matrix": ((2, 3, 4), (4, 5)),
    "matrix batch": ((3, 4), (2, 4, 5)),
    "batch batch": ((2, 3, 4), (2, 4, 5)),
    "batch broadcast": ((2, 1, 3, 4), (5, 4, 2)),
    "batch of one": ((1, 3, 4), (2, 4, 5)),
    "empty inner": ((3, 0), (0, 5)),
    "empty batch": ((0, 3, 4), (4, 5)),
}
for _name, (_a, _b) in _SHAPES.items():
    case(f"matmul {_name}", lambda t, x, y: (x @ y, t.matmul(x, y)), real(*_a), real(*_b),
         dtypes=FLOATS)
case("matmul int", lambda t, x, y: x @ y, integers(3, 4, low=-3), integers(4, 2), grad=False)
case("matmul halves", lambda t, x, y: x @ y, real(3, 40), real(40, 2), dtypes=HALVES, grad=False)
case("matmul transposed", lambda t, x, y: (x.t() @ y, x @ x.mT, y.T @ x), real(4, 3), real(4, 5))
case("mm", lambda t, x, y: (t.mm(x, y), x.mm(y)), real(3, 4), real(4, 2))
case("_int_mm", lambda t, x, y: (t._int_mm(x, y), t._int_mm(x[:, 1:], y[1:])),
     integers(5, 37, low=-128, high=128, dtype="int8"),
     integers(37, 9, low=-128, high=128, dtype="int8"), grad=False)
case("_int_mm unsigned", lambda t, x, y: t._int_mm(x, y.T),
     integers(70, 600, high=256, dtype="uint8"),
     integers(50, 600, low=-128, high=128, dtype="int8"), grad=False)
case("matmul bytes", lambda t, x, y: (x @ y, x.short() @ y.short()),
     integers(20, 40, low=-128, high=128, dtype="int8"),
     integers(40, 30, low=-128, high=128, dtype="int8"), grad=False)
case("bmm", lambda t, x, y: (t.bmm(x, y), x.bmm(y)), real(2, 3, 4), real(2, 4, 5))
case("mv", lambda t, x, y: (t.mv(x, y), x.mv(y)), real(3, 4), real(4))
case("dot", lambda t, x, y: (t.dot(x, y), x.dot(y), t.inner(x, y), t.vdot(x, y)), real(4), real(4))
case("outer", lambda t, x, y: (t.outer(x, y), x.ger(y)), real(3), real(4))
case("inner", lambda t, x, y: t.inner(x, y), real(2, 3, 4), real(5, 4))
case("addmm", lambda t, b, x, y: (t.addmm(b, x, y), t.addmm(b, x, y, beta=0.5, alpha=2)), real(2),
     real(3, 4), real(4, 2))
case("addmv", lambda t, b, x, y: t.addmv(b, x, y, alpha=2), real(3), real(3, 4), real(4))
case("addr", lambda t, b, x, y: t.addr(b, x, y), real(3, 4), real(3), real(4))
case("baddbmm", lambda t, b, x, y: (t.baddbmm(b, x, y), t.baddbmm(b, x, y, beta=0, alpha=3)),
     real(2, 3, 5), real(2, 3, 4), real(2, 4, 5))
case("tensordot", lambda t, x, y: (t.tensordot(x, y, dims=1), t.tensordot(x, y, ([2, 1], [0, 1]))),
     real(2, 3, 4), real(4, 3, 5))
case("kron", lambda t, x, y: t.kron(x, y), real(2, 3), real(3, 2))
case("trace", lambda t, x: (t.trace(x), x.trace()), real(4, 3))
case("matrix_power", lambda t, x: (t.matrix_power(x, 3), x.matrix_power(2)), real(3, 3))
case("cross", lambda t, x, y: t.cross(x, y, dim=1), real(4, 3), real(4, 3))
case("cdist", lambda t, x, y: (t.cdist(x, y), t.cdist(x, y, p=1)), real(3, 4), real(5, 4))
case("chain_matmul", lambda t, x, y: x @ y @ x, real(3, 4), real(4, 3))

_EQUATIONS = {
    "ij,jk->ik": ((2, 3), (3, 4)),
    "ij,jk": ((2, 3), (3, 4)),
    "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)),
    "bhqd,bhkd->bhqk": ((2, 3, 4, 5), (2, 3, 6, 5)),
    "bhqk,bkhd->bqhd": ((2, 3, 4, 6), (2, 6, 3, 5)),
    "i,j->ij": ((3,), (4,)),
    "i,i->": ((3,), (3,)),
    "i,i->i": ((3,), (3,)),
    "ij->ji": ((3, 4),),
    "ij->": ((3, 4),),
    "ij->i": ((3, 4),),
    "ii->i": ((4, 4),),
    "ii": ((4, 4),),
    "...ij,...jk->...ik": ((2, 1, 3, 4), (5, 4, 2)),
    "...i->...": ((2, 3, 4),),
    "bn,anm,bm->ba": ((2, 5), (3, 5, 4), (2, 4)),
    "ij,kl->ijkl": ((2, 3), (4, 2)),
    "b i d , b j d -> b i j": ((2, 3, 4), (2, 5, 4)),
    "ba,b->ab": ((3, 4), (3,)),
    "zij,zjk": ((2, 3, 4), (2, 4, 5)),
}
for _equation, _shapes in _EQUATIONS.items():
    case(f"einsum {_equation}", lambda t, *xs, e=_equation: (t.einsum(e, *xs), t.einsum(e, xs)),
         *(real(*s) for s in _shapes))
case("einsum sublist", lambda t, x, y: t.einsum(x, [0, 1], y, [1, 2], [0, 2]), real(2, 3),
     real(3, 4))
