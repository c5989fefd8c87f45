"""Random numbers where a machine links the code of parameters' draws, and none of the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc.backends.numpy.ops import TABLE
from graphc.backends.numpy.random import seed_state
from graphc.engine import draws
from graphc.ir import dtypes


def unlinked(*args: Any, **attrs: Any) -> Any:
    raise OSError("cannot be linked here")


def loaded() -> Any:
    functions = dict.fromkeys(draws.NAMES, unlinked)
    return {**functions, "drawer": unlinked, "uniforms_between": len}


def test_numpy_draws_what_cannot_be_linked() -> None:
    native = draws.Native(loaded)
    function, state = draws.functions(native)["rng_normal"], seed_state(3)
    attrs = {"shape": (5000,), "dtype": dtypes.f32}
    found, after = function(state, **attrs)
    expected, left = TABLE["rng_normal"](state, **attrs)
    assert found.tobytes() == expected.tobytes() and np.array_equal(after, left)
    assert native.between(state, 5000) is len  # which was linked
    assert function(state, **attrs)[0].tobytes() == expected.tobytes()


def test_few_numbers_are_drawn_by_numpy_where_nothing_else_does() -> None:
    native = draws.Native(loaded)
    native.wanted(10**6)
    assert native.drawer("rng_uniform", {"shape": (2,), "dtype": dtypes.f32}) is None
    assert native.wanted(10**6)["rng_uniform"] is TABLE["rng_uniform"]


def test_another_library_that_is_missing_is_an_error() -> None:
    def load() -> Any:
        def broken(*args: Any, **attrs: Any) -> Any:
            raise ModuleNotFoundError("nothing", name="other")

        return dict.fromkeys(draws.NAMES, broken)

    function = draws.functions(draws.Native(load))["rng_uniform"]
    with pytest.raises(ModuleNotFoundError):
        function(seed_state(1), shape=(5000,), dtype=dtypes.f32)
    assert graphc.rand(3).shape == (3,)
