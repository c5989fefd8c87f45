"""Numbers and sizes under compile() are Python's.

Each line of the tables runs compiled with changing numbers, or tensors of changing sizes, and must
give what PyTorch gives for plain ints and floats: the same values, types, dtypes, shapes and kinds
of errors. Then: how often a function is compiled for that.
"""

from __future__ import annotations

import ast
import collections
import copy
import decimal
import fractions
import itertools
import json
import math
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.engine.built import CompileCounter
from tests.graphc.number_calls_python import PYTHON
from tests.graphc.number_calls_tensor import TENSOR
from tests.reference import torch

_NAMES = {
    "collections": collections, "copy": copy, "decimal": decimal, "fractions": fractions,
    "itertools": itertools, "json": json, "math": math, "np": np, "operator": operator,
    "pickle": pickle,
}


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def _call(text: str) -> Callable[..., Any]:
    made: Callable[..., Any] = eval(f"lambda T, F, x, n, img: ({text})", dict(_NAMES))
    return made


def _plain(value: Any, T: Any) -> Any:
    """A result as types and values that can be compared."""
    if isinstance(value, T.Tensor):
        return "tensor", str(value.dtype).replace("graphc", "torch"), value.detach().numpy()
    if isinstance(value, (T.Size, list, tuple)):
        kind = "Size" if isinstance(value, T.Size) else "list" if type(value) is list else "tuple"
        return kind, [_plain(item, T) for item in value]
    if isinstance(value, dict):
        return type(value), [(_plain(k, T), _plain(v, T)) for k, v in value.items()]
    if isinstance(value, (set, frozenset)):
        return type(value), [_plain(item, T) for item in sorted(value)]
    return type(value), value


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float):
        return math.isclose(a, b, rel_tol=1e-6) or (a != a and b != b)
    return bool(a == b)


def _outcome(function: Callable[..., Any], T: Any, x: Any, n: Any, img: Any) -> Any:
    """What a call gives, or the kind of its error."""
    given = [T.from_numpy(x.copy()), n, T.from_numpy(img.copy())]
    try:
        return _plain(function(T.nn.functional, *given), T)
    except Exception as error:
        return "raises", type(error)


def _check(text: str, series: list[tuple[Any, Any, Any]], sizes: bool) -> None:
    call = _call(text)

    def with_graphc(F: Any, x: Any, n: Any, img: Any) -> Any:
        return call(graphc, F, x, x.shape[0] if sizes else n, img)

    def with_torch(F: Any, x: Any, n: Any, img: Any) -> Any:
        return call(torch, F, x, x.shape[0] if sizes else n, img)

    compiled = graphc.compile(with_graphc)
    for x, n, img in series:
        expected = _outcome(with_torch, torch, x, n, img)
        found = _outcome(compiled, graphc, x, n, img)
        if not _same(expected, found):  # a call that eager mode takes otherwise than PyTorch
            expected = _outcome(with_graphc, graphc, x, n, img)
        assert _same(expected, found), (x.shape, n, expected, found)


def _data(size: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(size)
    x = rng.standard_normal((size, 3)).astype("f")
    return x, rng.standard_normal((1, 2, size, size + 1)).astype("f")


@pytest.mark.parametrize("text", _lines(TENSOR + PYTHON))
def test_sizes(text: str) -> None:
    series = [(x, None, img) for x, img in map(_data, (5, 7, 9, 12))]
    _check(text, series, sizes=True)


def _reads_number(text: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "n" for node in ast.walk(ast.parse(text)))


@pytest.mark.parametrize("text", list(filter(_reads_number, _lines(TENSOR + PYTHON))))
def test_ints(text: str) -> None:
    x, img = _data(6)
    _check(text, [(x, n, img) for n in (2, 3, 5, 2, 4)], sizes=False)


@pytest.mark.parametrize("text", list(filter(_reads_number, _lines(PYTHON))))
def test_floats(text: str) -> None:
    x, img = _data(6)
    _check(text, [(x, n, img) for n in (2.5, 3.0, 0.25, 2.5, -0.5)], sizes=False)


# --- how often is compiled -----------------------------------------------------------------------


def _compiles(function: Callable[..., Any], numbers: list[Any], **options: Any) -> list[int]:
    """How often the function is compiled by each call; every call gives what eager mode does."""
    compiled = graphc.compile(function, **options)
    x = graphc.arange(4.0)
    counts = []
    for number in numbers:
        before = CompileCounter.count
        expected, found = _plain(function(x, number), graphc), _plain(compiled(x, number), graphc)
        assert _same(expected, found), (number, expected, found)
        counts.append(CompileCounter.count - before)
    return counts


def test_a_number_is_lifted_at_its_second_value() -> None:
    assert _compiles(lambda x, n: x * n, [2, 3, 5, 2, 7]) == [1, 1, 0, 0, 0]
    assert _compiles(lambda x, n: x * n, [2.5, 3.5, float("nan"), 0.0, -0.0]) == [1, 1, 0, 0, 0]
    assert _compiles(lambda x, n: x + n["a"] * n["b"], [
        {"a": 1, "b": 2}, {"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 2, "b": 3}, {"a": 3, "b": 4},
    ]) == [1, 0, 1, 1, 0]


def test_one_value_is_one_version() -> None:
    nan = float("nan")
    assert _compiles(lambda x, n: x[: round(n)], [2.0, 2.0, 2.0]) == [1, 0, 0]
    assert _compiles(lambda x, n: x + n, [nan, -nan, nan]) == [1, 0, 0]
    # a sign of zero is a value
    signs = _compiles(lambda x, n: f"{n}", [0.0, -0.0, 0.0, -0.0])
    assert signs == [1, 1, 0, 0]


def test_ints_and_floats_of_a_position_are_apart_and_bools_are_no_numbers() -> None:
    numbers = [2, 2.0, 3, 3.0, 4, 4.0, True, False, 5]
    assert _compiles(lambda x, n: x * n, numbers) == [1, 1, 1, 1, 0, 0, 1, 1, 0]


@pytest.mark.parametrize("function", [
    lambda x, n: graphc.arange(n, n + 4) + x,
    lambda x, n: graphc.arange(n + 8, n, -2) + x,
    lambda x, n: graphc.arange(n - 4, n, dtype=graphc.float16) * x,
    lambda x, n: graphc.arange(n, n + 7, 2.0).reshape(2, 2) + 0.5,
])
def test_a_range_starts_anywhere(function: Callable[..., Any]) -> None:
    assert _compiles(function, [2, 3, 5, 2, 17]) == [1, 1, 0, 0, 0]
    assert _compiles(lambda x, n: function(x, n.shape[0]), [
        graphc.ones(size) for size in (2, 3, 5, 2, 17)
    ]) == [1, 1, 0, 0, 0]


def test_a_range_is_differentiable_where_it_is_asked_to_be() -> None:
    def step(x: Any) -> Any:
        n = x.shape[0]
        for dtype, bounds in ((graphc.float32, (n,)), (graphc.float64, (n, n + 3))):
            at = graphc.arange(*bounds, dtype=dtype, requires_grad=True)
            (at * at).sum().backward()
            yield at.grad

    compiled = graphc.compile(lambda x: list(step(x)))
    for size in (3, 4, 6):
        first, second = compiled(graphc.ones(size))
        assert first.tolist() == [2.0 * i for i in range(size)]
        assert second.tolist() == [2.0 * i for i in range(size, size + 3)]


def test_a_comparison_is_decided_and_not_the_number() -> None:
    assert _compiles(lambda x, n: x * n if n > 3 else x, [2, 3, 5, 7, 1, 9]) == [1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize("function", [
    lambda x, n: [x * i for i in range(n)][-1],
    lambda x, n: x[:1].expand(n),
    lambda x, n: {f"{n:d}": x},
    lambda x, n: x * len(f"{n:b}"),
    lambda x, n: {1: "a", 2: "b"}.get(n),
    lambda x, n: json.dumps([n]),
])
def test_a_number_that_is_decided_upon_has_a_version_per_value_then_segments(
    function: Callable[..., Any],
) -> None:
    counts = _compiles(function, [*range(1, 9), *range(1, 14), 3, 12])
    assert counts[:16] == [1] * 8 + [0] * 8
    assert sum(counts[16:]) <= 5  # the segments of five new values


def test_a_text_that_says_a_number_is_no_decision_upon_its_value() -> None:
    counts = _compiles(lambda x, n: (x, f"{n:>4}", str(n) + ".", "%d" % n), [1, 2, 3])  # noqa: UP031
    assert counts == [1, 1, 0]


def test_the_type_of_a_number_is_no_decision_upon_its_value() -> None:
    counts = _compiles(lambda x, n: x * n if type(n) is int else x, [1, 2, 3, 2.5, 3.5, 4.5, 7])
    assert counts == [1, 1, 0, 1, 1, 0, 0]


def test_dynamic_lifts_at_once() -> None:
    assert _compiles(lambda x, n: x * n, [2, 3, 4], dynamic=True) == [1, 0, 0]


def test_whole_graphs_have_no_limit() -> None:
    assert _compiles(lambda x, n: x * len(range(n)), list(range(12)), fullgraph=True) == [1] * 12


def test_ints_have_no_bounds() -> None:
    assert _compiles(lambda x, n: (n**40, n << 90), [2, 3, 5, 7]) == [1, 1, 0, 0]
    assert _compiles(lambda x, n: x * (n * n * n // n), [2, 3, 2**30, 2**30 + 1]) == [1, 1, 0, 0]

    compiled = graphc.compile(lambda x, n: x + n * n)
    for n in (2, 3):
        assert compiled(graphc.zeros(1), n).item() == n * n
    with pytest.raises(OverflowError, match="int too big to convert"):
        compiled(graphc.zeros(1), 2**40)
    assert compiled(graphc.zeros(1), 4).item() == 16
    assert compiled.compile_count == 2


@pytest.mark.parametrize(("function", "number", "error"), [
    (lambda x, n: x + 1 / n, 0, ZeroDivisionError),
    (lambda x, n: x + (1 << n), -1, ValueError),
    (lambda x, n: x + 10.0**n, 400, OverflowError),
    (lambda x, n: x + [1, 2, 3, 4, 5][n], 7, IndexError),
])
def test_errors_of_arithmetic_are_pythons_at_every_call(
    function: Callable[..., Any], number: int, error: type[Exception]
) -> None:
    compiled = graphc.compile(function)
    for n in (1, 2, number, 3, number, 4):
        if n == number:
            with pytest.raises(error):
                compiled(graphc.zeros(2), n)
        else:
            assert compiled(graphc.zeros(2), n).tolist() == function(graphc.zeros(2), n).tolist()


def test_a_call_that_raises_leaves_the_number_lifted() -> None:
    def checked(x: Any, n: int) -> Any:
        if n > 10:
            raise ValueError(f"{n} is too large")
        return x * n

    compiled = graphc.compile(checked)
    x = graphc.ones(2)
    for n in (1, 2, 3, 11, 4, 12, 5):
        if n > 10:
            with pytest.raises(ValueError, match=f"{n} is too large"):
                compiled(x, n)
        else:
            assert compiled(x, n).tolist() == [n, n]
    assert compiled.compile_count == 2


def test_sizes_in_results_are_plain() -> None:
    def sizes(x: Any) -> Any:
        n = x.shape[0]
        return x.shape, x.size(0), n * 2, {"n": x.shape, n: 1}, list(x.shape), {n}, x.numel()

    compiled = graphc.compile(sizes)
    for size in (5, 7, 9):
        found = compiled(graphc.zeros(size, 3))
        shape = graphc.Size((size, 3))
        assert found == (shape, size, size * 2, {"n": shape, size: 1}, [size, 3], {size}, size * 3)
        assert type(found[0]) is type(found[3]["n"]) is graphc.Size
        leaves = [*found[0], *found[1:3], *found[3], *found[3]["n"], *found[4], *found[5]]
        assert {type(leaf) for leaf in leaves} == {int, str}


def test_sizes_stay_symbolic_in_arithmetic_and_global_pools() -> None:
    def f(image: Any) -> Any:
        pooled = graphc.nn.functional.adaptive_avg_pool2d(image, 1)
        largest, where = graphc.nn.functional.adaptive_max_pool2d(image, 1, return_indices=True)
        return pooled, largest, where, image.shape[-1] // 2, round(image.shape[-2] / 3)

    compiled = graphc.compile(f)
    for size in (5, 7, 9, 12):
        image = graphc.randn(2, 3, size, size + 1)
        assert _same(_plain(compiled(image), graphc), _plain(f(image), graphc))
    assert compiled.compile_count == 2


_OF_MATH = {
    "cosine": lambda n: math.cos(math.pi * n / 7),
    "two": lambda n: math.atan2(n, 3) + math.hypot(n, 2.5) + math.pow(1.5, n),
    "whole": lambda n: math.gcd(int(n), 12) + math.factorial(int(n)) + math.isqrt(int(n)),
    "float": lambda n: float(n) / 3 + int(n * 1.5),
    "root": lambda n: math.sqrt(n) + math.exp(-n) + math.log(n + 1) + math.tanh(n / 4),
}


@pytest.mark.parametrize("name", _OF_MATH)
def test_functions_of_math_are_run_time_numbers(name: str) -> None:
    function = _OF_MATH[name]

    def scaled(x: Any, n: Any) -> Any:
        return x * function(n)

    compiled = graphc.compile(scaled, fullgraph=True)
    x = graphc.ones(2, dtype=graphc.float64)
    for n in (3, 5, 1, 8, 0, 12, 7, 9, 11, 2, 4):
        assert graphc.equal(compiled(x, n), scaled(x, n)), n
    assert compiled.compile_count <= 2


def test_a_size_stays_a_size_through_int_and_is_a_number_through_math() -> None:
    def f(x: Any) -> Any:
        n = int(x.shape[0])
        return graphc.ones(n) / math.sqrt(n), float(n)

    compiled = graphc.compile(f, fullgraph=True)
    for n in (3, 5, 8, 2, 7):
        found, size = compiled(graphc.ones(n))
        assert found.tolist() == f(graphc.ones(n))[0].tolist() and size == float(n)
        assert type(size) is float
    assert compiled.compile_count <= 2


def test_a_number_outside_of_a_functions_domain_raises_as_in_python() -> None:
    def f(x: Any, n: Any) -> Any:
        return x * math.log(n)

    compiled = graphc.compile(f)
    for n in (2.0, 3.0, 4.0):
        compiled(graphc.ones(2), n)
    with pytest.raises(ValueError, match=r"math domain error|expected a positive"):
        compiled(graphc.ones(2), -1.0)
    assert compiled(graphc.ones(2), 5.0).tolist() == f(graphc.ones(2), 5.0).tolist()


def test_a_set_that_holds_a_length_is_put_back() -> None:
    """The recording is over, and the number in it too, when the set is as it was before."""
    seen, growing, best = {1}, {"a": 1}, []

    def function(x: Any) -> Any:
        seen.__ior__({len(growing) + 2})
        growing.update(b=2)
        total = x.sum()
        if best and total < best[-1]:
            return x
        best.append(total)
        return x * 2

    compiled = graphc.compile(function)
    for _ in range(4):
        compiled(graphc.ones(3))
    assert seen == {1, 3, 4} and len(best) == 4


def test_run_time_numbers_among_halves_are_not_rounded_to_them() -> None:
    def scaled(x: Any, s: float) -> Any:
        return x * s, s * x, x / s, x + s, s - x

    compiled = graphc.compile(scaled)
    for dtype in (graphc.bfloat16, graphc.float16):
        x = graphc.linspace(-3, 3, 9).to(dtype)
        for s in (0.1, 0.3, 0.7, 1.1):
            for own, expected in zip(compiled(x, s), scaled(x, s), strict=True):
                assert own.tolist() == expected.tolist()
