"""Streams and events of torch.cuda. A stream is one of the driver's; those that are made here are
never destroyed, so that memory may wait for what was begun on them."""

from __future__ import annotations

import sys
from contextlib import suppress
from types import TracebackType
from typing import Any

from ..frontend.device import device as _Device
from .available import end_recording, gpu, is_available, needs_gpu
from .devices import device as _on_device
from .places import raise_failed


class _NeedsGpu:
    """Classes for annotations and isinstance(); where there is no GPU, making an object raises
    RuntimeError."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if not is_available():
            raise RuntimeError(
                f"torch.cuda.{cls.__name__} requires CUDA support: there is no GPU. Cure: guard it "
                "with torch.cuda.is_available(), which is False here"
            )
        return super().__new__(cls)


class Stream(_NeedsGpu):
    """A queue of work of one GPU. Lower priorities come first."""

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        self._gpu = gpu(device)
        given = kwargs.get("stream_ptr")
        self.cuda_stream: int = self._gpu.stream(priority) if given is None else int(given)
        self.priority = priority
        self._outer: list[StreamContext] = []

    @classmethod
    def _of(cls, found: Any, handle: int) -> Stream:
        made = object.__new__(cls)
        made._gpu, made.cuda_stream, made.priority, made._outer = found, handle, 0, []
        return made

    @property
    def device(self) -> _Device:
        """Its GPU."""
        return _Device("cuda", self._gpu.index)

    device_type = 1  # torch's number for CUDA

    @property
    def device_index(self) -> int:
        """The number of its GPU."""
        return int(self._gpu.index)

    @property
    def stream_id(self) -> int:
        """The driver's handle; 0: the default stream."""
        return self.cuda_stream

    def wait_event(self, event: Event) -> None:
        """What comes next waits for an event."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """What comes next waits for all that was begun on another stream."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """An event (a new one) that happens when all that was begun has."""
        found = Event() if event is None else event
        found.record(self)
        return found

    def query(self) -> bool:
        """Whether all that was begun has happened."""
        end_recording("asking a stream")
        return bool(self._driver().stream_done(self.cuda_stream))

    def synchronize(self) -> None:
        """Wait for all that was begun. Raises what failed."""
        end_recording("waiting for a stream")
        self._driver().wait_for_stream(self.cuda_stream)
        raise_failed(self._gpu)

    def uses(self, buffer: Any) -> None:
        """Its work uses a buffer, whose memory serves nothing else before that has happened."""
        self._gpu.allocator.record_stream(buffer.block, self.cuda_stream)

    def _driver(self) -> Any:
        self._gpu.activate()
        return self._gpu.driver

    @property
    def _as_parameter_(self) -> Any:
        """As ctypes passes it."""
        return self.cuda_stream

    def __enter__(self) -> Stream:
        self._outer.append(StreamContext(self))
        self._outer[-1].__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._outer.pop().__exit__(kind, error, trace)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self._gpu, self.cuda_stream) == (
            other._gpu, other.cuda_stream
        )

    def __hash__(self) -> int:
        return hash((self._gpu.index, self.cuda_stream))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """Another library's stream, which has to live as long as what uses it."""

    def __init__(self, stream_ptr: int, device: Any = None, **kwargs: Any) -> None:
        super().__init__(device, stream_ptr=stream_ptr, **kwargs)


class Event(_NeedsGpu):
    """A moment in a stream's work. One that was never recorded has happened."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False,
        external: bool = False,
    ) -> None:
        if interprocess:
            raise NotImplementedError(
                "graphc does not have torch.cuda.Event(interprocess=True). Cure: an event of each "
                "process, and torch.multiprocessing to tell of it"
            )
        self._timing = enable_timing
        self._gpu: Any = None
        self._event: int | None = None

    def record(self, stream: Stream | None = None) -> None:
        """It happens when all that was begun on a stream (None: the current one) has."""
        chosen = current_stream() if stream is None else stream
        if self._gpu is not None and self._gpu is not chosen._gpu:
            raise RuntimeError(
                f"Event device {self._gpu.index} does not match recording stream's device "
                f"{chosen.device_index}."
            )
        end_recording("recording an event")
        driver = chosen._driver()
        if self._event is None:
            self._gpu, self._event = chosen._gpu, driver.create_event(self._timing)
        driver.record(self._event, chosen.cuda_stream)

    def wait(self, stream: Stream | None = None) -> None:
        """What comes next on a stream (None: the current one) waits for it."""
        if self._event is not None:
            end_recording("waiting for an event")
            chosen = current_stream() if stream is None else stream
            chosen._driver().order(chosen.cuda_stream, self._event)

    def query(self) -> bool:
        """Whether it has happened."""
        return self._event is None or bool(self._driver().event_done(self._event))

    def synchronize(self) -> None:
        """Wait until it has happened. Raises what failed."""
        if self._event is not None:
            end_recording("waiting for an event")
            self._driver().wait_for_event(self._event)
            raise_failed(self._gpu)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds between two events that have happened. Raises ValueError for events without
        timing, and for one that was not recorded."""
        both = (self, end_event)
        if not all(event._timing for event in both):
            raise ValueError(
                "Both events must be created with argument 'enable_timing=True'."
            )
        if any(event._event is None for event in both):
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if not all(event.query() for event in both):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return float(self._driver().elapsed(self._event, end_event._event))

    @property
    def cuda_event(self) -> int:
        """The driver's handle; 0 before it is recorded."""
        return self._event or 0

    @property
    def device(self) -> _Device | None:
        """Where it was recorded."""
        return None if self._gpu is None else _Device("cuda", self._gpu.index)

    def _driver(self) -> Any:
        self._gpu.activate()
        return self._gpu.driver

    def __del__(self) -> None:
        event = getattr(self, "_event", None)
        if event is not None and self._gpu.is_here and not sys.is_finalizing():
            with suppress(RuntimeError):  # of a context that is lost
                self._driver().destroy_event(event)

    def __repr__(self) -> str:
        said = "uninitialized" if self._event is None else f"{self._event:#x}"
        return f"<torch.cuda.Event {said}>"


@needs_gpu
def current_stream(device: Any = None) -> Stream:
    """Where this thread's work on a GPU goes."""
    found = gpu(device)
    return Stream._of(found, found.current_stream())


@needs_gpu
def default_stream(device: Any = None) -> Stream:
    """Where work goes unless a stream is selected: CUDA's legacy stream."""
    return Stream._of(gpu(device), 0)


def get_stream_from_external(data_ptr: int, device: Any = None) -> Stream:
    """Another library's stream, by its handle."""
    return ExternalStream(data_ptr, device)


def set_stream(stream: Stream | None) -> None:
    """This thread's work goes there from now on, and "cuda" means its GPU. Nothing for None."""
    if stream is not None:
        _on_device(stream.device).__enter__()
        _select(stream._gpu, stream.cuda_stream)


def _select(gpu: Any, handle: int) -> int:
    end_recording("a change of the current stream")
    before: int = gpu.select(handle)
    return before


class StreamContext:
    """`with torch.cuda.stream(s)`: this thread's work goes to `s`, and "cuda" means its GPU.
    Nothing for None."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self._before = 0
        self._device = _on_device(None if stream is None else stream.device)

    def __enter__(self) -> None:
        if self.stream is not None:
            self._device.__enter__()
            self._before = _select(self.stream._gpu, self.stream.cuda_stream)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.stream is not None:
            _select(self.stream._gpu, self._before)
            self._device.__exit__(kind, error, trace)


def stream(stream: Stream | None) -> StreamContext:
    """A context in which `stream` is the current one."""
    return StreamContext(stream)
