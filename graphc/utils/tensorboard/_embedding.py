"""torch.utils.tensorboard._embedding: the files of TensorBoard's projector."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ._convert_np import make_np
from ._utils import make_grid


def make_tsv(
    metadata: Sequence[Any], save_path: str, metadata_header: Sequence[Any] | None = None
) -> None:
    """metadata.tsv: a label per point, or columns under a header."""
    if metadata_header:
        if len(metadata_header) != len(metadata[0]):
            raise AssertionError("len of header must be equal to the number of columns in metadata")
        lines = ["\t".join(map(str, row)) for row in (metadata_header, *metadata)]
    else:
        lines = [str(label) for label in metadata]
    _write(save_path, "metadata.tsv", lines)


def make_mat(matlist: Iterable[Any], save_path: str) -> None:
    """tensors.tsv: a line per point."""
    rows = (np.asarray(row).tolist() for row in matlist)
    _write(save_path, "tensors.tsv", ["\t".join(map(str, row)) for row in rows])


def make_sprite(label_img: Any, save_path: str) -> None:
    """sprite.png: images [N, 1 or 3, H, W] row by row, as many in a row as there are rows."""
    from PIL import Image

    images = make_np(label_img)
    scale = 1 if images.dtype == np.uint8 else 255
    grid = make_grid(images, ncols=math.ceil(len(images) ** 0.5)).transpose(1, 2, 0)
    height, width = grid.shape[:2]
    canvas = np.zeros((max(height, width), width, 3))
    canvas[:height] = grid
    picture = Image.fromarray((canvas * scale).clip(0, 255).astype(np.uint8))
    picture.save(os.path.join(save_path, "sprite.png"))


def get_embedding_info(
    metadata: Any, label_img: Any, subdir: str, global_step: int, tag: str
) -> str:
    """What projector_config.pbtxt says of these files: an EmbeddingInfo in protobuf's text form."""
    lines = [f"tensor_name: {_quoted(f'{tag}:{str(global_step).zfill(5)}')}"]
    if metadata is not None:
        lines.append(f"metadata_path: {_quoted(f'{subdir}/metadata.tsv')}")
    if label_img is not None:
        height, width = label_img.shape[2:]
        lines += [
            "sprite {", f"  image_path: {_quoted(f'{subdir}/sprite.png')}",
            f"  single_image_dim: {width}", f"  single_image_dim: {height}", "}",
        ]
    lines.append(f"tensor_path: {_quoted(f'{subdir}/tensors.tsv')}")
    return "\n".join(["embeddings {", *(f"  {line}" for line in lines), "}"])


def write_pbtxt(save_path: str, contents: str) -> None:
    """projector_config.pbtxt, which says where the other files are."""
    _write(save_path, "projector_config.pbtxt", [contents])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _write(folder: str, name: str, lines: Iterable[str]) -> None:
    with open(os.path.join(folder, name), "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
