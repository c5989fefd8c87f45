"""Streams, events and graphs of torch.cuda, and what selects them: there is no GPU to have any."""

from __future__ import annotations

from types import TracebackType
from typing import Any, NoReturn

from ..frontend.device import device as _Device


class _NeedsGpu:
    """A class for annotations and isinstance(); making an object raises RuntimeError."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            f"torch.cuda.{cls.__name__} requires CUDA support: this build of graphc has none. "
            "Cure: guard it with torch.cuda.is_available(), which is False here"
        )


class Stream(_NeedsGpu):
    """torch.cuda.Stream."""


class ExternalStream(Stream):
    """torch.cuda.ExternalStream."""


class Event(_NeedsGpu):
    """torch.cuda.Event."""


class CUDAGraph(_NeedsGpu):
    """torch.cuda.CUDAGraph."""


class graph(_NeedsGpu):
    """torch.cuda.graph."""


class MemPool(_NeedsGpu):
    """torch.cuda.MemPool."""


class StreamContext:
    """`with torch.cuda.stream(None)`: does nothing. A stream cannot be made."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


def stream(stream: Stream | None) -> StreamContext:
    """A context in which `stream` is the current one."""
    return StreamContext(stream)


def set_stream(stream: Stream | None) -> None:
    """Nothing for None; there is no other stream."""


def _index(selected: Any) -> int:
    if isinstance(selected, int):
        return selected
    found = _Device(selected) if isinstance(selected, str) else selected
    if getattr(found, "type", "cuda") != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {found}")
    index = getattr(found, "index", None)
    return 0 if index is None else int(index)


class device:
    """Context that selects a GPU: nothing for a negative index, else entering raises."""

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None else _index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            raise RuntimeError(
                f"PyTorch was compiled without CUDA support: torch.cuda.device({self.idx}) "
                "selects nothing. Cure: guard it with torch.cuda.is_available()"
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


class device_of(device):
    """Context of a tensor's GPU: nothing for a tensor on the CPU."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.is_cuda else -1)
