"""torch.quasirandom: Sobol sequences, against PyTorch, bit for bit."""

from typing import Any

import pytest

import graphc
from graphc import quasirandom

torch = pytest.importorskip("torch")

USES: dict[str, Any] = {
    "one at a time": lambda e: [e.draw(), e.draw(), e.draw()],
    "batches": lambda e: [e.draw(3), e.draw(1), e.draw(6)],
    "by powers": lambda e: [e.draw_base2(3), e.draw_base2(3), e.draw_base2(4)],
    "left out": lambda e: [e.fast_forward(5).draw(2), e.fast_forward(1000003).draw(3)],
    "left out late": lambda e: [e.draw(4), e.fast_forward(0).fast_forward(1).draw(3)],
    "again": lambda e: [e.draw(3), e.reset().draw(2), e.num_generated],
    "shown": lambda e: [repr(e), e.dimension, e.MAXBIT, e.MAXDIM],
}


def sides(dimension: int, **options: Any) -> list[Any]:
    found = []
    for t in (torch, graphc):
        t.manual_seed(7)
        found.append(t.quasirandom.SobolEngine(dimension, **options))
    return found


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("options", [{}, {"scramble": True}, {"scramble": True, "seed": 3}])
def test_points(use: str, options: dict[str, Any]) -> None:
    want, have = (USES[use](engine) for engine in sides(40, **options))
    for a, b in zip(want, have, strict=True):
        assert a.tolist() == b.tolist() if isinstance(a, torch.Tensor) else a == b


@pytest.mark.parametrize("options", [{}, {"scramble": True}])
def test_every_dimension(options: dict[str, Any]) -> None:
    want, have = sides(quasirandom._KNOWN, **options)
    assert (want.sobolstate.numpy() == have.sobolstate.numpy()).all()
    assert (want.draw(9).numpy() == have.draw(9).numpy()).all()


def test_dtypes_and_a_given_result() -> None:
    want, have = sides(3, scramble=True)
    for name in ("float64", "float32"):
        a, b = (e.draw(5, dtype=getattr(t, name)) for t, e in ((torch, want), (graphc, have)))
        assert str(a.dtype) == str(b.dtype).replace("graphc", "torch") and a.tolist() == b.tolist()
    given = [t.empty(0) for t in (torch, graphc)]
    made = [e.draw(2, out=out) for e, out in zip((want, have), given, strict=True)]
    assert made[1] is given[1] and made[0].tolist() == made[1].tolist()


def test_errors() -> None:
    for engine in sides(3):
        with pytest.raises(RuntimeError, match="Trying to create tensor with negative dimension"):
            engine.draw(0)
        engine.draw(3)
        with pytest.raises(ValueError, match=r"n to be a power of 2\. 3 points have been"):
            engine.draw_base2(1)
        for dimension in (0, 21202):
            with pytest.raises(ValueError, match=r"Supported range of dimensionality for Sobol"):
                type(engine)(dimension)
    with pytest.raises(ValueError, match="direction numbers for 1111 dimensions, not for 2000"):
        quasirandom.SobolEngine(2000)
