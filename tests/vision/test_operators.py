"""The operators that an installed torchvision calls, against loops over their definitions."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.autograd import gradcheck
from graphc.nn import functional

Array = np.ndarray[Any, Any]
vision = graphc.ops.torchvision
images = graphc.ops.image

RNG = np.random.default_rng(3)
# image, left, top, right, bottom: inside, between pixels, beyond each edge, turned round, empty,
# far outside, less than a pixel, all there is
BOXES = np.array([
    [0, 1, 1, 5, 4], [1, 0.3, 2.7, 6.9, 5.1], [0, -3, -2, 4, 3], [1, 5, 4, 12, 11],
    [0, 4, 4, 2, 1], [1, 3, 3, 3, 3], [0, 40, 40, 50, 60], [1, 2.2, 2.3, 2.6, 2.9],
    [0, 0, 0, 8, 7], [1, 0.5, 1.5, 2.5, 3.5],
])


def between(plane: Array, y: float, x: float) -> float:
    """RoIAlign's sample: 0 farther out than a pixel, the edge's value before that."""
    height, width = plane.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    total = 0.0
    for row in {math.floor(y), min(math.floor(y) + 1, height - 1)}:
        for column in {math.floor(x), min(math.floor(x) + 1, width - 1)}:
            total += plane[row, column] * max(0, 1 - abs(y - row)) * max(0, 1 - abs(x - column))
    return total


def aligned(
    x: Array, boxes: Array, scale: float, bins: tuple[int, int], ratio: int, half: bool,
    sensitive: bool,
) -> Array:
    """The mean of evenly spaced samples in each bin."""
    deep = x.shape[1] // (bins[0] * bins[1]) if sensitive else x.shape[1]
    out = np.zeros((len(boxes), deep, *bins))
    for k, c, p, q in np.ndindex(*out.shape):
        image, *edges = boxes[k]
        left, top, right, bottom = (edge * scale - 0.5 * half for edge in edges)
        wide, high = right - left, bottom - top
        if not half:
            wide, high = max(wide, 1), max(high, 1)
        high, wide = high / bins[0], wide / bins[1]
        rows = ratio if ratio > 0 else math.ceil(high)
        columns = ratio if ratio > 0 else math.ceil(wide)
        if rows < 1 or columns < 1:
            continue
        plane = x[int(image), (c * bins[0] + p) * bins[1] + q if sensitive else c]
        out[k, c, p, q] = np.mean([
            between(
                plane, top + p * high + (i + 0.5) * high / rows,
                left + q * wide + (j + 0.5) * wide / columns,
            )
            for i in range(rows) for j in range(columns)
        ])
    return out


def away(x: float) -> int:
    """Rounded, halves away from 0."""
    return int(math.copysign(math.floor(abs(x) + 0.5), x))


def pixels(
    box: Array, scale: float, bins: tuple[int, int], least: int, most: tuple[int, int]
) -> Any:
    """The rows of each row of bins, and the columns of each column."""
    found = []
    for axis in range(2):
        start, end = away(box[2 - axis] * scale), away(box[4 - axis] * scale)
        step = max(end - start + least, 1) / bins[axis]
        found.append([
            range(
                min(max(math.floor(p * step) + start, 0), most[axis]),
                min(max(math.ceil((p + 1) * step) + start, 0), most[axis]),
            )
            for p in range(bins[axis])
        ])
    return found


def pooled(x: Array, boxes: Array, scale: float, bins: tuple[int, int]) -> tuple[Array, Array]:
    out = np.zeros((len(boxes), x.shape[1], *bins))
    where = np.full(out.shape, -1)
    for k, c, p, q in np.ndindex(*out.shape):
        rows, columns = pixels(boxes[k], scale, bins, 1, x.shape[2:])  # type: ignore[arg-type]
        values = [
            (x[int(boxes[k, 0]), c, i, j], i * x.shape[3] + j) for i in rows[p] for j in columns[q]
        ]
        if values:
            out[k, c, p, q], where[k, c, p, q] = max(values, key=lambda each: each[0])
    return out, where


def mean_pooled(x: Array, boxes: Array, scale: float, bins: tuple[int, int]) -> Array:
    deep, most = x.shape[1] // (bins[0] * bins[1]), (x.shape[2] - 1, x.shape[3] - 1)
    out = np.zeros((len(boxes), deep, *bins))
    for k, c, p, q in np.ndindex(*out.shape):
        rows, columns = pixels(boxes[k], scale, bins, 0, most)
        plane = x[int(boxes[k, 0]), (c * bins[0] + p) * bins[1] + q]
        values = [plane[i, j] for i in rows[p] for j in columns[q]]
        out[k, c, p, q] = np.mean(values) if values else 0
    return out


def tensors(*arrays: Array) -> list[graphc.Tensor]:
    return [graphc.tensor(np.ascontiguousarray(array)) for array in arrays]


def both_ways(function: Callable[..., Any], *args: Any) -> Any:
    """The eager result, which the compiled function gives, too; twice: kept code is other code."""
    eager = function(*args)
    compiled = graphc.compile(function)
    for _ in range(2):
        found = compiled(*args)
        for one, other in zip(
            eager if isinstance(eager, tuple) else (eager,),
            found if isinstance(found, tuple) else (found,), strict=True,
        ):
            np.testing.assert_allclose(other.numpy(), one.numpy(), rtol=1e-6, atol=1e-7)
    return eager


@pytest.mark.parametrize("ratio", [2, 0, 3])
@pytest.mark.parametrize("half", [False, True])
def test_roi_align(half: bool, ratio: int) -> None:
    x = RNG.uniform(-1, 1, (2, 3, 7, 8))
    bins, scale = (3, 2), 0.7
    found = vision.roi_align(*tensors(x, BOXES), scale, *bins, ratio, half)
    want = aligned(x, BOXES, scale, bins, ratio, half, False)
    np.testing.assert_allclose(found.numpy(), want, atol=1e-12)


@pytest.mark.parametrize("ratio", [2, -1])
def test_ps_roi_align(ratio: int) -> None:
    x = RNG.uniform(-1, 1, (2, 12, 7, 8))
    bins = (3, 2)
    found, channels = vision.ps_roi_align(*tensors(x, BOXES), 1.0, *bins, ratio)
    np.testing.assert_allclose(
        found.numpy(), aligned(x, BOXES, 1.0, bins, ratio, True, True), atol=1e-12
    )
    assert channels.dtype is graphc.int32
    assert channels[4].reshape(-1).tolist() == list(range(12))


def test_roi_pool() -> None:
    x = RNG.uniform(-1, 1, (2, 3, 7, 8))
    bins = (3, 2)
    found, where = vision.roi_pool(*tensors(x, BOXES), 0.7, *bins)
    values, places = pooled(x, BOXES, 0.7, bins)
    np.testing.assert_array_equal(found.numpy(), values)
    np.testing.assert_array_equal(where.numpy(), places)
    assert where.dtype is graphc.int32


def test_ps_roi_pool() -> None:
    x = RNG.uniform(-1, 1, (2, 12, 7, 8))
    bins = (3, 2)
    found, _ = vision.ps_roi_pool(*tensors(x, BOXES), 0.7, *bins)
    np.testing.assert_allclose(found.numpy(), mean_pooled(x, BOXES, 0.7, bins), atol=1e-12)


POOLS: dict[str, tuple[tuple[int, ...], Callable[..., Any]]] = {
    "roi_align": ((2, 3, 7, 8), lambda x, b: vision.roi_align(x, b, 0.7, 3, 2, 2, True)),
    "adaptive": ((2, 3, 7, 8), lambda x, b: vision.roi_align(x, b, 0.7, 3, 2, 0, False)),
    "ps_roi_align": ((2, 12, 7, 8), lambda x, b: vision.ps_roi_align(x, b, 0.7, 3, 2, 2)[0]),
    "roi_pool": ((2, 3, 7, 8), lambda x, b: vision.roi_pool(x, b, 0.7, 3, 2)[0]),
    "ps_roi_pool": ((2, 12, 7, 8), lambda x, b: vision.ps_roi_pool(x, b, 0.7, 3, 2)[0]),
}


@pytest.mark.parametrize("name", POOLS)
def test_pools_have_gradients(name: str) -> None:
    (count, channels, *_), function = POOLS[name]
    x, boxes = tensors(RNG.uniform(-1, 1, (count, min(channels, 6), 3, 4)), BOXES[::2])
    x.requires_grad_()
    assert gradcheck(lambda x: function(x, boxes), (x,))
    boxes.requires_grad_()
    function(x, boxes).sum().backward()
    assert boxes.grad is None and x.grad is not None


@pytest.mark.parametrize(
    "name", [name if name == "roi_align" else pytest.param(name, marks=pytest.mark.slow)
             for name in POOLS]
)
def test_pools_compile(name: str) -> None:
    shape, function = POOLS[name]
    x, boxes = tensors(RNG.uniform(-1, 1, shape), BOXES)
    x.requires_grad_()

    def step(x: graphc.Tensor, boxes: graphc.Tensor) -> Any:
        result = function(x, boxes)
        (slope,) = graphc.autograd.grad((result * result).sum(), x)
        return result.detach(), slope

    both_ways(step, x, boxes)


def test_no_boxes() -> None:
    x = graphc.ones(1, 4, 3, 3, requires_grad=True)
    none = graphc.ones(0, 5)
    for found, channels in (
        (vision.roi_align(x, none, 1.0, 2, 2, 2, False), 4),
        (vision.roi_align(x, none, 1.0, 2, 2, 0, False), 4),
        (vision.roi_pool(x, none, 1.0, 2, 2)[0], 4),
        (vision.ps_roi_pool(x, none, 1.0, 2, 2)[0], 1),
        (vision.ps_roi_align(x, none, 1.0, 2, 2, 2)[0], 1),
    ):
        assert found.shape == (0, channels, 2, 2)
        x.grad = None
        found.sum().backward()
        assert not x.grad.any()


def test_what_a_bin_does_not_read_is_not_in_it() -> None:
    """An infinity elsewhere in a box is no NaN here."""
    x = np.zeros((1, 1, 12, 12))
    x[0, 0, 5, 5] = np.inf
    box = np.array([[0, 0.0, 0.0, 12, 12]])
    given = [graphc.tensor(x, requires_grad=True), graphc.tensor(box)]
    found = vision.roi_align(*given, 1.0, 2, 2, 1, True)
    assert found.tolist() == [[[[0, 0], [0, 0]]]]
    slope = graphc.tensor([[[[1.0, 0], [0, math.nan]]]], dtype=graphc.float64)
    found.backward(slope)
    gradient = given[0].grad.numpy()[0, 0]
    assert np.isnan(gradient[6:, 6:]).any() and np.isfinite(gradient[:6]).all()


def test_narrow_floats_and_autocast() -> None:
    x, boxes = tensors(RNG.uniform(-1, 1, (2, 3, 7, 8)).astype("f4"), BOXES.astype("f4"))
    want = vision.roi_align(x, boxes, 0.5, 2, 2, 2, False)
    half = vision.roi_align(x.half(), boxes.half(), 0.5, 2, 2, 2, False)
    assert half.dtype is graphc.float16
    with pytest.raises(RuntimeError, match="same type as tensor for rois"):
        vision.roi_align(x.half(), boxes, 0.5, 2, 2, 2, False)
    with graphc.autocast("cpu"):
        mixed = vision.roi_align(x.half(), boxes, 0.5, 2, 2, 2, False)
    assert mixed.dtype is graphc.float16
    np.testing.assert_allclose(mixed.float().numpy(), want.numpy(), atol=2e-3)


def test_wrong_arguments_are_named() -> None:
    x, boxes = graphc.ones(1, 4, 3, 3), graphc.ones(2, 5)
    with pytest.raises(IndexError, match="index 1 is out of bounds for dimension 0 with size 1"):
        vision.roi_align(x, boxes, 1.0, 2, 2, 2, False)
    with pytest.raises(RuntimeError, match=r"rois must have shape as Tensor\[K, 5\], got \[2, 4\]"):
        vision.roi_align(x, boxes[:, 1:], 1.0, 2, 2, 2, False)
    with pytest.raises(RuntimeError, match=r"multiple of pooling .* got 4 and 3 \* 3"):
        vision.ps_roi_pool(x, boxes, 1.0, 3, 3)
    with pytest.raises(RuntimeError, match="same number of elements in dimension 0, got 2 and 3"):
        vision.nms(boxes[:, 1:], graphc.ones(3), 0.5)
    with pytest.raises(RuntimeError, match="offset should be"):
        vision.deform_conv2d(
            x, graphc.ones(2, 4, 2, 2), graphc.ones(1, 8, 3, 3), x, x, 1, 1, 0, 0, 1, 1, 1, 1, False
        )
    with pytest.raises(AttributeError, match=r"not have torch\.ops\.image\.decode_avif"):
        _ = images.decode_avif


# --- suppression ---------------------------------------------------------------------------------


def kept(boxes: Array, scores: Array, limit: float) -> list[int]:
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    found: list[int] = []
    for i in sorted(range(len(scores)), key=lambda i: -scores[i]):
        for j in found:
            wide = min(boxes[i, 2], boxes[j, 2]) - max(boxes[i, 0], boxes[j, 0])
            high = min(boxes[i, 3], boxes[j, 3]) - max(boxes[i, 1], boxes[j, 1])
            both = max(wide, 0) * max(high, 0)
            if both / (areas[i] + areas[j] - both) > limit:
                break
        else:
            found.append(i)
    return found


@pytest.mark.parametrize("limit", [0.0, 0.3, 0.5, 0.9, 1.0])
def test_nms(limit: float) -> None:
    corners = RNG.integers(0, 20, (60, 2))
    boxes = np.concatenate([corners, corners + RNG.integers(1, 9, (60, 2))], 1).astype(np.float64)
    scores = RNG.integers(0, 20, 60) / 20  # with ties: the first one comes first
    given = tensors(boxes, scores)
    found = vision.nms(*given, limit)
    assert found.dtype is graphc.int64 and found.tolist() == kept(boxes, scores, limit)
    compiled = graphc.compile(lambda boxes, scores: boxes[vision.nms(boxes, scores, limit)] * 2)
    assert compiled(*given).tolist() == (given[0][found] * 2).tolist()


def test_nms_compares_with_the_threshold_itself() -> None:
    """Three of ten: as float32 that is above 0.3."""
    boxes = graphc.tensor([[0.0, 0, 10, 1], [0, 0, 3, 1]])
    assert vision.nms(boxes, graphc.tensor([1.0, 0.5]), 0.3).tolist() == [0]
    assert vision.nms(boxes.double(), graphc.tensor([1.0, 0.5]), 0.3).tolist() == [0, 1]
    assert vision.nms(boxes[:0], graphc.ones(0), 0.3).tolist() == []


# --- deformable convolution ----------------------------------------------------------------------


def deformed(
    x: Array, w: Array, offset: Array, mask: Array | None, bias: Array, stride: tuple[int, int],
    pad: tuple[int, int], dilation: tuple[int, int], groups: int, offset_groups: int,
) -> Array:
    (count, channels, height, width), (out, inner, high, wide) = x.shape, w.shape
    sizes = offset.shape[2:]
    result = np.zeros((count, out, *sizes))
    for n, o, y, z in np.ndindex(*result.shape):
        total = bias[o]
        for c, i, j in np.ndindex(inner, high, wide):
            channel = o // (out // groups) * inner + c
            tap = channel // (channels // offset_groups) * high * wide + i * wide + j
            row = y * stride[0] - pad[0] + i * dilation[0] + offset[n, 2 * tap, y, z]
            column = z * stride[1] - pad[1] + j * dilation[1] + offset[n, 2 * tap + 1, y, z]
            value = 0.0
            for r in (math.floor(row), math.floor(row) + 1):
                for s in (math.floor(column), math.floor(column) + 1):
                    if 0 <= r < height and 0 <= s < width:
                        value += x[n, channel, r, s] * (1 - abs(row - r)) * (1 - abs(column - s))
            total += w[o, c, i, j] * value * (1 if mask is None else mask[n, tap, y, z])
        result[n, o, y, z] = total
    return result


def deformable(masked: bool) -> tuple[list[graphc.Tensor], tuple[Any, ...]]:
    """Tensors, and the other arguments."""
    steps, groups, offset_groups = (2, 1, 1, 0, 1, 2), 2, 3
    given = tensors(
        RNG.uniform(-1, 1, (2, 6, 5, 6)), RNG.uniform(-1, 1, (4, 3, 3, 2)),
        RNG.uniform(-3, 3, (2, 2 * offset_groups * 6, 3, 4)),
        RNG.uniform(0, 1, (2, offset_groups * 6, 3, 4)), RNG.uniform(-1, 1, 4),
    )
    for each in given[: 5 if masked else 3]:
        each.requires_grad_()
    return given, (*steps, groups, offset_groups, masked)


@pytest.mark.parametrize("masked", [False, True])
def test_deform_conv2d(masked: bool) -> None:
    given, rest = deformable(masked)
    found = vision.deform_conv2d(*given, *rest)
    x, w, offset, mask, bias = (each.detach().numpy() for each in given)
    want = deformed(
        x, w, offset, mask if masked else None, bias, (2, 1), (1, 0), (1, 2), 2, 3
    )
    np.testing.assert_allclose(found.detach().numpy(), want, atol=1e-12)


def test_deform_conv2d_has_gradients() -> None:
    given = tensors(
        RNG.uniform(-1, 1, (1, 4, 3, 3)), RNG.uniform(-1, 1, (2, 2, 2, 2)),
        RNG.uniform(-2, 2, (1, 16, 2, 2)), RNG.uniform(0, 1, (1, 8, 2, 2)), RNG.uniform(-1, 1, 2),
    )
    for each in given:
        each.requires_grad_()
    rest = (1, 1, 0, 0, 1, 1, 2, 2, True)
    assert gradcheck(lambda *given: vision.deform_conv2d(*given, *rest), tuple(given))


def test_deform_conv2d_compiles() -> None:
    given, rest = deformable(True)
    both_ways(lambda *given: vision.deform_conv2d(*given, *rest).detach(), *given)


@pytest.mark.slow
def test_gradients_of_deform_conv2d_compile() -> None:
    given, rest = deformable(True)

    def step(*given: graphc.Tensor) -> Any:
        result = vision.deform_conv2d(*given, *rest)
        return result.detach(), *graphc.autograd.grad((result * result).sum(), given)

    both_ways(step, *given)


def test_without_offsets_it_is_a_convolution() -> None:
    x, w, bias = graphc.randn(2, 4, 6, 7), graphc.randn(6, 2, 3, 3), graphc.randn(6)
    offset = graphc.zeros(2, 18, 3, 4)
    found = vision.deform_conv2d(
        x, w, offset, graphc.zeros(2, 1), bias, 2, 2, 1, 1, 1, 1, 2, 1, False
    )
    want = functional.conv2d(x, w, bias, stride=2, padding=1, groups=2)
    np.testing.assert_allclose(found.numpy(), want.numpy(), atol=1e-5)


# --- files ---------------------------------------------------------------------------------------


def test_image_files(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    picture = graphc.tensor(RNG.integers(0, 256, (3, 5, 7)), dtype=graphc.uint8)
    data = images.encode_png(picture, 6)
    images.write_file(str(tmp_path / "p.png"), data)
    again = images.read_file(str(tmp_path / "p.png"))
    assert images.decode_image(again, 0, False).tolist() == picture.tolist()
    assert images.decode_png(again, 1, False).shape == (1, 5, 7)
    assert images.decode_image(again, 4, False).shape == (4, 5, 7)
    photo = images.encode_jpeg(picture[:1].repeat(3, 1, 1), 95)
    assert images.decode_jpeg(photo, 0, False).shape == (3, 5, 7)
    with pytest.raises(RuntimeError, match="No such file"):
        images.read_file(str(tmp_path / "absent.png"))
    with pytest.raises(RuntimeError, match="decode_image: cannot identify image file"):
        images.decode_image(picture.reshape(-1), 0, False)
    with pytest.raises(RuntimeError, match="channels should be 1 or 3"):
        images.encode_png(picture[:2], 6)
    with pytest.raises(RuntimeError, match="1-dimensional"):
        images.decode_png(picture, 0, False)
