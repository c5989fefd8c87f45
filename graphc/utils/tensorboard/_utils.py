"""torch.utils.tensorboard._utils: images, figures and videos as arrays of one picture."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def figure_to_image(figures: Any, close: bool = True) -> Array:
    """matplotlib's figure as [3, H, W] bytes; a list of figures as [N, 3, H, W]."""
    import matplotlib.pyplot as plt
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    def rendered(figure: Any) -> Array:
        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()
        pixels = np.asarray(canvas.buffer_rgba())[:, :, :3]
        if close:
            plt.close(figure)
        return np.moveaxis(pixels, 2, 0)

    if isinstance(figures, list):
        return np.stack([rendered(figure) for figure in figures])
    return rendered(figures)


def make_grid(images: Array, ncols: int = 8) -> Array:
    """Images [N, 1 or 3, H, W] side by side, `ncols` a row, as [3, H', W']."""
    assert isinstance(images, np.ndarray), "plugin error, should pass numpy array here"
    if images.ndim == 4 and images.shape[1] == 1:
        images = np.repeat(images, 3, axis=1)
    if images.ndim != 4 or images.shape[1] != 3:
        raise AssertionError("Input should be a 4D numpy array with 3 channels")
    count, _, height, width = images.shape
    columns = min(count, ncols)
    rows = -(-count // columns)
    canvas = np.zeros((3, height * rows, width * columns), dtype=images.dtype)
    for number, picture in enumerate(images):
        top, left = number // columns * height, number % columns * width
        canvas[:, top : top + height, left : left + width] = picture
    return canvas


def convert_to_HWC(tensor: Array, input_format: str) -> Array:
    """A picture [H, W, 3] of an array whose dims `input_format` names: NCHW, CHW, HW, ...

    Raises AssertionError for a format that does not fit.
    """
    if len(set(input_format)) != len(input_format):
        raise AssertionError(
            f"You can not use the same dimension shorthand twice. input_format: {input_format}"
        )
    if tensor.ndim != len(input_format):
        raise AssertionError(
            "size of input tensor and input format are different. "
            f"tensor shape: {tensor.shape}, input_format: {input_format}"
        )
    wanted = {4: "NCHW", 3: "HWC", 2: "HW"}[tensor.ndim]
    turned = tensor.transpose([input_format.upper().index(dim) for dim in wanted])
    if tensor.ndim == 4:
        return make_grid(turned).transpose(1, 2, 0)
    if tensor.ndim == 2:
        return np.stack([turned] * 3, axis=2)
    return np.repeat(turned, 3, axis=2) if turned.shape[2] == 1 else turned


def _prepare_video(V: Array) -> Array:
    """Clips [N, T, C, H, W] as frames [T, H', W', C]: a grid, its sides powers of two."""
    count, frames, channels, height, width = V.shape
    if V.dtype == np.uint8:
        V = V.astype(np.float32) / 255.0
    whole = 1 << (count - 1).bit_length()
    padded = np.zeros((whole, frames, channels, height, width), V.dtype)
    padded[:count] = V
    rows = 1 << (count.bit_length() - 1) // 2
    grid = padded.reshape(rows, whole // rows, frames, channels, height, width)
    turned = grid.transpose(2, 0, 4, 1, 5, 3)
    return turned.reshape(frames, rows * height, whole // rows * width, channels)
