"""The kernel interpreter: loops, carries, masks, checks and contractions by their definition."""

import numpy as np
import pytest

from graphc.backends.numpy import TABLE
from graphc.ir.kernel.interpret import CheckFailed, run_kernel
from graphc.ir.kernel.text import parse_kernel


def run(text: str, *buffers: np.ndarray, dims: tuple[int, ...] = ()) -> None:
    run_kernel(parse_kernel(text), buffers, dims, TABLE)


def test_ragged_blocks_and_named_dims() -> None:
    a, o = np.arange(11, dtype=np.float32), np.zeros(11, np.float32)
    text = """\
kernel double(a0: f32[n] in, o0: f32[n] out) dims (n) {
  stage {
    parallel p in [((n + 3) // 4)] chunk [1] {
      vector v in [min((n + -4*p), 4)] {
        store o0[(4*p + v)] = mul.f32(a0[(4*p + v)], 2.0:f32)
      }
    }
  }
}
"""
    run(text, a, o, dims=(11,))
    np.testing.assert_array_equal(o, 2 * a)


def test_carries_tiles_and_argmax() -> None:
    a = np.array([[3, 7, 7, 1], [5, np.nan, 9, 2]], np.float32)
    values, indices = np.zeros(2, np.float32), np.zeros(2, np.int64)
    text = """\
kernel argmax(a0: f32[8] in, o0: f32[2] out, o1: i64[2] out) dims () {
  stage {
    parallel p in [2] chunk [1] {
      local tile0: f32[4]
      vector v in [4] {
        store tile0[v] = a0[(4*p + v)]
      }
      vector v in [4] carry c0: f32 = -inf:f32, c1: i64 = 0:i64 {
        t0 = tile0[v]
        next c0 argmax t0
        next c1 index index[v]
      }
      store o0[p] = c0
      store o1[p] = c1
    }
  }
}
"""
    run(text, a.reshape(-1), values, indices)
    np.testing.assert_array_equal(values, [7, np.nan])
    np.testing.assert_array_equal(indices, [1, 1])


def test_serial_carries_see_the_previous_value() -> None:
    a, o = np.arange(6, dtype=np.float32), np.zeros(6, np.float32)
    text = """\
kernel cumsum(a0: f32[6] in, o0: f32[6] out) dims () {
  stage {
    vector v in [2] {
      serial j in [3] carry c0: f32 = 0.0:f32 {
        t0 = add.f32(c0, a0[(2*j + v)])
        store o0[(2*j + v)] = t0
        next c0 set t0
      }
    }
  }
}
"""
    run(text, a, o)
    np.testing.assert_array_equal(o.reshape(3, 2), a.reshape(3, 2).cumsum(0))


def test_masked_loads_touch_no_memory_and_combined_stores_add() -> None:
    a, o = np.arange(3, dtype=np.float32), np.ones(2, np.float32)
    text = """\
kernel masked(a0: f32[3] in, o0: f32[2] inout) dims () {
  stage {
    vector v in [4] {
      t0 = lt.bool(index[v], 3:i64)
      t1 = (a0[v] if t0 else 100.0:f32)
      store o0[(v // 2)] add= t1 if t0
    }
  }
}
"""
    run(text, a, o)
    np.testing.assert_array_equal(o, [2, 3])


def test_a_failed_check_reports_its_value() -> None:
    text = """\
kernel checked(a0: i64[3] in, o0: i64[3] out) dims () {
  stage {
    vector v in [3] {
      t0 = a0[v]
      check lt.bool(t0, 5:i64), "IndexError: index {value} is out of bounds", t0
      store o0[v] = t0
    }
  }
}
"""
    with pytest.raises(CheckFailed, match="index 9 is out of bounds"):
        run(text, np.array([1, 9, 2]), np.zeros(3, np.int64))
    with pytest.raises(IndexError, match="outside its 2 elements"):
        short = text.replace("a0: i64[3]", "a0: i64[2]")
        run(short, np.array([1, 2]), np.zeros(3, np.int64))


def test_a_gemm_with_epilogue() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 3, 4), np.float32), rng.random((2, 5, 4), np.float32)
    o = np.zeros(30, np.float32)
    text = """\
kernel gemm(a0: f32[24] in, a1: f32[40] in, o0: f32[30] out) dims () {
  gemm batch [2] m [3] n [5] k [4] acc f32 {
    left a0[(12*b + 4*m + k)]: f32
    right a1[(20*b + 4*n + k)]: f32
    epilogue {
      store o0[(15*b + 5*m + n)] = neg.f32(acc)
    }
  }
}
"""
    run(text, a.reshape(-1), b.reshape(-1), o)
    np.testing.assert_allclose(o.reshape(2, 3, 5), -(a @ b.transpose(0, 2, 1)), rtol=1e-5)
