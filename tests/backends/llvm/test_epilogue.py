"""What becomes of sums is code that kernels share, whatever their sizes."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.backends.llvm import contraction, gemm_store, libraries
from graphc.backends.llvm.emit import emit
from graphc.backends.llvm.epilogue import shared_epilogue
from graphc.backends.llvm.libraries import template_libraries
from graphc.backends.llvm.target import host_target
from graphc.ir import dtypes
from graphc.ir.dim import evaluate
from graphc.ir.kernel import (
    Apply,
    Convolution,
    IndexValue,
    Kernel,
    Let,
    Literal,
    Load,
    Param,
    Store,
    Var,
)
from graphc.ir.record import replaced

from .contractions import B, Conv, Gemm, M, N, run

f32 = dtypes.f32
ACC = Var("acc", f32)


def residual(case: Conv, kind: str = "conv") -> Kernel:
    """relu(sum + bias of the row + what lies in another buffer, behind three numbers)."""
    kernel = case.kernel(kind)
    template = kernel.template
    assert isinstance(template, Convolution)
    m, n = template.m, template.n
    value = Apply("add", (ACC, Load("bias", M, f32)), f32)
    at = B * (m * n) + M * n + N
    epilogue = (
        Let("t0", Apply("add", (value, Load("D", at + 3, f32)), f32)),
        Store(kernel.params[2].name, at, Apply("relu", (Var("t0", f32),), f32)),
    )
    params = Param("bias", f32, m, "in"), Param("D", f32, kernel.params[2].size + 3, "in")
    template = replaced(template, epilogue=epilogue)
    return replaced(kernel, params=(*kernel.params, *params), template=template)


SMALL, LARGE = Conv(2, 8, (10, 7), 30, (3, 3)), Conv(3, 16, (20, 20), 64, (5, 5), pad=(2, 2))


def library_of(kernel: Kernel) -> list[str]:
    return [each for each in template_libraries(kernel, host_target()) if each[0] == "e"]


def test_kernels_of_other_sizes_have_the_same_code() -> None:
    one, other = residual(SMALL), residual(LARGE)
    (library,) = library_of(one)
    assert [library] == library_of(other)
    for kernel in (one, other):
        text = emit(kernel, host_target())
        assert ".epilogue" not in text and "@graphc_epilogue_" in text
        assert all("optnone" in line for line in text.split("\n") if line.startswith("define"))


def test_an_epilogue_is_given_its_buffers_and_what_is_not_1() -> None:
    found = shared_epilogue(residual(SMALL))
    assert found is not None
    assert found.buffers == ("bias", "D", "y")
    assert found.numbers == (3, 30 * 40, 40)
    assert "(b*d1 + d0 + d2*m + n)" in found.text


@pytest.mark.parametrize(("case", "kind"), [
    (SMALL, "conv"), (LARGE, "conv"), (Conv(2, 64, (14, 14), 64, (3, 3), pad=(1, 1)), "conv"),
    (Conv(2, 3, (31, 29), 8, (5, 5), (2, 2), (2, 2)), "conv"), (SMALL, "conv_input_grad"),
    (Conv(2, 6, (14, 14), 8, (3, 3), (2, 2), (1, 1)), "conv_input_grad"),
    (Conv(2, 6, (40, 150), 12, (3, 3), pad=(1, 1), groups=6), "conv"),
], ids=str)
def test_same_bits_as_with_code_of_its_own(
    case: Conv, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = residual(case, kind)
    rng = np.random.default_rng(0)
    operands = [rng.standard_normal(evaluate(p.size, {})).astype(np.float32) for p in kernel.params]
    found = []
    for own in (False, True):
        if own:
            for module in (contraction, gemm_store, libraries):
                monkeypatch.setattr(module, "shared_epilogue", lambda kernel: None)
            assert ".epilogue" in emit(kernel, host_target())
        operands[2] = np.full(evaluate(kernel.params[2].size, {}), 7, np.float32)
        run(kernel, operands)
        found.append(operands[2])
    assert found[0].tobytes() == found[1].tobytes()
    assert not (found[0] == 7).any()


def ends(*epilogue: Let | Store) -> Kernel:
    kernel = residual(SMALL)
    assert isinstance(kernel.template, Convolution)
    return replaced(kernel, template=replaced(kernel.template, epilogue=epilogue))


def test_others_have_code_of_their_own() -> None:
    at = B * 1200 + M * 40 + N
    number = Apply("cast", (IndexValue(at, dtypes.i64),), f32)
    rest = Load("D", at % 64, f32)
    for kernel in (
        ends(Store("y", at, Apply("add", (ACC, number), f32))),  # asks where it is
        ends(Store("y", at, Apply("add", (ACC, rest), f32))),  # not affine
        ends(Store("y", B * 1200 + N * 30 + M, Apply("relu", (ACC,), f32))),  # not of neighbours
        replaced(ends(Store("y", at, Apply("relu", (ACC,), f32))), dims=("t",)),
    ):
        assert shared_epilogue(kernel) is None
        assert not library_of(kernel)
        assert ".epilogue" in emit(kernel, host_target())


def test_numbers_are_part_of_the_code() -> None:
    one, other = (
        ends(Store("y", M * 40 + N, Apply("mul", (ACC, Literal(factor, f32)), f32)))
        for factor in (0.5, 0.25)
    )
    assert library_of(one) != library_of(other)


def test_a_product_has_its_own() -> None:
    store = Store("C", M * 70 + N, Apply("relu", (ACC,), f32))
    kernel = Gemm(30, 70, 20).kernel((store,))
    assert shared_epilogue(kernel) is None and ".epilogue" in emit(kernel, host_target())


def test_a_product_that_stores_its_sums_has_no_code_to_optimise() -> None:
    """Neither its entry nor where its operands begin, which is asked once for each of a batch."""
    text = emit(Gemm(30, 70, 20, 3).kernel(), host_target())
    heads = [line for line in text.split("\n") if line.startswith("define")]
    assert len(heads) == 2 and all("optnone" in head for head in heads)
