"""Native draws against the NumPy backend's, to the bit: values and the state after them."""

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.backends.llvm import stream
from graphc.backends.llvm.library import Library
from graphc.backends.llvm.linked import linked
from graphc.backends.llvm.stream import FUNCTIONS, functions
from graphc.backends.numpy import random as reference
from graphc.engine import draws
from graphc.frontend.placement import wrap_runners
from graphc.ir import dtypes

# around a vector, a block of normal numbers, the words of a state, and a chunk
COUNTS = (0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 311, 312, 313, 623, 624, 625, 1249, 33000, 65552)
FLOATS = (dtypes.f32, dtypes.f64, dtypes.bf16, dtypes.f16)
PARTS = (0.0, 1.0, 0.5, 0.1, 2**-53, 5e-324, 1 - 2**-53, float(np.float32(0.9)))
RANGES = (
    (0, 10), (-5, 7), (0, 1), (0, 2**28 - 1), (0, 2**28), (0, 2**31), (-3, 2**40),
    (-(2**63), 2**63 - 1),
)


@pytest.fixture(scope="module")
def native() -> Mapping[str, Any]:
    return functions(None)


def cases(name: str) -> list[dict[str, Any]]:
    if name == "rng_permutation":
        return [{"n": count} for count in COUNTS]
    if name == "rng_randint":
        kinds = itertools.cycle((dtypes.i64, dtypes.i32, dtypes.f32, dtypes.u8))
        return [{"shape": (count,), "low": low, "high": high, "dtype": next(kinds)}
                for count in COUNTS[::3] for low, high in RANGES]
    counts = [count for count in COUNTS if count > 15 or name != "rng_normal"]
    floats = [{"shape": (count,), "dtype": dtype} for count in counts for dtype in FLOATS]
    if name == "rng_bernoulli":
        return [{**case, "p": p} for case in floats[::3] for p in PARTS]
    return floats


def test_what_parameters_begin_with_is_compiled_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counted(name: str, *rest: Any, **options: Any) -> Library:
        made.append(name)
        return linked(name, *rest, **options)

    monkeypatch.setattr(stream, "linked", counted)
    found, state = functions(None), reference.seed_state(1)
    out = np.empty(40, np.float32)
    after = found["uniforms_between"](state, out, 2.0, -1.0)
    few, moved = np.empty(40, np.float32), state.copy()
    attrs = {"shape": (40,), "dtype": dtypes.f32}
    draw = found["drawer"]("uniforms_between", {**attrs, "width": 2.0, "low": -1.0})
    if draw is not None:  # this Python's arrays are as they are known
        assert draw(moved, few) is few
        assert np.array_equal(few, out) and np.array_equal(moved, after)
    assert made == ["stream of parameters"]
    values, state = found["rng_uniform"](state, **attrs)
    assert made[1:] == ["stream, uniform"] and np.array_equal(after, state)
    assert np.array_equal(out, np.float32(values.astype(np.float64) * 2.0 - 1.0))
    found["rng_permutation"](state, n=40)
    found["rng_normal"](state, **attrs)  # from uniform numbers
    found["rng_randint"](state, low=0, high=7, **(attrs | {"dtype": dtypes.i64}))
    assert made[2:] == ["stream, integers", "stream, normal"]


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_same_bits(native: Mapping[str, Any], name: str) -> None:
    state = reference.seed_state(20261123)
    for case in cases(name):
        with np.errstate(all="ignore"):
            right = reference.TABLE[name](state, **case)
        before = state.copy()
        found = native[name](state, **case)
        assert np.array_equal(state, before), "the given state is not written"
        for ours, theirs in zip(found, right, strict=True):
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), case
            assert ours.tobytes() == theirs.tobytes(), case
        state = right[1]  # another position each time


def test_shapes(native: Mapping[str, Any]) -> None:
    state = reference.seed_state(3)
    values, _ = native["rng_uniform"](state, shape=(2, 0, 3), dtype=dtypes.f32)
    assert values.shape == (2, 0, 3)
    values, _ = native["rng_normal"](state, shape=(4, 5), dtype=dtypes.f32)
    flat, _ = native["rng_normal"](state, shape=(20,), dtype=dtypes.f32)
    assert values.tobytes() == flat.tobytes()


def test_a_state_from_elsewhere(native: Mapping[str, Any]) -> None:
    """A position that no state has is never followed into memory."""
    few = draws.Native(lambda: native)
    serving = draws.functions(few)
    serving["rng_uniform"](reference.seed_state(1), shape=(5000,), dtype=dtypes.f32)
    state = reference.seed_state(3)
    state[624] = 5000
    for position in (5000, -1, 625):
        state[624] = position
        assert few.between(state, 10) is None
        for table in (serving, reference.TABLE):
            with pytest.raises(ValueError, match=f"position is 0 to 624, not {position}"):
                table["rng_uniform"](state, shape=(10,), dtype=dtypes.f32)


BOUNDS = (
    (-0.05, 0.05), (0.1, 0.1), (-1e-45, 1e-45), (-1e38, 2e38), (0.0, math.inf),
    (-math.inf, 0.0), (1, 2), (-(2**70), 2**70), (0.0, 1e-300),
)


@pytest.mark.parametrize("low, high", BOUNDS)
def test_memory_is_filled_with_the_bits_of_operators(low: float, high: float) -> None:
    """uniform_ on float32 memory, on that of a view, and as anybody watches."""
    big = graphc.empty(2, 20_001)
    odd = graphc.empty(77, 3).t()  # goes operator by operator
    seen: list[str] = []

    def watch(run: Any) -> Any:
        return lambda op, arrays, attrs: seen.append(op.name) or run(op, arrays, attrs)

    for tensor in (big, big[0], big[:, :9], big[1, 5:5], odd, graphc.empty(())):
        graphc.manual_seed(11)
        graphc.rand(3)
        version = tensor._version
        assert tensor.uniform_(low, high) is tensor and tensor._version == version + 1
        found, state = tensor.clone(), graphc.get_rng_state()
        graphc.manual_seed(11)
        graphc.rand(3)
        end = wrap_runners(watch)
        try:
            tensor.uniform_(low, high)
        finally:
            end()
        assert found.numpy().tobytes() == tensor.clone().numpy().tobytes()
        assert graphc.equal(state, graphc.get_rng_state())
    assert "rng_uniform" in seen


def test_filling_is_an_operation_like_others() -> None:
    x = graphc.zeros(5000)
    shown = x.view(50, 100)
    square = (graphc.ones(5000, requires_grad=True) * x).sum()
    x.uniform_(1, 2)
    assert shown[3, 3] == x[303] and 1 <= float(x.min()) < float(x.max()) < 2
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        square.backward()
    leaf = graphc.zeros(5000, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        leaf.uniform_(1, 2)
    with graphc.no_grad():
        assert float(leaf.uniform_(1, 2).detach().min()) >= 1
    own = graphc.Generator().manual_seed(5)
    first = graphc.empty(5000).uniform_(-1, 1, generator=own)
    again = graphc.empty(5000).uniform_(-1, 1, generator=own.manual_seed(5))
    assert graphc.equal(first, again) and not graphc.equal(first, first.clone().uniform_(-1, 1))
    fixed = np.zeros(5000, np.float32)
    fixed.flags.writeable = False
    with pytest.raises(RuntimeError, match="read-only"):
        graphc.from_numpy(fixed).uniform_(1, 2)


def test_names_agree() -> None:
    assert set(draws.NAMES) == set(FUNCTIONS)
    assert sorted((*stream.FIRST, *itertools.chain(*stream.LIBRARIES.values()))) == sorted(
        stream.SIGNATURES
    )


def test_loaded_when_it_pays(native: Mapping[str, Any]) -> None:
    """Few numbers load nothing; then native code serves, asked for once."""
    asked = []
    few = draws.Native(lambda: asked.append(1) or native)
    for _ in range(60):
        assert few.wanted(3)["rng_normal"] is reference.TABLE["rng_normal"]
    assert not asked
    assert few.wanted(4096)["rng_normal"] is native["rng_normal"]
    assert few.wanted(1)["rng_poisson"] and len(asked) == 1


def test_without_a_compiler() -> None:
    def load() -> Mapping[str, Any]:
        raise ImportError("no llvmlite", name="llvmlite")

    assert draws.Native(load).wanted(10**6)["rng_normal"] is reference.TABLE["rng_normal"]
