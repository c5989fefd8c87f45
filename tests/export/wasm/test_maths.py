"""Elementary functions in WebAssembly, which has no libm; halves; random numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.export import aot, export, export_step
from tests.export.aot.libraries import arrays, expected

from .node import ask, call, node, results
from .test_results import near, script_of

UNARY = """
abs acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfc erfinv exp exp2 expm1 floor log
log10 log1p log2 neg reciprocal round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc
""".split()
BINARY = """
atan2 copysign div floor_divide fmax fmin fmod hypot maximum minimum pow remainder
""".split()
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, 1e-30, 3.0, -2.5, 7e4]


@pytest.fixture(scope="module", autouse=True)
def _under_node() -> None:
    node()


def numbers(dtype: Any, largest: float) -> np.ndarray:
    rng = np.random.default_rng(0)
    spread = np.exp2(rng.uniform(-30, largest, 150)) * rng.choice([-1, 1], 150)
    return np.concatenate([SPECIAL, rng.uniform(-3, 3, 150), spread]).astype(dtype)


@pytest.mark.parametrize("dtype, largest, rtol", [
    (np.float32, 120, 1e-6), (np.float64, 1000, 3e-15),
])
def test_functions(dtype: Any, largest: float, rtol: float, tmp_path: Path) -> None:
    """As in this process, where libm helps; at the largest numbers and special ones, too."""
    def every(x: Any, y: Any) -> Any:
        return ([getattr(torch, name)(x) for name in UNARY],
                [getattr(torch, name)(x, y) for name in BINARY])

    x = numbers(dtype, largest)
    args = torch.from_numpy(x), torch.from_numpy(np.random.default_rng(1).permutation(x))
    program = export(every, args)
    found = results(ask(script_of(tmp_path, program, "maths"), [call(*arrays(args))])[0])
    for name, one, other in zip([*UNARY, *BINARY], found, expected(program(*args)), strict=True):
        np.testing.assert_allclose(one, other, rtol, 1e-300, err_msg=name)


def test_lgamma(tmp_path: Path) -> None:
    x = np.concatenate([SPECIAL, np.linspace(-40.3, 60, 2000), np.exp2(np.linspace(-900, 1020, 99)),
                        np.arange(-3.0, 10), [2.5e305, 1e306]])
    program = export(
        lambda x, y: (torch.lgamma(x), torch.lgamma(y)),
        (torch.from_numpy(x), torch.from_numpy(x.clip(-1e30, 1e30).astype(np.float32))),
    )
    args = torch.from_numpy(x), torch.from_numpy(x.clip(-1e30, 1e30).astype(np.float32))
    found = results(ask(script_of(tmp_path, program, "gamma"), [call(*arrays(args))])[0])
    wanted = expected(program(*args))
    np.testing.assert_allclose(found[0], wanted[0], 2e-15, 4e-14)
    np.testing.assert_allclose(found[1], wanted[1], 2e-6, 1e-6)


def test_angles_and_remainders(tmp_path: Path) -> None:
    """Exactly reduced, whatever their size; the remainder is exact."""
    rng = np.random.default_rng(2)
    x = np.exp2(rng.uniform(20, 1023, 500)) * rng.choice([-1, 1], 500)
    nearest = 6381956970095103 * 2.0**797  # of all doubles to an odd multiple of pi / 2
    x[:3] = 2.0**1023 * 1.5, nearest, 1647100.0
    y = np.exp2(rng.uniform(-1070, 1000, 500)) * rng.choice([-1, 1], 500)
    program = export(
        lambda x, y: (torch.sin(x), torch.cos(x), torch.tan(x), torch.fmod(x, y),
                      torch.hypot(x, y)), (torch.from_numpy(x), torch.from_numpy(y)),
    )
    found = results(ask(script_of(tmp_path, program, "far"), [call(x, y)])[0])
    for one, libm in zip(found[:3], (math.sin, math.cos, math.tan), strict=True):
        wanted = [libm(each) for each in x]
        apart = x != nearest  # where glibc itself is wrong by 8 units in the last place
        np.testing.assert_allclose(one[apart], np.array(wanted)[apart], 5e-16)
    assert found[1][1] == -4.687165924254627611e-19
    np.testing.assert_array_equal(found[3], np.fmod(x, y))
    np.testing.assert_allclose(found[4], np.hypot(x, y), 3e-16)


def test_halves(tmp_path: Path) -> None:
    """Every f16 becomes f32 and is rounded again; products of matrices of halves and bf16."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    wide = np.random.default_rng(0).standard_normal((9, 7)).astype(np.float32)
    args = (torch.from_numpy(every), torch.from_numpy(wide), torch.from_numpy(wide.T.copy()))

    def each(x: Any, a: Any, b: Any) -> Any:
        return (x.float(), (x.float() * 0.3).half(), (x.float() * 0.3).bfloat16(),
                a.half() @ b.half(), a.bfloat16() @ b.bfloat16())

    program = export(each, args)
    found = results(ask(script_of(tmp_path, program, "halves"), [call(*arrays(args))])[0])
    wanted = expected(program(*args))
    for one, other in zip(found[:3], wanted[:3], strict=True):
        np.testing.assert_array_equal(one.astype(np.float32), other.astype(np.float32))
    near(found[3:], wanted[3:], 2e-2)


def test_random_numbers(tmp_path: Path) -> None:
    """The stream of torch.manual_seed: few draws at a time and many, of each kind."""
    x = torch.zeros(3)

    def step(x: Any) -> Any:
        return (
            torch.rand(5), torch.rand(700), torch.randn(5) + x.sum(), torch.randn(700),
            torch.rand(9, dtype=torch.float64), torch.randn(33, dtype=torch.float64),
            torch.randint(0, 100, (50,)), torch.randperm(40), torch.empty(20).exponential_(),
            torch.bernoulli(torch.full((40,), 0.3)),
        )

    exported = export_step(step, (x,))
    made = aot(exported, tmp_path, name="random", targets=["wasm32"]).header
    found = ask(made, [{"do": "seed", "seed": 7}, *[call(*arrays((x,)))] * 3])
    exported.manual_seed(7)
    for k in range(3):
        near(results(found[1 + k]), expected(exported(x)), 1e-6)
