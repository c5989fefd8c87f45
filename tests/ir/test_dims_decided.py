"""What is known of symbolic sizes whatever they are: it is decided without a guard."""

from __future__ import annotations

import itertools

import pytest

from graphc.ir.dim import Dim, DimEnv, Guard, evaluate, maximum, minimum
from graphc.ir.dim_bounds import decided, least

N, M, K = map(Dim.var, "nmk")
SIZES = {
    "product": M * N, "factor": M, "number": 4, "multiple": 4 * N, "less": N - 1, "more": N + 1,
    "square": N * N, "half": (N + 1) // 2, "rest": N % 3, "smaller": minimum(N, M),
    "larger": maximum(N, 3), "windows": 4 * M * N - 2 * M - 2 * N + 1, "cube": N * N * N * M * K,
}


@pytest.mark.parametrize("pair", [*itertools.permutations(SIZES, 2)], ids=" ".join)
def test_what_is_decided_is_so(pair: tuple[str, str]) -> None:
    left, right = (SIZES[name] for name in pair)
    tried = itertools.product((2, 3, 5), repeat=3)
    values = [dict(zip("nmk", each, strict=True)) for each in tried]
    for relation in ("eq", "le"):
        known = decided(relation, left, right)
        if known is not None:
            assert all(Guard(relation, left, right, known).check(each) for each in values)
    assert all(least(left) <= evaluate(left, each) or least(left) == -1 for each in values)


def test_what_is_known_leaves_no_guard() -> None:
    env = DimEnv()
    for name in "nmk":
        env.new(name, 7)
    assert not env.equal(M * N, M) and not env.equal(4 * N, 4) and not env.at_most(12 * N, 12)
    assert env.at_most(N - 1, N) and env.at_most(M + N, M * N) and env.at_most(3, 2 * N + 1)
    assert not env.guards
    assert not env.equal(N - 1, 1) and not env.at_most(N, 4) and env.equal(M, N)
    assert len(env.guards) == 3
