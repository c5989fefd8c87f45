"""Complex numbers against PyTorch: arithmetic, parts that share memory, gradients, printing.

torch's gradient of a complex number is that of its parts, as one number.
"""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest

import graphc
from tests.linalg.compare import compare, sample, torch

X, Y = sample(3, 4, kind="complex"), sample(3, 4, kind="complex", seed=1) + 2

UNARY = """
    exp log sqrt sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh reciprocal rsqrt square
    sigmoid neg abs angle sgn conj log2 log10 log1p expm1 real imag
""".split()


def _moves(t: Any, a: Any) -> Any:
    index = t.zeros(3, 2, dtype=t.int64)
    return (
        a.T, a.mH, a.reshape(2, 6), a[1:], a[[0, 2]], t.cat([a, a]), a.flip(0), a.roll(1, 0),
        t.where(a.real > 0, a, a * 2), a.gather(1, index), a.tril(), a.expand(2, 3, 4),
        a.diagonal(), t.stack([a, a]),
    )


def _writes(t: Any, a: Any) -> Any:
    b = a * 1
    b.real.mul_(2)
    b.imag[0] = 1
    b[1] *= 1j
    return b


# name -> function of the namespace and arrays
TABLE: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "with numbers": (lambda t, a: (a * 2j, a + 1, 1j - a, a / (1 + 1j), 2 / a, a * 1.5), (X,)),
    "real with numbers": (lambda t, a: (a * 2j, a + 1j), (X.real.copy(),)),
    "powers": (lambda t, a: (a**2, a**3, a**-1, a**0.5, a ** (1 + 1j), 2**a), (X,)),
    "reductions": (
        lambda t, a: (a.sum(), a.mean(), a.sum(1), a.mean(0, keepdim=True), a.prod(1), a.cumsum(0),
                      a.cumprod(1)), (X,),
    ),
    "products": (
        lambda t, a, b: (a @ b.mT, a @ b[0], t.einsum("ij,kj->ik", a, b), t.mm(a, b.mH)), (X, Y)
    ),
    "moves": (_moves, (X,)),
    "views": (
        lambda t, a: (t.view_as_real(a), t.view_as_complex(t.view_as_real(a) * 2),
                      a.real * a.imag), (X,),
    ),
    "complex": (
        lambda t, a, b: (t.complex(a, b), t.polar(a, b)), (np.abs(X), X.imag.copy())
    ),
    "norm": (lambda t, a: (t.norm(a), a.norm(dim=1), t.linalg.norm(a)), (X,)),
    "writes": (_writes, (X,)),
    "casts": (lambda t, a: (a.to(t.complex64).to(t.complex128), a.real.to(t.complex128)), (X,)),
    **{name: (lambda t, a, n=name: getattr(t, n)(a), (X * 0.5,)) for name in UNARY},
    **{
        name: (
            lambda t, a, b, c, n=name: (
                getattr(t, n)(a, b), getattr(t, n)(a, c), getattr(t, n)(c, a)
            ),
            (X, Y, np.abs(Y)),
        )
        for name in ("add", "sub", "mul", "div", "pow")
    },
}
COMPILED = {"with numbers", "reductions", "products", "views", "writes", "exp", "abs", "add"}


@pytest.mark.parametrize("name", sorted(TABLE))
def test_eager(name: str) -> None:
    function, arrays = TABLE[name]
    compare(function, *arrays, twice=name not in ("casts", "writes"), tolerance=1e-6)


@pytest.mark.parametrize(
    "name", [n if n in COMPILED else pytest.param(n, marks=pytest.mark.slow) for n in sorted(TABLE)]
)
def test_compiled(name: str) -> None:
    function, arrays = TABLE[name]
    compare(function, *arrays, compiled=True, tolerance=1e-6)


def test_comparisons() -> None:
    compare(
        lambda t, a, b: (a == b, a != b, a == a, t.isnan(a), t.isreal(a), t.isfinite(a)), X, Y,
        grad=False,
    )
    with pytest.raises(NotImplementedError, match="not implemented for 'ComplexFloat'"):
        _ = graphc.ones(2, dtype=graphc.complex64) < 1


def test_parts_share_memory() -> None:
    x = graphc.tensor([1 + 2j, 3 - 1j])
    x.real[0] = 7
    x.imag = graphc.tensor([0.0, 5.0])
    assert x.tolist() == [7 + 0j, 3 + 5j]
    pairs = graphc.view_as_real(x)
    pairs[1] = 1
    assert x[1].item() == 1 + 1j
    assert pairs.stride() == (2, 1) and graphc.view_as_complex(pairs).data_ptr() == x.data_ptr()
    assert np.shares_memory(x.numpy(), pairs.numpy())


def test_a_view_of_parts_is_copied_and_saved_as_complex() -> None:
    z = graphc.view_as_complex(graphc.randn(3, 2))
    assert (copy.deepcopy(z) == z).all() and (pickle.loads(pickle.dumps(z)) == z).all()
    file = io.BytesIO()
    graphc.save(z, file)
    file.seek(0)
    assert torch.load(file).numpy().tolist() == z.tolist()


def test_random_numbers_are_torchs() -> None:
    cases = (("complex64", 20), ("complex64", 5), ("complex128", 20), ("complex128", 3))
    for dtype, count in cases:
        for name in ("randn", "rand"):
            torch.manual_seed(3)
            graphc.manual_seed(3)
            theirs = getattr(torch, name)(count, dtype=getattr(torch, dtype))
            ours = getattr(graphc, name)(count, dtype=getattr(graphc, dtype))
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


EXPRESSIONS = """
    t.tensor([1+1e-5j, 1000.5-2j])
    t.tensor([[1j,2],[3,float('nan')]])
    t.full((2,),1+2j)
    t.tensor(1j).item()
    t.arange(3)*1j
    t.zeros(2,dtype=t.cdouble)
    t.zeros(0,dtype=t.complex64)
    t.result_type(t.ones(2).double(),1j)
    t.result_type(t.ones(2),t.tensor(1j,dtype=t.complex128))
    t.promote_types(t.float64,t.complex64)
    t.ones(2,dtype=t.complex64).tolist()
    t.tensor([1j])==1j
    bool(t.tensor(1j))
    t.ones(2)+t.ones(2)*1j
    t.tensor([3+4j]).abs()
    t.complex64.is_complex
    t.is_complex(t.tensor(1j))
    t.complex64.to_real()
    complex(t.tensor(2j))
""".split("\n")


@pytest.mark.parametrize("text", [e.strip() for e in EXPRESSIONS if e.strip()])
def test_printed(text: str) -> None:
    assert repr(eval(text, {"t": graphc})) == repr(eval(text, {"t": torch}))


ERRORS = """
    t.ones(2).imag
    t.view_as_complex(t.ones(3))
    t.view_as_complex(t.ones(2,4)[:,1:3].t())
    t.tensor([1.5]).add_(1j)
    t.tensor([1+2j]).sign()
    t.tensor([1j]).sort()
    t.complex(t.ones(2),t.ones(2).double())
""".split("\n")


@pytest.mark.parametrize("text", [e.strip() for e in ERRORS if e.strip()])
def test_errors(text: str) -> None:
    with pytest.raises(Exception) as theirs:
        eval(text, {"t": torch})
    with pytest.raises(Exception) as ours:
        eval(text, {"t": graphc})
    assert isinstance(ours.value, type(theirs.value))
    assert str(theirs.value).strip().splitlines()[0] in str(ours.value)


def test_rotary_embedding() -> None:
    def rotated(t: Any, x: Any, angles: Any) -> Any:
        turns = t.polar(t.ones_like(angles), angles)
        pairs = t.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return t.view_as_real(pairs * turns).flatten(2)

    for compiled in (False, True):
        compare(rotated, sample(2, 5, 8), sample(5, 4), compiled=compiled)


def test_a_complex_result_needs_a_gradient() -> None:
    x = graphc.ones(3, dtype=graphc.complex64, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"only for real scalar outputs but got torch\.complex"):
        x.sum().backward()
    x.sum().backward(graphc.tensor(1j))
    assert x.grad.tolist() == [1j] * 3


def test_a_training_step_with_a_complex_parameter() -> None:
    def train(t: Any, compiled: bool) -> list[float]:
        weight = t.nn.Parameter(t.tensor(sample(4, 4, kind="complex")))
        data = t.tensor(sample(8, 4))
        optimizer = t.optim.SGD([weight], lr=0.1)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = (t.fft.ifft(t.fft.fft(x) @ weight).real ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        run = graphc.compile(step) if compiled else step
        return [float(run(data).detach()) for _ in range(3)]

    want = train(torch, False)
    np.testing.assert_allclose(train(graphc, False), want, rtol=1e-10)
    np.testing.assert_allclose(train(graphc, True), want, rtol=1e-10)
