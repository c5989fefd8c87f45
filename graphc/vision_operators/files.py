"""Image files (torch.ops.image): bytes, uint8 [size], and images, uint8 [C, H, W], by Pillow."""

from __future__ import annotations

from typing import Any

from ..frontend import functions as T
from ..frontend.errors import located
from ..frontend.tensor import Tensor
from ..vision import io

_ENCODED = (1, 3)  # channels


def read_file(filename: str) -> Tensor:
    """The bytes of a file. Raises RuntimeError, as torchvision does."""
    try:
        data = io.read_file(filename)
    except OSError as error:
        raise RuntimeError(located(str(error))) from None
    if not int(data.shape[0]):
        raise RuntimeError(located(f"Expected a non empty file, got {filename!r}"))
    return data


def write_file(filename: str, data: Tensor) -> None:
    """Bytes as a file. Raises RuntimeError."""
    _check_bytes(data)
    try:
        io.write_file(filename, data)
    except OSError as error:
        raise RuntimeError(located(str(error))) from None


def _check_bytes(data: Tensor) -> None:
    if data.dtype is not T.uint8 or data.dim() != 1 or not int(data.shape[0]):
        raise RuntimeError(located(
            f"Expected a non empty 1-dimensional torch.uint8 tensor of a file's bytes, got "
            f"{data.dtype} {list(data.shape)}"
        ))


def _decoder(name: str) -> Any:
    def decode(data: Tensor, mode: int = 0, apply_exif_orientation: bool = False) -> Tensor:
        _check_bytes(data)
        try:
            return io.decode_image(data, io.ImageReadMode(mode), apply_exif_orientation)
        except (OSError, SyntaxError) as error:  # what Pillow raises for a file that it cannot read
            raise RuntimeError(located(f"{name}: {error}")) from None

    decode.__name__ = decode.__qualname__ = name
    decode.__doc__ = "An image file's bytes as uint8 [C, H, W]. Raises RuntimeError."
    return decode


decode_image, decode_jpeg, decode_png, decode_webp = (
    _decoder(name) for name in ("decode_image", "decode_jpeg", "decode_png", "decode_webp")
)


def decode_gif(data: Tensor) -> Tensor:
    """A GIF file's bytes as RGB: uint8 [3, H, W], or [frames, 3, H, W] where there are several."""
    _check_bytes(data)
    try:
        return io.decode_gif(data)
    except (OSError, SyntaxError) as error:
        raise RuntimeError(located(f"decode_gif: {error}")) from None


def _check_image(data: Tensor) -> None:
    if data.dtype is not T.uint8:
        raise RuntimeError(located(f"Input tensor dtype should be uint8, got {data.dtype}"))
    if data.dim() != 3 or int(data.shape[0]) not in _ENCODED:
        raise RuntimeError(located(
            "The number of channels should be 1 or 3, and the image [C, H, W], got "
            f"{list(data.shape)}"
        ))


def encode_jpeg(data: Tensor, quality: int) -> Tensor:
    """uint8 [C, H, W] as a JPEG file's bytes."""
    _check_image(data)
    return io.encode_jpeg(data, quality)


def encode_png(data: Tensor, compression_level: int) -> Tensor:
    """uint8 [C, H, W] as a PNG file's bytes. Raises RuntimeError for a level that is not 0 to 9."""
    if not 0 <= compression_level <= 9:
        raise RuntimeError(located(
            f"Compression level should be between 0 and 9, got {compression_level}"
        ))
    _check_image(data)
    return io.encode_png(data, compression_level)
