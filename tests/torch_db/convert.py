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
}


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's values with its strides; bfloat16 as ml_dtypes'."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor._is_zerotensor():
        tensor = torch.zeros_like(tensor, memory_format=torch.contiguous_format).clone()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


class Memory:
    """The memory that tensors of one sample share, so that their twins share it likewise."""

    def __init__(self) -> None:
        self.copies: dict[int, torch.UntypedStorage] = {}

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same place in a copy of the tensor's memory; a plain copy of what has none."""
        plain = tensor.detach()
        if plain.device.type != "cpu" or plain.is_conj() or plain.is_neg() or (
            plain._is_zerotensor() or plain.numel() == 0
        ):
            return plain.clone(memory_format=torch.preserve_format)
        storage = plain.untyped_storage()
        own = self.copies.get(storage.data_ptr())
        if own is None:
            own = self.copies[storage.data_ptr()] = storage.clone()
        made = torch.empty(0, dtype=plain.dtype)
        return made.set_(own, plain.storage_offset(), plain.shape, plain.stride())


def _shared(tensor: torch.Tensor) -> graphc.Tensor:
    """graphc's tensor on a torch tensor's memory, all of which as_strided() can reach."""
    array = to_numpy(tensor)
    itemsize = tensor.element_size()
    whole = tensor.untyped_storage().nbytes()
    if array.nbytes == whole or whole % itemsize:
        return graphc.from_numpy(array)
    flat = to_numpy(torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage()))
    base = graphc.from_numpy(flat)
    return base.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).detach()


def twin(value: Any, memory: Memory | None = None) -> Any:
    """A torch value as graphc's: tensors (copied with their strides), dtypes, devices, nests."""
    memory = memory or Memory()
    if isinstance(value, torch.Tensor):
        place = memory.place(value)
        if place.device.type == "cpu":
            made = _shared(place)
        else:
            with graphc.device(str(place.device)):
                made = graphc.empty(tuple(place.shape), dtype=twin(place.dtype))
        if isinstance(value, torch.nn.Parameter):
            return graphc.nn.Parameter(made, requires_grad=value.requires_grad)
        return made.requires_grad_(value.requires_grad)
    if isinstance(value, torch.dtype):
        return getattr(graphc, str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return graphc.device(str(value))
    if value in (torch.strided, torch.contiguous_format, torch.preserve_format,
                 torch.channels_last, torch.channels_last_3d) and not isinstance(value, int):
        return getattr(graphc, str(value).removeprefix("torch."))
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, tuple):
        items = [twin(v, memory) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [twin(v, memory) for v in value]
    if isinstance(value, dict):
        return {key: twin(v, memory) for key, v in value.items()}
    if isinstance(value, torch.nn.PairwiseDistance):  # a distance that a sample asks for
        return graphc.nn.PairwiseDistance(value.norm, value.eps, value.keepdim)
    return value


def copy(value: Any, memory: Memory | None = None) -> Any:
    """Fresh leaves for torch's own run, with the same strides."""
    memory = memory or Memory()
    if isinstance(value, torch.Tensor):
        return memory.place(value).requires_grad_(value.requires_grad)
    if isinstance(value, (tuple, list)):
        items = [copy(v, memory) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {key: copy(v, memory) for key, v in value.items()}
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
    ours = wide(np.asarray(have.detach()._graphc_array))
    theirs = wide(to_numpy(want))
    relative, absolute = TOLERANCE.get(want.dtype, (0, 0))
    with np.errstate(all="ignore"):
        near = np.isclose(ours, theirs, relative, absolute, equal_nan=True)
    if near.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~near)[0])
    return f"{path}{list(at)} is {ours[at]}, not {theirs[at]} ({int((~near).sum())} differ)"
