"""The kernel verifier accepts what is right and names what is wrong."""

import pytest

from graphc.ir import ops  # noqa: F401  (registers the operators)
from graphc.ir.kernel.text import parse_kernel
from graphc.ir.kernel.verify import KernelError, verify_kernel

GOOD = """\
kernel good(a0: f32[n] in, a1: i64[8] in, a2: f32[32] in, o0: f32[n] out, o1: f32[8] out) \
dims (n) {
  stage {
    parallel p in [((n + 3) // 4)] chunk [1] {
      vector v in [min((n + -4*p), 4)] {
        t0 = a0[(4*p + v)]
        store o0[(4*p + v)] = add.f32(t0, 1.0:f32)
      }
    }
  }
  stage {
    parallel p in [8] chunk [2] {
      t0 = a1[p]
      check lt.bool(t0, 8:i64), "IndexError", t0
      vector v in [4] carry c0: f32 = 0.0:f32 {
        t1 = a2[(4*t0 + v)]
        next c0 add t1
      }
      store o1[p] = c0
    }
  }
}
"""


def test_a_good_kernel_passes() -> None:
    verify_kernel(parse_kernel(GOOD))


BROKEN = {
    "spans 0..3, size is 2": ("[min((n + -4*p), 4)]", "[4]"),
    "never checked": ('      check lt.bool(t0, 8:i64), "IndexError", t0\n', ""),
    "size is 32": ("a2[(4*t0 + v)]", "a2[(4*p + v + 1)]"),
    "race on o1": ("store o1[p]", "store o1[0]"),
    "store to input": ("store o1[p]", "store a2[p]"),
    "does not give f32": ("add.f32(t0, 1.0:f32)", "add.f32(t0, 1.0:f64)"),
    "store of bool": ("add.f32(t0, 1.0:f32)", "lt.bool(t0, 1.0:f32)"),
    "is not outermost": ("vector v in [4] carry", "parallel v in [4] chunk [1] carry"),
    "t0 is bound twice": ("vector v in [4] carry", "t0 = a1[p]\n      vector v in [4] carry"),
    "which is no integer": ("a2[(4*t0 + v)]", "a2[(4*c0 + v)]"),
    "'set' in a vector loop": ("next c0 add", "next c0 set"),
    "come in pairs": ("next c0 add", "next c0 argmax"),
    "chunk 0": ("chunk [2]", "chunk [0]"),
    "stands beside a parallel one": ("  }\n  stage {\n    parallel", "    parallel"),
}


@pytest.mark.parametrize("message", BROKEN)
def test_faults_are_named(message: str) -> None:
    old, new = BROKEN[message]
    assert old in GOOD
    with pytest.raises(KernelError, match=message.replace("(", r"\(")):
        verify_kernel(parse_kernel(GOOD.replace(old, new)))


def test_operands_of_a_gemm_stay_inside() -> None:
    text = """\
kernel gemm(a0: f32[12] in, a1: f32[20] in, o0: f32[15] out) dims () {
  gemm batch [1] m [3] n [5] k [4] acc f32 {
    left a0[(4*m + k)]: f32
    right a1[(5*k + n)]: f32
    epilogue {
      store o0[(5*m + n)] = acc
    }
  }
}
"""
    verify_kernel(parse_kernel(text))
    with pytest.raises(KernelError, match=r"a1\[.*size is 20"):
        verify_kernel(parse_kernel(text.replace("(5*k + n)", "(5*k + n + 1)")))
    with pytest.raises(KernelError, match="store of f32 to o0: f64"):
        verify_kernel(parse_kernel(text.replace("o0: f32", "o0: f64")))


REVERSED_ROWS = """\
kernel reversed(a0: f32[144] in, o0: f32[144] out) dims () {
  stage {
    parallel p in [3] chunk [1] {
      vector v in [min((-64*p + 144), 64)] {
        t0 = a0[((v % 16) + -16*(v // 16) + -64*p + 128)]
        store o0[(64*p + v)] = t0
      }
    }
  }
}
"""


def test_terms_that_share_a_variable_are_bounded_together() -> None:
    verify_kernel(parse_kernel(REVERSED_ROWS))
    with pytest.raises(KernelError, match=r"spans -1\.\.142, size is 144"):
        verify_kernel(parse_kernel(REVERSED_ROWS.replace("+ 128", "+ 127")))
    with pytest.raises(KernelError, match=r"spans 1\.\.144, size is 144"):
        verify_kernel(parse_kernel(REVERSED_ROWS.replace("+ 128", "+ 129")))


def test_extents_that_data_decide_are_not_tried_out() -> None:
    text = """\
kernel runs(a0: i64[8] in, a1: f32[32] in, o0: f32[8] out) dims () {
  stage {
    parallel p in [8] chunk [1] {
      t0 = a0[p]
      serial j in [t0] carry c0: f32 = 0.0:f32 {
        t1 = a1[(4*p + j)]
        next c0 add t1
      }
      store o0[p] = c0
    }
  }
}
"""
    verify_kernel(parse_kernel(text))
