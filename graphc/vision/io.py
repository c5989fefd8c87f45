"""Image files as uint8 Tensors [C, H, W] (torchvision.io); videos are not read."""

from __future__ import annotations

import io
import os
from enum import Enum
from typing import Any

import numpy as np

import graphc
from graphc import Tensor

from ..unsupported import function
from .transforms.functional import pil_to_tensor, to_pil_image


class ImageReadMode(Enum):
    """How many channels a read image gets."""

    UNCHANGED = 0
    GRAY = 1
    GRAY_ALPHA = 2
    RGB = 3
    RGB_ALPHA = 4


_PILLOW = {"GRAY": "L", "GRAY_ALPHA": "LA", "RGB": "RGB", "RGB_ALPHA": "RGBA"}


def _mode(mode: ImageReadMode | str) -> ImageReadMode:
    return ImageReadMode[mode.upper()] if isinstance(mode, str) else mode


def read_file(path: str) -> Tensor:
    """The bytes of a file, as uint8 [size]."""
    with open(path, "rb") as file:
        return graphc.from_numpy(np.frombuffer(file.read(), np.uint8).copy())


def write_file(filename: str, data: Tensor) -> None:
    """uint8 [size] as a file."""
    with open(filename, "wb") as file:
        file.write(data.numpy().tobytes())


def decode_image(
    input: Tensor | str | os.PathLike[str], mode: ImageReadMode | str = ImageReadMode.UNCHANGED,
    apply_exif_orientation: bool = False,
) -> Tensor:
    """A PNG, JPEG, GIF, ... file (its bytes as uint8 [size], or a path) as uint8 [C, H, W]."""
    from PIL import Image, ImageOps  # late: the optional package for images

    source: Any = io.BytesIO(input.numpy().tobytes()) if isinstance(input, Tensor) else input
    with Image.open(source) as opened:
        image: Any = ImageOps.exif_transpose(opened) if apply_exif_orientation else opened
        wanted = _PILLOW.get(_mode(mode).name)
        if wanted is None and image.mode == "P":
            wanted = "RGBA" if "transparency" in image.info else "RGB"
        return pil_to_tensor(image if wanted is None else image.convert(wanted))


def read_image(
    path: str | os.PathLike[str], mode: ImageReadMode | str = ImageReadMode.UNCHANGED,
    apply_exif_orientation: bool = False,
) -> Tensor:
    """An image file as uint8 [C, H, W]."""
    return decode_image(os.fspath(path), mode, apply_exif_orientation)


decode_png = decode_jpeg = decode_webp = decode_image


def decode_gif(input: Tensor) -> Tensor:
    """A GIF file's bytes as RGB: uint8 [3, H, W], or [frames, 3, H, W] where there are several."""
    from PIL import Image, ImageSequence  # late: the optional package for images

    with Image.open(io.BytesIO(input.numpy().tobytes())) as opened:
        frames = [pil_to_tensor(frame.convert("RGB")) for frame in ImageSequence.Iterator(opened)]
    return frames[0] if len(frames) == 1 else graphc.stack(frames)


def _encoded(input: Tensor, **options: Any) -> Tensor:
    if input.dtype is not graphc.uint8 or input.ndim != 3:
        raise RuntimeError(f"an image is uint8 [C, H, W], got {input.dtype} {list(input.shape)}")
    buffer = io.BytesIO()
    to_pil_image(input).save(buffer, **options)
    return graphc.from_numpy(np.frombuffer(buffer.getvalue(), np.uint8).copy())


def encode_png(input: Tensor, compression_level: int = 6) -> Tensor:
    """uint8 [C, H, W] as a PNG file's bytes."""
    return _encoded(input, format="PNG", compress_level=compression_level)


def encode_jpeg(input: Tensor, quality: int = 75) -> Tensor:
    """uint8 [C, H, W] as a JPEG file's bytes."""
    return _encoded(input, format="JPEG", quality=quality)


def write_png(input: Tensor, filename: str, compression_level: int = 6) -> None:
    """uint8 [C, H, W] as a PNG file."""
    write_file(filename, encode_png(input, compression_level))


def write_jpeg(input: Tensor, filename: str, quality: int = 75) -> None:
    """uint8 [C, H, W] as a JPEG file."""
    write_file(filename, encode_jpeg(input, quality))


_CURE = "read the frames with a video package and make Tensors of them"
read_video = function("torchvision.io.read_video", _CURE)
write_video = function("torchvision.io.write_video", _CURE)
read_video_timestamps = function("torchvision.io.read_video_timestamps", _CURE)
