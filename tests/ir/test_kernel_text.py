"""The kernel IR's text form: exact both ways, and errors that name the line."""

import pytest

from graphc.ir import dtypes, kernel
from graphc.ir.dim import Dim
from graphc.ir.kernel.text import parse_kernel, print_kernel, scalar_text

TEXT = """\
kernel sample(a0: f32[n] in, a1: i64[8] in, o0: f32[8] out, s0: f32[4] scratch) dims (n) {
  stage {
    parallel p in [8] chunk [4] {
      local tile0: f32[16]
      i0 = index[(p // 2)]
      vector v in [min((n + -p), 64)] carry c0: f32 = 0.0:f32, c1: f32 = -inf:f32 {
        t0 = a0[(n*p + v)]
        t1 = (a0[v] if lt.bool(t0, 1e-05:f32) else nan:f32)
        check true:bool, "index {value} is \\"out\\"", index[v]
        store tile0[v] add= t1 if lt.bool(t0, -0.0:f32)
        next c0 add mul.f32(t0, -1.5:f32)
        next c1 max t1
      }
      store o0[(4*i0 + p)] = c0
    }
  }
  stage {
    serial r in [4] carry best: f32 = -inf:f32, where: i64 = 0:i64 {
      next best argmax s0[r]
      next where index index[r]
    }
    store o0[0] = best
  }
}
"""

CONV = """\
kernel conv(a0: f32[864] in, a1: f32[108] in, o0: f32[360] out) dims () {
  conv batch [3] m [6] n [20] k [18] acc f32 {
    left a1[0]: f32
    right a0[0]: f32
    geometry batch [3] channels [4; 6] input [8; 9] window [3; 3] output [4; 5] \
stride [2; 2] pad [1; 1] dilation [1; 1] groups [2]
    epilogue {
      store o0[(120*b + 20*m + n)] = relu.f32(acc)
    }
  }
}
"""


@pytest.mark.parametrize("text", [TEXT, CONV])
def test_round_trip(text: str) -> None:
    parsed = parse_kernel(text)
    assert print_kernel(parsed) == text
    assert print_kernel(parse_kernel(print_kernel(parsed))) == text


def test_the_name_can_be_left_out() -> None:
    parsed = parse_kernel(TEXT)
    renamed = kernel.Kernel("other", parsed.params, parsed.dims, parsed.stages)
    assert print_kernel(parsed) != print_kernel(renamed)
    assert print_kernel(parsed, name=False) == print_kernel(renamed, name=False)


def test_literals_keep_their_bits() -> None:
    for value in (0.1, -0.0, 1e-45, 3.4028234663852886e38, float("inf")):
        text = scalar_text(kernel.Literal(value, dtypes.f64))
        assert text == f"{value!r}:f64"
    assert scalar_text(kernel.Literal(True, dtypes.bool_)) == "true:bool"
    assert scalar_text(kernel.IndexValue(Dim.var("p") * 2, dtypes.i64)) == "index[2*p]"


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (TEXT.replace("t0 = a0[(n*p + v)]", "t0 = b9[v]"), "line 7: 'b9' is not bound"),
        (TEXT.replace("next c1 max t1", ""), "carries and `next` lines differ"),
        (TEXT[:-20], "cannot read|expected"),
        ("graph x() {}", "expected 'kernel'"),
    ],
)
def test_errors_name_the_line(broken: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_kernel(broken)
