"""Random numbers on the device: from a counter, in eager mode as in compiled code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import config

DRAWS: dict[str, Callable[[str], Any]] = {
    "rand": lambda device: graphc.rand(40, device=device),
    "randn": lambda device: graphc.randn(3, 20, device=device),
    "randint": lambda device: graphc.randint(3, 900, (40,), device=device),
    "dropout": lambda device: graphc.nn.functional.dropout(graphc.ones(60, device=device), 0.3),
    "two": lambda device: graphc.rand(5, device=device) + graphc.rand(5, device=device),
}


def drawn(function: Callable[[str], Any], device: str) -> np.ndarray:
    graphc.manual_seed(3)
    found: np.ndarray = function(device).cpu().numpy()
    return found


@pytest.mark.parametrize("name", DRAWS)
def test_eager_mode_draws_what_compiled_code_draws(name: str) -> None:
    """And what the host draws of a counter, but for a function's last bits."""
    eager = drawn(DRAWS[name], "cuda")
    compiled = graphc.compile(DRAWS[name], fullgraph=True)
    np.testing.assert_array_equal(drawn(compiled, "cuda"), eager)
    with config.override(random="counter"):
        np.testing.assert_allclose(drawn(DRAWS[name], "cpu"), eager, rtol=1e-5, atol=1e-5)
    assert not np.array_equal(drawn(DRAWS[name], "cpu"), eager)


def test_the_stream_can_be_asked_for() -> None:
    with config.override(random="torch"):
        for name in ("rand", "randn"):
            want = drawn(DRAWS[name], "cpu")
            np.testing.assert_array_equal(drawn(DRAWS[name], "cuda"), want)


def test_a_draw_goes_on_where_the_last_one_ended() -> None:
    graphc.manual_seed(3)
    first, second = (graphc.rand(40, device="cuda").cpu().numpy() for _ in range(2))
    assert not np.array_equal(first, second)
