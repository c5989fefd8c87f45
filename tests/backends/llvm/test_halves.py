"""All values of the 16-bit floats through kernels that carry them as float32."""

import re

import numpy as np
import pytest

from graphc.backends.llvm.emit import emit
from graphc.backends.llvm.jit import compile_assembly
from graphc.backends.llvm.target import Target, host_target, make_target
from graphc.backends.numpy.elementwise import TABLE, cast_array
from graphc.ir import dtypes
from graphc.ir.dim import Dim
from graphc.ir.dtypes import DType
from graphc.ir.kernel import Apply, Kernel, Let, Literal, Load, Loop, Param, Scalar, Store, Var

from .native import Native

F32, V = dtypes.f32, Dim.var("v")
QUIET = "4194304"  # the bit that rounding makes a NaN quiet by


def targets() -> list[Target]:
    """This machine and, of its kind, one without bfloat16, masks or f16c."""
    host = host_target()
    if host.arch != "x86_64":
        return [host]
    avx2 = make_target(host.triple, "x86-64-v3", "+avx2,+fma,+f16c,+bmi,+bmi2")
    return [host, avx2, make_target(host.triple, "x86-64", "")]


def expression(name: str, x: Scalar) -> list[tuple[str, tuple[object, ...]]]:
    """Operators on x and on the results of those before, by their numbers."""
    small = Literal(0.5, F32)
    return {
        "neg": [("neg", (x,))], "abs": [("abs", (x,))], "relu": [("relu", (x,))],
        "neg_abs": [("abs", (x,)), ("neg", (0,))],
        "floor": [("floor", (x,))], "maximum": [("neg", (x,)), ("maximum", (x, 0))],
        "bounded": [("minimum", (x, small))],
        "add": [("add", (x, Literal(1.5, F32)))],
        "third": [("minimum", (x, Literal(1 / 3, F32)))],  # which no half is
    }[name]


def whole(name: str, half: DType) -> tuple[Kernel, np.ndarray, np.ndarray]:
    """A kernel as lowering writes it, with a name for each value, all halves, and what it is to
    make of them."""
    x = np.arange(1 << 16, dtype=np.uint16).view(half.numpy)
    body = [Let("t", Load("a", V, half)), Let("x", Apply("cast", (Var("t", half),), F32))]
    made: list[tuple[Scalar, np.ndarray]] = []
    with np.errstate(all="ignore"):
        for op, operands in expression(name, Var("x", F32)):
            scalars, arrays = [], []
            for operand in operands:
                if isinstance(operand, int):
                    scalars.append(made[operand][0])
                    arrays.append(made[operand][1])
                else:
                    assert isinstance(operand, (Var, Literal))
                    scalars.append(operand)
                    known = isinstance(operand, Literal)
                    arrays.append(np.float32(operand.value) if known else x.astype(np.float32))
            label = f"y{len(made)}"
            body.append(Let(label, Apply(op, tuple(scalars), F32)))
            made.append((Var(label, F32), np.asarray(TABLE[op](*arrays))))
        want = cast_array(made[-1][1], half.numpy)
    body.append(Store("o", V, Apply("cast", (made[-1][0],), half)))
    params = (Param("a", half, x.size, "in"), Param("o", half, x.size, "out"))
    return Kernel("k", params, (), ((Loop("vector", "v", x.size, tuple(body)),),)), x, want


@pytest.mark.parametrize("half", [dtypes.bf16, dtypes.f16], ids=lambda d: d.name)
@pytest.mark.parametrize(
    "name", "neg abs neg_abs relu floor maximum bounded add third".split()
)
def test_every_value_is_rounded_where_it_has_to_be(name: str, half: DType) -> None:
    kernel, x, want = whole(name, half)
    for target in targets():
        native = Native(kernel, target)
        got = np.zeros_like(want)
        native([x, got])
        same = got.view(np.uint16) == want.view(np.uint16)
        got32, want32 = (cast_array(y, F32.numpy) for y in (got, want))
        bad = np.flatnonzero(~(same | (np.isnan(got32) & np.isnan(want32))))
        assert not bad.size, (target, x[bad[:5]], got[bad[:5]], want[bad[:5]])
        if half is dtypes.bf16:  # halves that one of their own comes to are only cut
            assert (QUIET in native.text) is (name in ("add", "third"))


def test_floats_are_rounded_to_bfloat16_as_in_integers() -> None:
    """The instruction for it takes subnormals for 0, wherever one is among the lanes."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 1 << 14, np.uint32)
    bits[: 1 << 13] &= ~np.uint32(0x7F800000) | np.uint32(0x00FF0000)  # small and subnormal ones
    ties = np.uint32(0x8000) + (np.arange(1 << 10, dtype=np.uint32) << 16)
    edges = np.uint32([0, 1 << 31, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0x7FC00000, 0xFFFFFFFF,
                       0x7F800001, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x00807FFF])
    x = np.concatenate([bits, ties, np.float32(rng.standard_normal(4000)).view(np.uint32), edges])
    for size in (x.size, 64, 32, 31):
        part = x[-size:].view(np.float32)
        params = (Param("a", F32, size, "in"), Param("o", dtypes.bf16, size, "out"))
        body = (Store("o", V, Apply("cast", (Load("a", V, F32),), dtypes.bf16)),)
        kernel = Kernel("k", params, (), ((Loop("vector", "v", size, body),),))
        want = None
        for target in targets():
            got = np.zeros(size, dtypes.bf16.numpy)
            Native(kernel, target)([part, got])
            want = got if want is None else want
            np.testing.assert_array_equal(got.view(np.uint16), want.view(np.uint16))
        numbers = np.flatnonzero(~np.isnan(part))
        np.testing.assert_array_equal(
            got[numbers].view(np.uint16), part[numbers].astype(dtypes.bf16.numpy).view(np.uint16)
        )


def test_costly_loops_over_bfloat16_compute_no_masks_but_for_their_end() -> None:
    features = "+avx512f,+avx512dq,+avx512bw,+avx512vl,+avx512bf16,+avx2,+fma,+f16c,+bmi,+bmi2"
    target = make_target("x86_64-unknown-linux-gnu", "x86-64-v4", features)
    n = Dim.var("n")
    body = (
        Let("t", Apply("cast", (Load("a", V, dtypes.bf16),), F32)),
        Store("o", V, Apply("cast", (Apply("erf", (Var("t", F32),), F32),), dtypes.bf16)),
    )
    params = (Param("a", dtypes.bf16, n, "in"), Param("o", dtypes.bf16, n, "out"))
    text = compile_assembly(
        emit(Kernel("k", params, ("n",), ((Loop("vector", "v", n, body),),)), target), target
    )
    assert "vcvtne2ps2bf16" in text
    stores = re.findall(r"vmovd?q?[ua]\w*\s+%[xyz]mm\d+, [-\d]*\(.*", text)
    masked = [store for store in stores if "{%k" in store]
    assert len(masked) == 1 and len(stores) > 1
