"""Eager operators on few numbers by NumPy's inner loops: NumPy's bits, or NumPy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc import backends, config
from graphc.backends import numpy as host
from graphc.backends.host.inner_loops import loop_of
from graphc.engine import eager_mode, eager_rows, rows_code
from graphc.ir.dim import DimEnv
from graphc.ir.dtypes import from_numpy
from graphc.ir.op import REGISTRY
from graphc.ir.types import TensorType
from graphc.nn import functional as F

CROSS = {"ignore_index": -100, "label_smoothing": 0.0}
POOL = {"stride": (2, 1), "pad_low": (0, 0), "pad_high": (0, 0), "dilation": (1, 2)}


def windows(
    window: tuple[int, ...], stride: int, low: int, high: int, dilation: int, last: bool = False
) -> dict[str, Any]:
    """Attributes; `last`: of planes whose channels are the last dim, which no window goes along."""
    given = {"stride": stride, "pad_low": low, "pad_high": high, "dilation": dilation}
    beside = {"stride": 1, "pad_low": 0, "pad_high": 0, "dilation": 1}
    every = {
        name: (value,) * len(window) + (beside[name],) * last for name, value in given.items()
    }
    return {"window": (*window, *[1] * last), **every}


WINDOWS = [
    windows((2, 2), 1, 0, 0, 1), windows((2, 3), 2, 1, 1, 1), windows((2, 2), 3, 0, 1, 1),
    windows((2,), 2, 1, 0, 2), windows((3,), 1, 0, 0, 1), windows((1, 2), 1, 0, 0, 3),
    windows((2, 2), 1, 0, 0, 1, True), windows((2, 2), 2, 1, 1, 1, True),
    windows((3, 4), 1, 1, 2, 1), windows((2, 2), 3, 0, 1, 2, True), windows((2, 3), 4, 1, 1, 1),
]


@pytest.fixture(autouse=True)
def at_hand(monkeypatch: pytest.MonkeyPatch) -> Iterator[eager_rows.Native]:
    """The code is loaded at the first call that asks for it."""
    monkeypatch.setattr(eager_rows, "_ENOUGH", 0)
    found = eager_rows.Native()
    monkeypatch.setattr(eager_rows, "native", found)
    if found.function("sigmoid", "f", (1, 1, 4, 0)) is None:
        pytest.skip("no compiler for this machine, or another NumPy")
    yield found


def types_of(arrays: list[np.ndarray]) -> tuple[TensorType, ...]:
    return tuple([TensorType(from_numpy(a.dtype), a.shape) for a in arrays])


def prepared(name: str, arrays: list[np.ndarray], attrs: dict[str, Any]) -> Any:
    op, types = REGISTRY[name], types_of(arrays)
    result = op.infer(types, attrs, DimEnv())
    results = (result,) if isinstance(result, TensorType) else result.elements
    ready = host.prepare(op, types, attrs, results)
    return ready, eager_rows.prepare(op, types, attrs, results, ready)


def numbers(rng: Any, shape: tuple[int, ...], dtype: str, odd: bool) -> np.ndarray:
    found: np.ndarray = (rng.standard_normal(shape) * 4).astype(dtype)
    flat = found.reshape(-1)
    if odd and flat.size:
        for value in (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40):
            flat[rng.integers(flat.size)] = value
    return found


def cases(rng: Any, dtype: str, odd: bool) -> Iterator[tuple[str, list[np.ndarray], Any]]:
    rows, width = (int(rng.integers(1, top)) for top in (20, 140))
    x = numbers(rng, (rows, width), dtype, odd)
    w, b = numbers(rng, (width,), dtype, False), numbers(rng, (width,), dtype, False)
    yield "softmax", [x], {"dim": 1}
    yield "softmax", [x.reshape(rows, 1, width)], {"dim": 2}
    yield "log_softmax", [x], {"dim": 1}
    for name in ("cummax", "cummin"):
        yield name, [x], {"dim": 1}
        yield name, [np.round(x)], {"dim": 1}  # equals, zeros of both signs among them
    yield "sigmoid", [x], {}
    for name in ("sum", "amax", "amin"):
        yield name, [x], {"dims": (1,), "keepdim": bool(rows % 2)}
        yield name, [x.reshape(-1, 1, width)], {"dims": (0, 1, 2), "keepdim": False}
    for reduction in ("none", "sum", "mean"):
        target = rng.integers(0, width, rows)
        yield "cross_entropy", [x, target], {**CROSS, "reduction": reduction}
        yield "nll_loss", [x, target], {"ignore_index": -100, "reduction": reduction}
        some = np.where(rng.random(rows) < 0.4, -100, target)
        for ignored, given in ((-100, some), (int(target[0]), target), (0, target * 0)):
            left_out = {"ignore_index": ignored, "reduction": reduction}
            yield "cross_entropy", [x, given], {**CROSS, **left_out}
            yield "nll_loss", [x, given], left_out
    for several in ([], [w], [w, b]):
        yield "layer_norm", [x, *several], {"normalized_dims": (1,), "eps": 1e-5}
    batch, channels, height = (int(rng.integers(2, 6)) for _ in range(3))
    y = numbers(rng, (batch, channels, height, 7), dtype, odd)
    scale = numbers(rng, (channels,), dtype, False)
    yield "batch_norm", [y], {"eps": 1e-5}
    samples = numbers(rng, (batch + 7, channels), dtype, odd)
    yield "batch_norm", [samples], {"eps": 1e-5}
    yield "batch_norm", [samples, scale, scale[::-1].copy()], {"eps": 1e-3}
    yield "batch_norm", [y, scale, scale[::-1].copy()], {"eps": 1e-3}
    yield "batch_norm", [y[:1].copy(), scale, scale], {"eps": 1e-3}
    yield "max_pool", [y], {"window": (2, 3), **POOL}
    yield from (("max_pool", [y], attrs) for attrs in WINDOWS)
    yield from (("window_sum", [y[:2, :2].copy()], attrs) for attrs in WINDOWS)
    large = numbers(rng, (3, 5, 29, 31), dtype, odd)
    yield "max_pool", [large], windows((3, 3), 1, 1, 1, 1)
    yield "max_pool", [large], windows((3, 2), 2, 1, 1, 2)
    yield "max_pool", [large], windows((2, 3), 2, 1, 1, 1, True)


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("odd", [False, True])
def test_the_bits_are_numpys(dtype: str, odd: bool, at_hand: Any) -> None:
    rng = np.random.default_rng(3)
    for name, arrays, attrs in (case for _ in range(8) for case in cases(rng, dtype, odd)):
        ready, quick = prepared(name, arrays, attrs)
        plan = eager_rows._PLANS[name](types_of(arrays), **attrs)
        assert plan is not None
        code = at_hand.function(plan.name, dtype, [*plan.sizes, *plan.own])
        expected = ready(*arrays)
        expected = expected if type(expected) is tuple else (expected,)
        new = [np.full_like(a, 77) for a in expected]
        assert code(*plan.given(arrays, new)) is not None
        for ours, right in zip(new, expected, strict=True):
            assert ours.tobytes() == right.tobytes(), (name, attrs, [a.shape for a in arrays])
        for _ in range(4):  # held against NumPy, and then alone
            found = quick(*arrays)
            for ours, right in zip(
                found if type(found) is tuple else (found,), expected, strict=True
            ):
                assert ours.shape == right.shape and ours.tobytes() == right.tobytes()


def test_what_is_not_for_the_code() -> None:
    x = np.ones((4, 4), np.float32)
    for name, arrays, attrs in (
        ("softmax", [x], {"dim": 0}),
        ("softmax", [np.ones((70, 70), np.float32)], {"dim": 1}),
        ("softmax", [x.astype(np.float16)], {"dim": 1}),
        ("softmax", [np.ones((0, 4), np.float32)], {"dim": 1}),
        ("sigmoid", [np.ones((), np.float32)], {}),
        ("layer_norm", [x], {"normalized_dims": (0, 1), "eps": 1e-5}),
        ("batch_norm", [np.ones((3, 1, 2, 2), np.float32)], {"eps": 1e-5}),
        ("batch_norm", [np.ones((3, 1), np.float32)], {"eps": 1e-5}),
        ("batch_norm", [np.ones((40, 40), np.float32)], {"eps": 1e-5}),
        ("cross_entropy", [x, np.arange(4), x[0]], {**CROSS, "reduction": "mean"}),
        ("cross_entropy", [x, np.arange(4)], {
            "ignore_index": -100, "label_smoothing": 0.5, "reduction": "mean"
        }),
        ("max_pool", [x[:2, :2].copy()], windows((2, 2), 1, 1, 1, 3)),  # of padding alone
        ("max_pool", [x.reshape(1, 2, 2, 4)], windows((2, 2, 2), 1, 0, 0, 1)),
        ("window_sum", [np.ones((64, 64), np.float32)], windows((2, 2), 1, 0, 0, 1)),
    ):
        assert prepared(name, arrays, attrs)[1] is None, (name, attrs)


def test_layouts_and_class_numbers_are_asked_at_each_call() -> None:
    a = torch.rand(4, 4)
    turned, right = a.t(), F.softmax(a.t().contiguous(), 1)
    for _ in range(6):
        F.softmax(a, 1)
        assert torch.equal(F.softmax(turned, 1), right)
        assert torch.sigmoid(a).stride() == (4, 1) and torch.sigmoid(turned).stride() == (1, 4)
    classes = torch.tensor([0, 1, 2, 3])
    for _ in range(6):
        F.cross_entropy(a, classes)
    for wrong in ([0, 1, 2, 4], [0, -1, 2, 3]):
        with pytest.raises(IndexError):
            F.cross_entropy(a, torch.tensor(wrong))
    assert F.cross_entropy(a, torch.tensor([0, -100, 2, 3])).isfinite()


def test_a_result_is_nobody_elses() -> None:
    norm = torch.nn.LayerNorm(4)
    x, y = torch.rand(3, 4), torch.rand(3, 4)
    for _ in range(4):
        first, second = norm(x), norm(y)
        kept = first.detach().clone()
        norm(y)
        assert torch.equal(first, kept) and not torch.equal(first, second)


def test_where_the_code_is_wrong_numpy_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def wrong(*arrays: Any) -> Any:
        asked.append(1)
        arrays[-1].fill(3)
        return arrays[-1]

    monkeypatch.setattr(eager_rows.native, "function", lambda *_: wrong)
    _, quick = prepared("softmax", [np.ones((2, 2), np.float32)], {"dim": 1})
    for _ in range(9):
        assert quick(np.ones((2, 2), np.float32)).tolist() == [[0.5, 0.5]] * 2
    assert len(asked) == 1


def test_it_is_loaded_when_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager_rows, "_ENOUGH", 5)
    late = eager_rows.Native()
    found = [late.function("sigmoid", "f", (1, 1, 4, 0)) for _ in range(6)]
    assert [each is None for each in found] == [True] * 4 + [False] * 2


def test_it_can_be_switched_off() -> None:
    op, types = REGISTRY["sigmoid"], types_of([np.ones(4, np.float32)])
    with config.override(eager_kernels="0"):
        assert not eager_mode.prepare(op, types, {}, types).__qualname__.startswith("_held")
    assert eager_mode.prepare(op, types, {}, types).__qualname__.startswith("_held")


def test_loops_that_are_not_as_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert loop_of(np.exp, np.dtype(np.float32)) is not None
    assert loop_of(np.exp, np.dtype(np.int64)) is None
    monkeypatch.setattr("graphc.backends.host.inner_loops._TYPES", 56)
    assert loop_of(np.exp, np.dtype(np.float32)) is None
    assert eager_rows.Native().function("sigmoid", "f", (1, 1, 4, 0)) is None


def test_threads() -> None:
    inputs = [torch.rand(5, 6) for _ in range(4)]
    norm = torch.nn.LayerNorm(6)
    right = [norm(x) for x in inputs]
    differs: list[int] = []

    def work(i: int) -> None:
        for _ in range(300):
            if not torch.equal(norm(inputs[i]), right[i]):
                differs.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not differs


def test_it_is_kept_for_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends.get("llvm"), "keeps", True)
    with config.override(cache_dir=tmp_path):
        assert rows_code.Code(16).function("sigmoid", "d", (1, 1, 4, 0)) is not None
        (kept,) = tmp_path.glob("**/*.linked")
        before = kept.stat().st_mtime_ns
        rows_code.Code(16)
    assert [each.stat().st_mtime_ns for each in tmp_path.glob("**/*.linked")] == [before]
