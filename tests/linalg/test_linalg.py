"""torch.linalg against PyTorch, real and complex: values and gradients, eager and compiled.

Decompositions are compared by what does not depend on the choice of signs and phases.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from tests.linalg.compare import compare, regular, sample, torch

INFINITY = float("inf")
# torch says of its older names that they are old
pytestmark = pytest.mark.filterwarnings(r"ignore:torch\.\w+ is deprecated")


def _svd(t: Any, a: Any) -> Any:
    u, s, v = t.linalg.svd(a, full_matrices=False)
    return s, u.abs() ** 2, v.abs() ** 2, u @ v


def _eigh(t: Any, a: Any) -> Any:
    values, vectors = t.linalg.eigh(a + a.mH)
    scaled = vectors * values[..., None, :].to(vectors.dtype) ** 2
    return values, vectors.abs() ** 2, scaled @ vectors.mH


def _eig(t: Any, a: Any) -> Any:
    values, vectors = t.linalg.eig(a)
    return values.abs().sum(-1), (vectors * values[..., None, :] ** 2) @ t.linalg.inv(vectors)


def _lu_solves(t: Any, a: Any, b: Any) -> Any:
    lu, pivots = t.linalg.lu_factor(a)
    return (
        t.linalg.lu_solve(lu, pivots, b), t.linalg.lu_solve(lu, pivots, b, adjoint=True),
        t.linalg.lu_solve(lu, pivots, b.mT, left=False), t.lu_solve(b, lu, pivots),
    )


def _norms(t: Any, a: Any) -> Any:
    orders: list[Any] = ["fro", "nuc", 2, -2, 1, -1, INFINITY, -INFINITY]
    return [t.linalg.matrix_norm(a, order) for order in orders]


def _vector_norms(t: Any, a: Any) -> Any:
    found = [t.linalg.vector_norm(a, order) for order in (0, 1, 2, 3, INFINITY, -1)]
    return [*found, t.linalg.norm(a, dim=1), t.norm(a), a.norm(dim=0, keepdim=True)]


B, M, V, N = (3, 3), (2, 3, 3), (3, 2), (2, 4, 3)
# name -> function, shapes of its matrices ("+": made regular), gradient of the gradient
TABLE: dict[str, tuple[Any, tuple[Any, ...], bool]] = {
    "solve": (lambda t, a, b: t.linalg.solve(a, b), (("+", *B), V), True),
    "solve vectors": (lambda t, a, b: t.linalg.solve(a, b), (("+", *M), (2, 3)), False),
    "solve right": (
        lambda t, a, b: t.linalg.solve(a, b, left=False), (("+", *B), (2, 3)), False
    ),
    "solve broadcast": (lambda t, a, b: t.linalg.solve(a, b), (("+", *B), (4, 3, 2)), False),
    "inv": (lambda t, a: (t.linalg.inv(a), a.inverse(), *t.linalg.inv_ex(a)), (("+", *M),), True),
    "det": (lambda t, a: (t.linalg.det(a), a.det()), (("+", *M),), True),
    "slogdet": (lambda t, a: t.linalg.slogdet(a), (("+", *M),), True),
    "logdet": (lambda t, a: t.logdet(a @ a.mH), (("+", *M),), False),
    "cholesky": (
        lambda t, a: (t.linalg.cholesky(a @ a.mH), t.linalg.cholesky(a @ a.mH, upper=True)),
        (("+", *M),), True,
    ),
    "cholesky_ex": (lambda t, a: t.linalg.cholesky_ex(a @ a.mH), (("+", *M),), False),
    "cholesky_solve": (
        lambda t, a, b: (
            t.cholesky_solve(b, t.linalg.cholesky(a @ a.mH)),
            t.cholesky_inverse(t.linalg.cholesky(a @ a.mH)),
        ),
        (("+", *B), V), False,
    ),
    "solve_triangular": (
        lambda t, a, b: (
            t.linalg.solve_triangular(a, b, upper=True),
            t.linalg.solve_triangular(a, b, upper=False, unitriangular=True),
            t.linalg.solve_triangular(a, b.mT, upper=True, left=False),
        ),
        (("+", *B), V), True,
    ),
    "triangular_solve": (
        lambda t, a, b: t.triangular_solve(b, a, upper=False, transpose=True)[0],
        (("+", *B), V), False,
    ),
    "lu_solve": (_lu_solves, (("+", *B), V), False),
    "eigh": (_eigh, (M,), False),
    "eigvalsh": (lambda t, a: t.linalg.eigvalsh(a + a.mH, UPLO="U"), (M,), False),
    "eig": (_eig, (("+", *M),), False),
    "eigvals": (lambda t, a: t.linalg.eigvals(a).abs().sum(-1), (M,), False),
    "matrix_exp": (lambda t, a: (t.linalg.matrix_exp(a), t.matrix_exp(a * 0.1)), (M,), False),
    "matrix_power": (
        lambda t, a: [t.linalg.matrix_power(a, n) for n in (0, 1, 2, 5, -2)], (("+", *M),), False
    ),
    "cond": (lambda t, a: [t.linalg.cond(a, p) for p in (None, 2, -2)], (("+", *B),), False),
    "cross": (lambda t, a, b: t.linalg.cross(a, b), ((2, 3), (2, 3)), False),
    "vecdot": (
        lambda t, a, b: (t.linalg.vecdot(a, b), t.linalg.vecdot(a, b, dim=0)), ((2, 3), (2, 3)),
        False,
    ),
    "multi_dot": (
        lambda t, a, b, c: t.linalg.multi_dot([a, b, c]), ((2, 3), (3, 5), (5,)), False
    ),
    "tensorinv": (lambda t, a: t.linalg.tensorinv(a, ind=1), ((6, 2, 3),), False),
    "tensorsolve": (lambda t, a, b: t.linalg.tensorsolve(a, b), ((2, 3, 6), (2, 3)), False),
    "vander": (lambda t, a: (t.linalg.vander(a), t.linalg.vander(a, N=5)), ((2, 3),), False),
    "lstsq": (lambda t, a, b: t.linalg.lstsq(a, b)[0], (N, (2, 4, 2)), False),
    "householder_product": (
        lambda t, a, b: t.linalg.householder_product(a, b), (N, (2, 3)), False
    ),
    "vector_norm": (_vector_norms, ((2, 3),), False),
    "columns": (lambda t, a: (t.linalg.inv(a.mT), t.linalg.svdvals(a[..., ::2])), (M,), False),
}
for _name, _shape in (("square", M), ("tall", N), ("wide", (2, 3, 5))):
    TABLE |= {
        f"lu {_name}": (lambda t, a: (*t.linalg.lu(a), *t.linalg.lu_factor(a)), (_shape,), False),
        f"svd {_name}": (_svd, (_shape,), False),
        f"svd full {_name}": (lambda t, a: t.linalg.svd(a)[1], (_shape,), False),
        f"pinv {_name}": (lambda t, a: t.linalg.pinv(a), (_shape,), False),
        f"norms {_name}": (_norms, (_shape,), False),
        f"qr {_name}": (lambda t, a: [x.abs() for x in t.linalg.qr(a)], (_shape,), False),
    }
# those that a default run compiles; the others are slow
COMPILED = {"solve", "inv", "det", "cholesky", "svd tall", "eigh", "lu wide", "matrix_exp"}


def _arrays(shapes: tuple[Any, ...], kind: str) -> list[np.ndarray[Any, Any]]:
    return [
        regular(*s[1:], kind=kind, seed=i) if s[0] == "+" else sample(*s, kind=kind, seed=i)
        for i, s in enumerate(shapes)
    ]


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("name", sorted(TABLE))
def test_eager(name: str, kind: str) -> None:
    function, shapes, twice = TABLE[name]
    compare(function, *_arrays(shapes, kind), twice=twice, tolerance=1e-7)


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize(
    "name", [n if n in COMPILED else pytest.param(n, marks=pytest.mark.slow) for n in sorted(TABLE)]
)
def test_compiled(name: str, kind: str) -> None:
    function, shapes, _ = TABLE[name]
    compare(function, *_arrays(shapes, kind), compiled=True, tolerance=1e-7)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (0, 2, 2), (2, 0, 0)])
def test_empty(shape: tuple[int, ...]) -> None:
    def function(t: Any, x: Any) -> Any:
        found = [*t.linalg.svd(x, full_matrices=False), *t.linalg.qr(x), t.linalg.pinv(x),
                 t.linalg.matrix_rank(x), t.linalg.vector_norm(x)]
        if shape[-1] == shape[-2]:
            found += [t.linalg.inv(x), t.linalg.det(x), *t.linalg.slogdet(x), *t.linalg.eigh(x),
                      t.linalg.matrix_exp(x), t.linalg.cholesky(x), t.linalg.eigvals(x),
                      t.linalg.solve(x, x)]
        return found

    compare(function, np.zeros(shape), grad=False)


def test_float32() -> None:
    def function(t: Any, x: Any) -> Any:
        return t.linalg.inv(x), t.linalg.det(x), t.linalg.svdvals(x), t.linalg.eigh(x)[0]

    compare(function, regular(4, 4).astype(np.float32), tolerance=2e-4)


def test_without_gradients() -> None:
    for kind in ("real", "complex"):
        tall, right = sample(2, 4, 3, kind=kind), sample(4, 2, kind=kind)
        compare(lambda t, a: t.linalg.matrix_rank(a), tall, grad=False)
        compare(lambda t, a: t.geqrf(a), tall, grad=False)
        compare(lambda t, a, b: t.ormqr(*t.geqrf(a), b), tall[0], right, grad=False)
        compare(lambda t, a: t.linalg.qr(a, mode="complete")[1].abs(), tall, grad=False)
        compare(
            lambda t, a, b: t.linalg.lstsq(a, b, driver="gelsd"), tall[0], right, grad=False
        )


def test_the_determinant_of_a_singular_matrix_has_its_cofactors_as_gradient() -> None:
    x = graphc.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=graphc.float64, requires_grad=True)
    graphc.linalg.det(x).backward()
    np.testing.assert_allclose(x.grad.numpy(), [[4, -2], [-2, 1]], atol=1e-12)


def test_out() -> None:
    def function(t: Any, x: Any) -> Any:
        inverse = t.empty(3, 3, dtype=t.float64)
        t.linalg.inv(x, out=inverse)
        pair = (t.empty(3, 3, dtype=t.float64), t.empty(3, 3, dtype=t.float64))
        t.linalg.qr(x, out=pair)
        return inverse, pair[0].abs(), pair[1].abs()

    compare(function, regular(3, 3), grad=False)


def test_named_tuples_are_torchs() -> None:
    for name in ("qr", "svd", "eigh", "eig", "slogdet", "inv_ex", "lu", "lu_factor", "lstsq"):
        pair = [t.eye(2) for t in (graphc, torch)]
        arguments = [(x, x) if name == "lstsq" else (x,) for x in pair]
        ours = getattr(graphc.linalg, name)(*arguments[0])
        theirs = getattr(torch.linalg, name)(*arguments[1])
        fields = [f for f in dir(theirs) if not f.startswith("_") and f not in dir(tuple)]
        assert type(ours).__name__ == type(theirs).__name__
        assert all(hasattr(ours, field) for field in fields if not field.startswith("n_"))


ERRORS: dict[str, Any] = {
    "inv singular": lambda t: t.linalg.inv(t.zeros(2, 2)),
    "inv batch": lambda t: t.linalg.inv(t.stack([t.eye(2), t.zeros(2, 2)])),
    "solve singular": lambda t: t.linalg.solve(t.zeros(2, 2), t.ones(2)),
    "cholesky": lambda t: t.linalg.cholesky(t.zeros(2, 2)),
    "cholesky batch": lambda t: t.linalg.cholesky(t.stack([t.eye(2), -t.eye(2)])),
    "lu_factor": lambda t: t.linalg.lu_factor(t.zeros(3, 2)),
    "lu_factor batch": lambda t: t.linalg.lu_factor(t.stack([t.eye(2), t.ones(2, 2)])),
    "lu_factor_ex": lambda t: t.linalg.lu_factor_ex(t.zeros(2, 2), check_errors=True),
    "square": lambda t: t.linalg.inv(t.ones(2, 3)),
    "dims": lambda t: t.linalg.inv(t.ones(2)),
    "integers": lambda t: t.linalg.inv(t.ones(2, 2, dtype=t.int64)),
    "half": lambda t: t.linalg.inv(t.ones(2, 2).half()),
    "svd of nan": lambda t: t.linalg.svd(t.full((2, 2), float("nan"))),
    "shapes": lambda t: t.linalg.solve(t.ones(2, 2), t.ones(3)),
    "dtypes": lambda t: t.linalg.solve(t.ones(2, 2), t.ones(2, dtype=t.float64)),
    "mode": lambda t: t.linalg.qr(t.ones(2, 2), mode="x"),
    "cross": lambda t: t.linalg.cross(t.ones(2), t.ones(2)),
    "cross of two ranks": lambda t: t.cross(t.ones(3), t.ones(2, 3), dim=-1),
    "norm of integers": lambda t: t.linalg.vector_norm(t.ones(2, dtype=t.int64)),
    "norm order": lambda t: t.linalg.norm(t.ones(2, 2), ord="bad"),
}


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_errors(name: str) -> None:
    with pytest.raises(Exception) as theirs:
        ERRORS[name](torch)
    with pytest.raises(Exception) as ours:
        ERRORS[name](graphc)
    singular = isinstance(theirs.value, torch.linalg.LinAlgError)
    assert isinstance(ours.value, graphc.linalg.LinAlgError) == singular
    assert isinstance(ours.value, RuntimeError)
    assert str(theirs.value).splitlines()[0] in str(ours.value)


def test_a_compiled_function_raises_too() -> None:
    with pytest.raises(graphc.linalg.LinAlgError, match="diagonal element 1 is zero"):
        graphc.compile(graphc.linalg.inv)(graphc.zeros(2, 2))


def test_lu_without_a_check_takes_singular_matrices() -> None:
    def function(t: Any) -> Any:
        x = t.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=t.float64)
        return (*t.linalg.lu_factor_ex(x), *t.linalg.lu(x), *x.lu(get_infos=True))

    for ours, theirs in zip(function(graphc), function(torch), strict=True):
        assert ours.tolist() == theirs.tolist()
    with pytest.raises(RuntimeError, match=r"U\[2,2\] is zero"):
        graphc.tensor([[1.0, 2.0], [2.0, 4.0]]).lu()
    with pytest.raises(RuntimeError, match=r"lu_factor: U\[1,1\] is zero"):
        graphc.compile(lambda x: graphc.linalg.lu_factor(x))(graphc.zeros(2, 2))
