"""PyTorch's values as graphc's, and the comparison of results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import torch

import graphc

# relative and absolute; the two libraries add in different orders
TOLERANCE = {
    torch.float64: (1e-7, 1e-7), torch.float32: (2e-4, 2e-5), torch.bfloat16: (4e-2, 2e-2),
    torch.float16: (4e-3, 2e-3), torch.complex128: (1e-7, 1e-7), torch.complex64: (2e-4, 2e-5),
}  # fmt: skip


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's values with its strides; bfloat16 as ml_dtypes'."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def twin(value: Any) -> Any:
    """A torch value as graphc's: tensors (copied with their strides), dtypes, devices, nests."""
    if isinstance(value, torch.Tensor):
        array = to_numpy(value)
        copied = np.empty_like(array, order="K", subok=False)
        np.copyto(copied, array)
        made = graphc.from_numpy(copied)
        if isinstance(value, torch.nn.Parameter):
            return graphc.nn.Parameter(made, requires_grad=value.requires_grad)
        return made.requires_grad_(value.requires_grad)
    if isinstance(value, torch.dtype):
        return getattr(graphc, str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return graphc.device(str(value))
    if value in (torch.strided, torch.contiguous_format, torch.preserve_format,
                 torch.channels_last, torch.channels_last_3d) and not isinstance(value, int):
        return getattr(graphc, str(value).removeprefix("torch."))  # fmt: skip
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, tuple):
        items = [twin(v) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [twin(v) for v in value]
    if isinstance(value, dict):
        return {key: twin(v) for key, v in value.items()}
    return value


def copy(value: Any) -> Any:
    """Fresh leaves for torch's own run, with the same strides."""
    if isinstance(value, torch.Tensor):
        made = value.detach().clone(memory_format=torch.preserve_format)
        return made.requires_grad_(value.requires_grad)
    if isinstance(value, (tuple, list)):
        items = [copy(v) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {key: copy(v) for key, v in value.items()}
    return value


def leaves(value: Any, kind: Any) -> list[Any]:
    """The tensors in a nest of tuples, lists and dictionaries."""
    if isinstance(value, kind):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in leaves(item, kind)]
    return []


def difference(have: Any, want: Any, dtypes: bool = True, path: str = "result") -> str:
    """What differs between graphc's result and torch's; "" if nothing does."""
    if isinstance(want, torch.Tensor):
        if not isinstance(have, graphc.Tensor):
            return f"{path} is {type(have).__name__}, not a Tensor"
        return _tensors(have, want, dtypes, path)
    if isinstance(want, (tuple, list)) and not isinstance(want, torch.Size):
        if not isinstance(have, (tuple, list)) or len(have) != len(want):
            return f"{path} is {have!r:.80}, not {len(want)} values"
        parts = enumerate(zip(have, want, strict=True))
        found = (difference(h, w, dtypes, f"{path}[{i}]") for i, (h, w) in parts)
        return next((text for text in found if text), "")
    if isinstance(want, torch.dtype):
        return "" if str(have).rpartition(".")[2] == str(want).rpartition(".")[2] else (
            f"{path} is {have}, not {want}"
        )
    if isinstance(want, (float, complex)) and isinstance(have, (float, complex)):
        return "" if np.allclose(have, want, 1e-4, 1e-5, equal_nan=True) else (
            f"{path} is {have}, not {want}"
        )
    if want is None or isinstance(want, (bool, int, str, torch.Size)):
        same = have == want or (isinstance(want, torch.Size) and tuple(have) == tuple(want))
        return "" if same else f"{path} is {have!r:.60}, not {want!r:.60}"
    return ""


def _tensors(have: graphc.Tensor, want: torch.Tensor, dtypes: bool, path: str) -> str:
    if tuple(have.shape) != tuple(want.shape):
        return f"{path} has shape {tuple(have.shape)}, not {tuple(want.shape)}"
    kind = str(want.dtype).removeprefix("torch.")
    if dtypes and str(have.dtype).removeprefix("torch.").removeprefix("graphc.") != kind:
        return f"{path} is {have.dtype}, not {want.dtype}"
    wide: Callable[[np.ndarray], np.ndarray] = lambda a: (  # noqa: E731
        a.astype(np.float64) if a.dtype.kind == "V" or a.dtype == ml_dtypes.bfloat16 else a
    )
    ours = wide(np.asarray(have.detach()._array))
    theirs = wide(to_numpy(want))
    relative, absolute = TOLERANCE.get(want.dtype, (0, 0))
    with np.errstate(all="ignore"):
        near = np.isclose(ours, theirs, relative, absolute, equal_nan=True)
    if near.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~near)[0])
    return f"{path}{list(at)} is {ours[at]}, not {theirs[at]} ({int((~near).sum())} differ)"
