"""Rows that are longer than what is in them: which kernels go by rows, and mean the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphc.backends.numpy.elementwise import TABLE
from graphc.ir import dtypes, ops
from graphc.ir.graph import Builder, Expr
from graphc.ir.kernel import Kernel, Launch, leaves
from graphc.ir.kernel.interpret import run_kernel
from graphc.ir.kernel.text import parse_kernel
from graphc.ir.kernel.verify import verify_kernel
from graphc.ir.passes.fuse import fuse
from graphc.ir.passes.lower import lower
from graphc.ir.passes.plan import plan
from graphc.ir.passes.plan.pitch import pitched
from graphc.ir.types import TensorType

from .machines import WIDE

WIDTH, PITCH, ROWS = 7, 12, 5

SUMS = """kernel k(x: f32[35] inout, y: f32[5] out) dims () {
  stage {
    parallel p in [5] chunk [1] {
      vector v in [7] carry c: f32 = 0.0:f32 {
        t0 = x[7*p + v]
        next c add t0
      }
      vector v in [7] {
        store x[7*p + v] = mul.f32(c, 2.0:f32)
      }
      store y[p] = c
    }
  }
}"""
DIGITS = """kernel k(x: f32[35] in, y: f32[35] out) dims () {
  stage {
    vector v in [35] {
      t0 = x[7*(v // 7) + v % 7]
      store y[v] = t0
    }
  }
}"""
LETS = """kernel k(x: f32[35] in, y: f32[5] out) dims () {
  stage {
    vector v in [5] {
      t0 = index[7*v + 3]
      t1 = index[v + 2]
      store y[v] = add.f32(x[t0], x[t1 + 14])
    }
  }
}"""
CHECKED = """kernel k(x: f32[35] in, i: i64[5] in, y: f32[5] out) dims () {
  stage {
    vector v in [5] {
      t0 = i[v]
      t1 = ge.bool(t0, 0:i64)
      t2 = lt.bool(t0, LIMIT:i64)
      check logical_and.bool(t1, t2), "IndexError: {value}", t0
      store y[v] = x[7*v + t0]
    }
  }
}"""
PRODUCT = """kernel k(x: f32[35] in, w: f32[35] in, y: f32[25] out, z: f32[25] out) dims () {
  gemm batch [1] m [5] n [5] k [7] acc f32 {
    left x[7*m + k]: f32
    right w[7*n + k]: f32
    epilogue {
      store y[5*m + n] = acc
      store z[5*m + n] = add.f32(acc, x[7*m + n])
    }
  }
}"""
FLAT = """kernel k(x: f32[35] in, y: f32[35] out) dims () {
  stage {
    vector v in [35] {
      store y[v] = x[v]
    }
  }
}"""
# what may go from one row to the next
ACROSS = {
    "flat": FLAT,
    "by one": SUMS.replace("[7*p + v]", "[7*p + v + 1]").replace("[5] chunk", "[4] chunk"),
    "other rows": DIGITS.replace("7*(v // 7) + v % 7", "5*(v // 5) + v % 5"),
    "unchecked": CHECKED.replace("LIMIT", "7").replace("check l", "t3 = l").split(", \"I")[0] + """
      store y[v] = x[7*v + t0]
    }
  }
}""",
    "checked for more": CHECKED.replace("LIMIT", "8"),
    "half checked": CHECKED.replace("logical_and.bool(t1, t2)", "t2").replace("LIMIT", "7"),
    "another length": SUMS.replace("[35]", "[36]"),
    "columns": PRODUCT.replace("x[7*m + k]", "x[5*k + m]"),
}
ALONG = {
    "sums": SUMS, "digits": DIGITS, "lets": LETS, "checked": CHECKED.replace("LIMIT", "7"),
    "product": PRODUCT,
}


def parsed(text: str) -> Kernel:
    kernel = parse_kernel(text)
    verify_kernel(kernel)
    return kernel


@pytest.mark.parametrize("name", ACROSS)
def test_kernels_that_may_not(name: str) -> None:
    assert pitched(parse_kernel(ACROSS[name]), "x", WIDTH, PITCH) is None


@pytest.mark.parametrize("name", ALONG)
def test_kernels_that_may(name: str) -> None:
    kernel = parsed(ALONG[name])
    found = pitched(kernel, "x", WIDTH, PITCH)
    assert found is not None and found is not kernel
    verify_kernel(found)
    assert next(p.size for p in found.params if p.name == "x") == ROWS * PITCH
    rng = np.random.default_rng(0)
    want = [
        rng.integers(0, 7, p.size) if p.dtype is dtypes.i64 else
        rng.standard_normal(p.size).astype(np.float32) for p in kernel.params
    ]
    got = [array.copy() for array in want]
    place = next(n for n, p in enumerate(kernel.params) if p.name == "x")
    wide = np.full((ROWS, PITCH), np.nan, np.float32)
    wide[:, :WIDTH] = got[place].reshape(ROWS, WIDTH)
    got[place] = wide.ravel()
    run_kernel(kernel, want, (), TABLE)
    run_kernel(found, got, (), TABLE)
    assert np.isnan(got[place].reshape(ROWS, PITCH)[:, WIDTH:]).all()
    got[place] = np.ascontiguousarray(got[place].reshape(ROWS, PITCH)[:, :WIDTH]).ravel()
    for x, y in zip(got, want, strict=True):
        np.testing.assert_array_equal(x, y)


def sizes(make: Any) -> set[Any]:
    """Of the buffers of a graph's kernels."""
    builder = Builder()

    def value(*shape: Any) -> Expr:
        return Expr(builder, builder.input(TensorType(dtypes.f32, shape)))

    outputs = make(builder, value)
    graph = fuse(builder.build([o.node for o in outputs]), WIDE)
    program = plan(graph, lower(graph, WIDE), WIDE)
    launches = [step for step in leaves(program.steps) if isinstance(step, Launch)]
    return {p.size for step in launches for p in step.kernel.params}


def product(x: Expr, w: Expr) -> Expr:
    return ops.dot_general(x, w, batch_a=(), batch_b=(), contract_a=(1,), contract_b=(0,))


def test_what_stays_inside_has_longer_rows() -> None:
    """Of known and of symbolic numbers of rows; not what leaves."""

    def chain(builder: Builder, value: Any) -> list[Expr]:
        rows = builder.env.new("rows", 2)
        made = []
        for count in (200, rows):
            between = product(value(count, 16), value(16, 301))
            made.append(product(between, value(301, 8)))
        return made

    def leaving(builder: Builder, value: Any) -> list[Expr]:
        between = product(value(200, 16), value(16, 301))
        return [between, product(between, value(301, 8))]

    found = sizes(chain)
    assert 200 * 320 in found and 200 * 301 not in found
    assert {str(size) for size in found if not isinstance(size, int)} >= {"320*d0"}
    assert 200 * 301 in sizes(leaving)
