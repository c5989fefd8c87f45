"""A device's queue of work and a moment in it, for any device: Stream and Event of torch.

Of "cuda" they make torch.cuda's. Nothing runs behind the caller's back on other devices: there a
stream is done and an event has happened at once.
"""

from __future__ import annotations

import time
from typing import Any

from . import accelerator, cuda
from .frontend.device import device as _device
from .frontend.errors import located


def _place(device: Any) -> _device:
    if device is None:
        return accelerator.current_accelerator() or _device("cpu")
    return _device("cuda", device) if isinstance(device, int) else _device(device)


class Stream:
    """A queue of work of `device` (None: the accelerator, or else the CPU)."""

    stream_id = 0

    def __new__(cls, device: Any = None, *, priority: int = 0, **kwargs: Any) -> Any:
        place = _place(device)
        if place.type == "cuda":
            return cuda.Stream(place, priority=priority, **kwargs)
        made = super().__new__(cls)
        made.device = place
        return made

    device: _device

    @property
    def device_type(self) -> str:
        """Its device's type."""
        return self.device.type

    @property
    def device_index(self) -> int:
        """Its device's number; -1: it has none."""
        return -1 if self.device.index is None else self.device.index

    def query(self) -> bool:
        """True: all that was begun has happened."""
        return True

    def synchronize(self) -> None:
        """Nothing is to be waited for."""

    def wait_event(self, event: Any) -> None:
        """What comes next waits for an event."""
        event.synchronize()

    def wait_stream(self, stream: Any) -> None:
        """What comes next waits for all that was begun on another stream."""
        stream.synchronize()

    def record_event(self, event: Any = None) -> Any:
        """An event (a new one) that has happened."""
        found = Event(self.device) if event is None else event
        found.record(self)
        return found

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.device == other.device

    def __hash__(self) -> int:
        return hash(self.device)

    def __repr__(self) -> str:
        return (
            f"torch.Stream device_type={self.device_type}, device_index={self.device_index}, "
            f"stream_id={self.stream_id}"
        )


class Event:
    """A moment in the work of `device` (None: the accelerator, or else the CPU)."""

    event_id = 0
    device: _device

    def __new__(
        cls, device: Any = None, *, enable_timing: bool = False, blocking: bool = False,
        interprocess: bool = False,
    ) -> Any:
        place = _place(device)
        if place.type == "cuda":
            return cuda.Event(enable_timing, blocking, interprocess)
        made = super().__new__(cls)
        made.device, made._timed, made._moment = place, enable_timing, None
        return made

    _timed: bool
    _moment: float | None

    def record(self, stream: Any = None) -> None:
        """Now."""
        self._moment = time.perf_counter()

    def query(self) -> bool:
        """True: it has happened."""
        return True

    def synchronize(self) -> None:
        """Nothing is to be waited for."""

    def wait(self, stream: Any = None) -> None:
        """Nothing is to be waited for."""

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds from this event to the other. Raises RuntimeError where either was made
        without enable_timing=True, or not recorded."""
        if not (self._timed and other._timed):
            raise RuntimeError(located(
                "Both events must be created with argument 'enable_timing=True'."
            ))
        if self._moment is None or other._moment is None:
            raise RuntimeError(located(
                "Both events must be recorded before calculating elapsed time."
            ))
        return (other._moment - self._moment) * 1e3

    def __repr__(self) -> str:
        index = -1 if self.device.index is None else self.device.index
        return (
            f"torch.Event device_type={self.device.type}, device_index={index}, event_flag=0, "
            f"event_id={self.event_id}"
        )
