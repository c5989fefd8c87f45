"""Convolutions and their gradients against the interpreter of the kernel IR, in float64."""

import ctypes
import mmap

import numpy as np
import pytest

from graphc.backends.host.machine import cpu
from graphc.backends.llvm.emit import emit
from graphc.backends.llvm.libraries import template_libraries
from graphc.backends.llvm.target import Target, host_target
from graphc.backends.numpy.elementwise import TABLE
from graphc.ir import dtypes
from graphc.ir.dim import Dim
from graphc.ir.kernel import Apply, Convolution, Load, Param, Var
from graphc.ir.kernel.interpret import run_kernel
from graphc.ir.kernel.plan_convolution import Contraction, contractions
from graphc.ir.machine import Machine
from graphc.ir.record import replaced

from .contractions import Conv, M, guarded, narrow_targets, run, unharmed

KINDS = ("conv", "conv_input_grad", "conv_weight_grad")
CASES = [
    Conv(2, 3, (8, 8), 4, (3, 3), pad=(1, 1)),
    Conv(3, 5, (32, 32), 7, (3, 3), pad=(1, 1)),
    Conv(4, 3, (32, 32), 6, (5, 5)),  # LeNet
    Conv(2, 6, (14, 14), 16, (5, 5)),
    Conv(2, 8, (9, 11), 5, (3, 3), (2, 2), (1, 1)),
    Conv(2, 4, (9, 11), 6, (3, 2), (2, 3), (1, 2), (2, 1), groups=2),
    Conv(3, 64, (4, 4), 70, (3, 3), pad=(1, 1)),  # several images per register
    Conv(5, 32, (8, 8), 40, (1, 1), (2, 2)),
    Conv(3, 20, (20, 20), 64, (3, 3), (2, 2), (1, 1)),
    Conv(2, 160, (12, 12), 33, (3, 3), pad=(2, 2), dilation=(2, 2)),
    Conv(2, 6, (10, 10), 6, (3, 3), pad=(1, 1), groups=6),  # depthwise
    Conv(2, 6, (10, 10), 12, (3, 3), (2, 2), (1, 1), groups=6),
    Conv(2, 3, (17,), 5, (4,), (3,), (2,), (2,)),
    Conv(3, 2, (50,), 4, (7,), pad=(3,)),
    Conv(2, 4, (5, 6, 7), 6, (2, 3, 3), (1, 2, 2), (1, 1, 0), (1, 1, 2), groups=2),
    Conv(1, 3, (6, 6, 6), 4, (3, 3, 3), pad=(1, 1, 1)),
    Conv(40, 3, (2, 2), 5, (2, 2), pad=(1, 1)),
    Conv(40, 3, (1, 1), 5, (1, 1)),
    Conv(2, 3, (16, 16), 8, (4, 4), (4, 4)),  # patches
    Conv(2, 3, (5, 5), 4, (7, 7), pad=(3, 3)),  # a window larger than the image
    Conv(2, 3, (9, 9), 4, (1, 1), (3, 3)),  # positions that no tap sees
    Conv(2, 2, (6, 6), 3, (2, 2), pad=(3, 3)),  # padding beyond the window
    Conv(2, 3, (7, 9), 4, (3, 3), (1, 2), (0, 1)),
    # lines that share their padding: all of it, as much as a window spans, more than a register
    Conv(2, 17, (30, 13), 40, (3, 3), pad=(1, 1)),
    Conv(2, 17, (30, 13), 40, (3, 3), pad=(3, 3)),
    Conv(1, 9, (4, 50), 40, (3, 41), pad=(1, 20)),
]
STRIDED = [  # read or packed from the phases of a copy
    Conv(2, 3, (30, 31), 8, (7, 7), (2, 2), (3, 3)),
    Conv(2, 3, (67, 70), 9, (11, 11), (4, 4), (2, 2)),  # gathered
    Conv(1, 4, (41, 77), 6, (5, 4), (3, 2), (2, 1)),
    Conv(2, 2, (90,), 3, (9,), (2,), (4,)),
    Conv(1, 5, (20, 43), 6, (3, 5), (1, 2), (1, 0), (2, 3)),
    Conv(1, 4, (24, 60), 10, (3, 41), (2, 2), (1, 40), groups=2),  # more padding than a register
    Conv(2, 2, (3, 9), 2, (5, 9), (2, 3), (5, 9)),  # lines of padding alone
    Conv(1, 2, (15, 90), 2, (9, 6), (1, 9), (4, 0)),  # phases that no tap reads
]
PIECES = [  # lines end within registers: packed from a copy
    Conv(4, 20, (9, 9), 56, (5, 5), (2, 2), (2, 2)),  # three lines in a register
    Conv(2, 9, (13, 27), 96, (7, 5), (2, 2), (3, 2)),
    Conv(3, 8, (11, 7), 48, (5, 5), (2, 3), (2, 2)),  # lines of three
    Conv(9, 4, (9, 5), 40, (4, 4), (2, 2), (1, 1)),  # of two: more pieces than have code
    Conv(9, 6, (19, 3), 30, (7, 3), (2, 2), (3, 0)),  # of one position
    Conv(2, 60, (12, 30), 65, (7, 4), (2, 2), (3, 0), (1, 2), groups=1),  # blocks of k
]
PLACES = [  # lines of the output as long as the input's: read in the input, under masks
    Conv(2, 17, (28, 28), 40, (3, 3), pad=(1, 1)),  # whole registers: stored by tiles
    Conv(3, 16, (15, 15), 41, (5, 5), pad=(2, 2)),  # registers that end behind an image
    Conv(2, 12, (16, 3), 64, (3, 3), pad=(1, 1)),  # several lines in a register
    Conv(1, 30, (40, 64), 30, (3, 3), pad=(0, 1)),  # fewer lines than the input has,
    Conv(1, 30, (13, 48), 30, (3, 3), pad=(3, 2), dilation=(1, 2)),  # and more
    Conv(2, 40, (12, 16), 48, (3, 3), pad=(1, 1), groups=2),
    Conv(2, 130, (8, 32), 33, (3, 3), pad=(1, 1)),  # two blocks of k
    Conv(2, 24, (110,), 40, (5,), pad=(2,)),
]
PLANES = [  # groups of one channel: strips of planes
    Conv(2, 3, (70, 90), 3, (3, 3), pad=(1, 1), groups=3),  # several strips of a plane
    Conv(2, 3, (71, 93), 3, (3, 3), (2, 2), (1, 1), groups=3),  # pairs of columns
    Conv(1, 40, (7, 7), 40, (3, 3), pad=(1, 1), groups=40),
    Conv(2, 5, (9, 50), 5, (3, 7), (1, 3), (2, 4), (2, 2), groups=5),  # gathered columns
    Conv(1, 2, (12, 20), 10, (5, 2), (3, 2), (0, 1), (1, 3), groups=2),  # five outputs each
    Conv(3, 4, (33,), 4, (4,), (2,), (3,), groups=4),
    Conv(1, 2, (5000,), 2, (3,), groups=2),
    Conv(2, 1, (9, 5), 3, (3, 3), pad=(3, 3)),
    Conv(1, 3, (29, 45), 3, (5, 5), pad=(2, 2), groups=3),  # lines that end within a register
    Conv(1, 3, (23, 16), 3, (7, 7), (2, 2), (3, 3), groups=3),
    Conv(2, 4, (14, 14), 8, (3, 3), (2, 2), (1, 1), groups=4),  # half a register of each line
    Conv(2, 3, (33, 67), 3, (5, 6), (1, 2), (5, 5), groups=3),  # columns two by two, lines of zeros
    Conv(1, 3, (9, 131), 6, (3, 5), (2, 2), (4, 0), (2, 1), groups=3),
    Conv(1, 2, (40, 300), 2, (3, 4), (1, 2), (0, 6), (2, 3), groups=2),  # lines of no taps
    Conv(1, 2, (50, 9), 2, (9, 3), (2, 1), (7, 1), groups=2),
]


def whole_registers() -> Target:
    """This machine's CPU, with registers that are not computed in halves."""
    host = host_target()
    return replaced(host, cpu="x86-64-v4") if host.vector_bytes == 64 else host


def check(case: Conv, kind: str, target: Target | None = None, threads: int = 1) -> np.ndarray:
    """Runs one kind and compares it with the interpreter on the same operands; returns it."""
    kernel = case.kernel(kind)
    rng = np.random.default_rng(0)
    names = [param.name for param in kernel.params]
    operands = [
        rng.standard_normal(case.shapes[name]).astype(case.dtype.numpy) for name in names[:2]
    ]
    acc = (case.acc or case.dtype).numpy
    memory, result = guarded(int(np.prod(case.shapes[names[2]])), acc)
    run(kernel, [*operands, result], target=target, threads=threads)
    assert unharmed(memory)
    want = reference(case, kind, operands)
    unit = 2e-6 if acc == np.float32 else 1e-13
    terms = max(1.0, np.sqrt(float(kernel.template.k)))  # type: ignore[union-attr, arg-type]
    np.testing.assert_allclose(result, want, rtol=0, atol=unit * 8 * terms)
    return result.copy()


def reference(case: Conv, kind: str, operands: list[np.ndarray]) -> np.ndarray:
    """The interpreter's result in float64."""
    wide = Conv(
        case.batch, case.channels, case.input, case.outputs, case.window, case.stride, case.pad,
        case.dilation, case.groups, dtypes.f64,
    )
    kernel = wide.kernel(kind)
    result = np.zeros(int(np.prod(case.shapes[kernel.params[2].name])))
    run_kernel(kernel, [*(x.astype(np.float64).ravel() for x in operands), result], (), TABLE)
    return result


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.input}-{c.window}-g{c.groups}")
def test_every_kind(case: Conv) -> None:
    for kind in KINDS:
        check(case, kind)


@pytest.mark.usefixtures("without_strips")
@pytest.mark.parametrize("case", STRIDED, ids=lambda c: f"{c.input}-{c.window}-{c.stride}")
def test_strides_over_phases_of_a_copy(case: Conv) -> None:
    for target in (whole_registers(), *narrow_targets()):
        template = case.kernel("conv").template
        assert isinstance(template, Convolution)
        (found,) = contractions(template, target.machine) or ()
        assert found.kind in ("windows", "pieces")
        results = [check(case, "conv", target, threads) for threads in (1, 4)]
        assert results[0].tobytes() == results[1].tobytes()
    for kind in KINDS[1:]:
        check(case, kind)
    check(replaced(case, dtype=dtypes.bf16, acc=dtypes.f32), "conv")
    check(replaced(case, dtype=dtypes.f64), "conv")


@pytest.mark.usefixtures("without_strips")
@pytest.mark.parametrize("case", PLACES, ids=lambda c: f"{c.input}-{c.window}-g{c.groups}")
def test_images_read_where_they_lie(case: Conv) -> None:
    for target in (whole_registers(), *narrow_targets()):
        template = case.kernel("conv").template
        assert isinstance(template, Convolution)
        (found,) = contractions(template, target.machine) or ()
        assert (found.kind == "places") is (target.vector_bytes == 64)
        results = [check(case, "conv", target, threads) for threads in (1, 4)]
        assert results[0].tobytes() == results[1].tobytes()
    check(replaced(case, dtype=dtypes.f64), "conv")


@pytest.mark.usefixtures("without_strips")
@pytest.mark.parametrize("case", PIECES, ids=lambda c: f"{c.input}-{c.window}-{c.stride}")
def test_positions_packed_from_a_copy(case: Conv) -> None:
    for target in (whole_registers(), *narrow_targets()):
        template = case.kernel("conv").template
        assert isinstance(template, Convolution)
        (found,) = contractions(template, target.machine) or ()
        assert found.kind == "pieces"
        results = [check(case, "conv", target, threads) for threads in (1, 4)]
        assert results[0].tobytes() == results[1].tobytes()
    for kind in KINDS[1:]:
        check(case, kind)
    check(replaced(case, dtype=dtypes.bf16, acc=dtypes.f32), "conv")
    check(replaced(case, dtype=dtypes.f64), "conv")


@pytest.mark.usefixtures("without_strips")
def test_pixels_of_a_narrow_tile_stay_in_the_first_cache() -> None:
    """Those that a block reads in a copy; of a wide one blocks are long."""
    for machine, blocks in ((cpu(64, 32), 1), (cpu(32, 16), 2)):
        found = _planned(Conv(4, 64, (56, 56), 16, (3, 3)), machine)
        assert found.kind == "windows" and found.plan.blocks == blocks


@pytest.mark.usefixtures("without_strips")
def test_many_rows_that_would_read_across_lines_meet_packed_positions() -> None:
    """Where half of the registers of a copy lie across two lines of the caches."""
    for machine, kind in ((cpu(64, 32), "windows"), (cpu(32, 16), "pieces")):
        assert _planned(Conv(4, 64, (56, 56), 64, (3, 3)), machine).kind == kind


def test_registers_in_halves_are_not_read_under_masks() -> None:
    """Strips take less time beside them; of float64, a copy."""
    case = Conv(4, 64, (56, 56), 64, (3, 3), pad=(1, 1))
    for dtype, kind in ((dtypes.f32, "strips"), (dtypes.f64, "windows")):
        typed = replaced(case, dtype=dtype)
        assert _planned(typed, cpu(64, 32)).kind == "places"
        assert _planned(typed, cpu(64, 32, split=True)).kind == kind
    host = host_target()
    assert host.machine.tiling.split is (host.cpu == "znver4" and host.vector_bytes == 64)


def _planned(case: Conv, machine: Machine) -> Contraction:
    template = case.kernel("conv").template
    assert isinstance(template, Convolution)
    (found,) = contractions(template, machine) or ()
    return found


def test_nothing_beside_an_image_is_read() -> None:
    check_edges(Conv(1, 16, (8, 128), 40, (3, 3), pad=(1, 1)))  # four pages


def check_edges(case: Conv, target: Target | None = None) -> None:
    """An image between memory that is not the process's."""
    page, size = mmap.PAGESIZE, int(np.prod(case.shapes["x"])) * 4
    assert size % page == 0
    memory = mmap.mmap(-1, size + 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for place in (start, start + page + size):
        assert protect(place, page, 0) == 0
    rng = np.random.default_rng(0)
    x = np.frombuffer(memory, np.float32, size // 4, page)
    x[:] = rng.standard_normal(x.size)
    w = rng.standard_normal(case.shapes["w"]).astype(np.float32)
    y = np.zeros(case.shapes["y"], np.float32)
    run(case.kernel("conv"), [w, x, y], target=target)
    want = reference(case, "conv", [w, x.copy()]).reshape(y.shape)
    np.testing.assert_allclose(y, want, atol=2e-4)


@pytest.mark.parametrize(
    "case",
    [
        Conv(2, 3, (64, 64), 8, (7, 7), (2, 2), (3, 3)),
        Conv(3, 2, (40, 61), 3, (5, 9), (2, 3), (2, 4), (1, 2)),
        Conv(2, 4, (31, 95), 6, (5, 5), (1, 2), (2, 2), groups=2),
        Conv(2, 2, (300,), 3, (11,), (3,), (5,)),
    ],
    ids=lambda c: f"{c.input}-{c.window}-{c.stride}",
)
def test_weights_gradients_over_phases_of_a_copy(case: Conv) -> None:
    for target in (None, *narrow_targets()):
        template = case.kernel("conv_weight_grad").template
        assert isinstance(template, Convolution)
        (found,) = contractions(template, (target or host_target()).machine) or ()
        assert found.kind == "dots"
        results = [check(case, "conv_weight_grad", target, threads) for threads in (1, 4)]
        assert results[0].tobytes() == results[1].tobytes()
    check(replaced(case, dtype=dtypes.bf16, acc=dtypes.f32), "conv_weight_grad")
    check(replaced(case, dtype=dtypes.f64), "conv_weight_grad")


@pytest.mark.parametrize("case", PLANES, ids=lambda c: f"{c.input}-{c.window}-{c.stride}")
def test_groups_of_one_channel(case: Conv) -> None:
    for target in (None, *narrow_targets()):
        results = [check(case, "conv", target, threads) for threads in (1, 4)]
        assert results[0].tobytes() == results[1].tobytes()
        check(replaced(case, dtype=dtypes.f64), "conv", target)


def test_windows_of_one_channel_are_in_the_kernels_own_code() -> None:
    """Where registers have masks: nothing is linked but the plainest epilogue."""
    cases = (PLANES[0], PLANES[1], PLANES[5])
    for target in (host_target(), *narrow_targets()):
        wide = target.vector_bytes >= 32
        for case in cases:
            linked = template_libraries(case.kernel("conv"), target)
            assert (linked == ("store.f32",)) is wide
            assert ("conv_planes.f32" in linked) is not wide
        gathered = template_libraries(PLANES[3].kernel("conv"), target)
        assert "conv_planes.f32" in gathered


def test_an_infinite_pixel_of_a_plane_reaches_only_the_outputs_that_see_it() -> None:
    case = Conv(2, 3, (14, 20), 3, (3, 3), pad=(1, 1), groups=3)
    rng = np.random.default_rng(0)
    w, x = (rng.standard_normal(case.shapes[name]).astype(np.float32) for name in "wx")
    x[0, 1, 6, 19], x[1, 0, 13, 0] = np.inf, np.nan  # the next line, the next plane follow
    bad = np.zeros(case.shapes["y"], bool)
    bad[0, 1, 5:8, 18:], bad[1, 0, 12:, :2] = True, True
    for target in (None, *narrow_targets()):
        y = np.zeros(case.shapes["y"], np.float32)
        run(case.kernel("conv"), [w, x, y], target=target)
        np.testing.assert_array_equal(~np.isfinite(y), bad)


@pytest.mark.parametrize("dtype", [dtypes.f64, dtypes.bf16, dtypes.f16], ids=str)
def test_dtypes(dtype: dtypes.DType) -> None:
    acc = dtypes.f32 if dtype.bits == 16 else None
    for shape in (
        (2, 6, (14, 14), 16, (5, 5)),
        (2, 8, (9, 11), 50, (3, 3), (2, 2), (1, 1)),
        (3, 64, (4, 4), 70, (3, 3), (1, 1), (1, 1)),
    ):
        for kind in KINDS:
            check(Conv(*shape, dtype=dtype, acc=acc), kind)


@pytest.mark.parametrize("target", narrow_targets(), ids=lambda t: f"{t.vector_bytes} bytes")
def test_narrow_registers(target: Target) -> None:
    for case in CASES[:10:2] + CASES[12:15]:
        for kind in KINDS:
            check(case, kind, target)


@pytest.mark.parametrize(
    "case",
    [
        Conv(16, 3, (32, 32), 6, (5, 5)),
        Conv(8, 32, (16, 16), 64, (3, 3), pad=(1, 1)),
        Conv(8, 32, (16, 16), 64, (3, 3), (2, 2), (1, 1)),
        Conv(16, 128, (4, 4), 128, (3, 3), pad=(1, 1)),
    ],
    ids=lambda c: f"{c.input}-{c.window}-{c.stride}",
)
def test_same_bits_for_any_number_of_threads(case: Conv) -> None:
    for kind in KINDS:
        one, two, five = (check(case, kind, threads=threads) for threads in (1, 2, 5))
        assert one.tobytes() == two.tobytes() == five.tobytes()


def test_epilogue_sees_image_channel_and_position() -> None:
    """relu(acc + bias[m]): by segments of images, by lines of the copy, and after phases."""
    f32 = dtypes.f32
    value = Apply("relu", (Apply("add", (Var("acc", f32), Load("bias", M, f32)), f32),), f32)
    for case, kind in (
        (Conv(5, 8, (4, 4), 70, (3, 3), pad=(1, 1)), "conv"),
        (Conv(2, 3, (14, 14), 8, (3, 3), pad=(1, 1)), "conv"),
        (Conv(2, 3, (31, 29), 8, (5, 5), (2, 2), (2, 2)), "conv"),
        (Conv(2, 16, (16, 16), 70, (3, 3), pad=(1, 1)), "conv"),
        (Conv(3, 16, (15, 15), 70, (3, 3), pad=(1, 1)), "conv"),
        (Conv(2, 6, (40, 150), 12, (3, 3), pad=(1, 1), groups=6), "conv"),
        (Conv(2, 6, (9, 11), 6, (5, 5), (2, 2), (2, 2), groups=6), "conv"),
        (Conv(2, 6, (14, 14), 8, (3, 3), (2, 2), (1, 1)), "conv_input_grad"),
        (Conv(2, 6, (9, 9), 8, (3, 3), (1, 1), (1, 1), groups=2), "conv_input_grad"),
    ):
        rows = case.outputs if kind == "conv" else case.channels
        kernel = case.kernel(kind, value, (Param("bias", f32, rows, "in"),))
        rng = np.random.default_rng(0)
        left, right, out = (case.shapes[param.name] for param in kernel.params[:3])
        operands = [rng.standard_normal(shape).astype(np.float32) for shape in (left, right)]
        bias = rng.standard_normal(rows).astype(np.float32)
        result = np.zeros(out, np.float32)
        run(kernel, [*operands, result, bias])
        sums = reference(case, kind, operands).reshape(out)
        column = bias.reshape(1, rows, *(1 for _ in case.input))
        np.testing.assert_allclose(result, np.maximum(sums + column, 0), atol=1e-4)


def test_an_infinite_pixel_reaches_only_the_outputs_that_see_it() -> None:
    case = Conv(2, 3, (14, 14), 8, (3, 3))
    rng = np.random.default_rng(0)
    w, x = (rng.standard_normal(case.shapes[name]).astype(np.float32) for name in "wx")
    x[0, 1, 6, 13] = np.inf  # the last of its line: the next line follows in the copy
    y = np.zeros(case.shapes["y"], np.float32)
    run(case.kernel("conv"), [w, x, y])
    assert np.isinf(y[0, :, 4:7, 11:]).any() and np.isfinite(y[0, :, :, :11]).all()
    assert np.isfinite(y[0, :, 7:]).all() and np.isfinite(y[1]).all()


@pytest.mark.parametrize("case", CASES[4:6] + CASES[9:15], ids=lambda c: f"{c.input}-{c.window}")
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_bad_weights_meet_nothing_beside_the_image(case: Conv, bad: float) -> None:
    """An input's gradient has no terms there, as NumPy and PyTorch have none."""
    kernel = case.kernel("conv_input_grad")
    rng = np.random.default_rng(0)
    w, g = (rng.standard_normal(case.shapes[param.name]) for param in kernel.params[:2])
    w.flat[0] = bad
    operands = [w.astype(np.float32), g.astype(np.float32)]
    result = np.zeros(case.shapes[kernel.params[2].name], np.float32)
    run(kernel, [*operands, result], threads=2)
    want = reference(case, "conv_input_grad", operands)
    assert np.isfinite(want).any() and not np.isfinite(want).all()
    np.testing.assert_allclose(result.ravel(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [dtypes.f64, dtypes.bf16, dtypes.f16], ids=str)
def test_sums_of_bad_weights_are_made_again_of_any_dtype(dtype: dtypes.DType) -> None:
    """By code that kernels of all sizes share; where nothing is bad they are what they were."""
    case = Conv(3, 8, (9, 11), 6, (3, 2), (2, 3), (1, 2), (2, 1), groups=2, dtype=dtype,
                acc=dtype if dtype is dtypes.f64 else dtypes.f32)
    kernel = case.kernel("conv_input_grad")
    rng = np.random.default_rng(0)
    w, g = (rng.integers(-4, 5, case.shapes[p.name]).astype(dtype.numpy) for p in kernel.params[:2])
    for place, bad in ((5, np.inf), (17, -np.inf), (70, np.nan)):
        w.flat[place] = bad
        result = np.zeros(case.shapes[kernel.params[2].name], case.acc.numpy if case.acc else None)
        run(kernel, [w, g, result])
        want = reference(case, "conv_input_grad", [w, g])
        assert np.isfinite(want).any() and not np.isfinite(want).all()
        np.testing.assert_array_equal(result.ravel(), want)  # integers: exact


def test_what_adds_up_sums_again_is_no_kernels_own() -> None:
    """It would be half of what is compiled for a gradient."""
    kernel = CASES[0].kernel("conv_input_grad")
    text = emit(kernel, host_target(), "k")
    assert text.count("\ndefine ") == 1 and "@graphc_again_f32_f32_f32" in text
    assert "again.f32.f32.f32" in template_libraries(kernel, host_target())


def test_refuses_images_too_large_for_its_offsets() -> None:
    case = Conv(1, 64, (1500, 1500), 1, (1, 1))
    with pytest.raises(ValueError, match="too large"):
        run(case.kernel("conv"), [])


def test_refuses_another_layout() -> None:
    case = Conv(2, 4, (5, 5), 6, (3, 3))
    kernel = case.kernel("conv")
    template = kernel.template
    assert isinstance(template, Convolution)
    image, channel, position = (Dim.var(name) for name in ("image", "channel", "position"))
    channels_last = replaced(template.right, index=image * 100 + position * 4 + channel)
    with pytest.raises(ValueError, match="not in NCHW order"):
        run(replaced(kernel, template=replaced(template, right=channels_last)), [])
