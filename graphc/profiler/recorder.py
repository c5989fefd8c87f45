"""Recording of named blocks, eager operators, and the kernels of compiled calls."""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..backends.host.watched import Steps
from ..frontend.decorated import within
from ..frontend.placement import wrap_runners
from ..ir.kernel import Launch, Leaf
from . import methods
from .events import Event
from .kernels import Kernels, Work, cost_of
from .operators import counted, named

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Wanted(NamedTuple):
    """What events are to have besides their times."""

    shapes: bool = False
    stack: bool = False
    memory: bool = False
    flops: bool = False


class _Open(threading.local):
    """The blocks that are open, innermost last."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []


_open = _Open()
_recorders: list[Recorder] = []


class Recorder:
    """Collects events while it runs. An operator of a device whose queue runs behind is timed until
    it has been queued; `on_gpus`: its kernels are events, too."""

    def __init__(self, on_gpus: bool = False, wanted: Wanted = Wanted()) -> None:  # noqa: B008
        self.events: list[Event] = []
        self.running = False
        self.wanted = wanted
        self._on_gpus = on_gpus
        self._kernels: Kernels | None = None

    def start(self) -> None:
        """From here on every eager operator and named block is an event; those before are gone."""
        if self.running:
            return
        self.running = True
        self.events = []
        self.go_on()
        self._kernels = Kernels() if self._on_gpus else None

    def go_on(self) -> None:
        """After a pause."""
        if not self.running or self in _recorders:
            return
        if not _recorders:
            ends = wrap_runners(_timed), methods.watch(Block)
            _Watch.end = staticmethod(lambda: [end() for end in ends])
            Steps.watch = _Step
        _recorders.append(self)
        _Watch.renew()

    def pause(self) -> None:
        """Leave out what the host does until `go_on`."""
        if self not in _recorders:
            return
        _recorders.remove(self)
        _Watch.renew()
        if not _recorders:
            _Watch.end()
            Steps.watch = None
            _Step.known.clear()

    def stop(self) -> None:
        """Stop collecting."""
        if not self.running:
            return
        self.pause()
        self.running = False
        if self._kernels is not None:
            self.events += [
                Event(ran.name, ran.began, device_total=ran.seconds, work=ran.work)
                for ran in self._kernels.end()
            ]


class _Watch:
    end: Callable[[], object]  # runners and methods are timed until then
    wanted = Wanted()  # by any recorder

    @classmethod
    def renew(cls) -> None:
        cls.wanted = Wanted(*map(any, zip(*(each.wanted for each in _recorders), strict=True)))


def _timed(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def timed(op: Any, *args: Any) -> Any:
        with Block(named(op, args)) as block:
            result = run(op, *args)
            wanted = _Watch.wanted
            if wanted.shapes and args and isinstance(args[0], (list, tuple)):
                block.shapes = [list(getattr(given, "shape", ())) for given in args[0]]
            if wanted.memory:
                block.allocated += _made(result)
            if wanted.flops:
                block.flops = counted(op, args, result)
        return result

    return timed


def _made(result: Any) -> int:
    """Bytes of the arrays that an operator gives, views left out."""
    arrays = result if isinstance(result, (tuple, list)) else (result,)
    return sum(
        array.nbytes for array in arrays
        if isinstance(array, np.ndarray) and type(array.base) is not np.ndarray
    )


def _stack() -> tuple[str, ...]:
    """The user's frames, the innermost first."""
    found = []
    frame = sys._getframe(2)
    here = os.getcwd() + os.sep
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_OURS):
            path = code.co_filename.removeprefix(here)
            found.append(f"{path}({frame.f_lineno}): {code.co_name}")
        frame = frame.f_back  # type: ignore[assignment]
    return tuple(found)


class Block:
    """A span of time that becomes an event of every running recorder."""

    work: Work | None = None
    annotates = False  # whether the user named it

    def __init__(self, key: str) -> None:
        self.key = key
        self.shapes: list[list[int]] = []
        self.stack: tuple[str, ...] = ()
        self.allocated = self.flops = 0
        self._inside: list[Event] = []

    def __enter__(self) -> Block:
        if _Watch.wanted.stack:
            self.stack = self._frames()
        _open.blocks.append(self)
        self.started = time.perf_counter()
        return self

    def __exit__(self, *exception: Any) -> None:
        total = time.perf_counter() - self.started
        blocks = _open.blocks
        if self not in blocks:  # another block's end has closed it
            return
        while blocks.pop() is not self:
            pass
        inside = self._inside
        event = Event(
            self.key, self.started, total, total - sum(each.total for each in inside),
            work=self.work, thread=threading.get_native_id(), input_shapes=self.shapes,
            stack=self.stack, allocated=self.allocated + sum(each.allocated for each in inside),
            self_allocated=self.allocated, counted_flops=self.flops,
            is_user_annotation=self.annotates, cpu_children=inside,
        )
        for each in inside:
            each.cpu_parent = event
        if blocks:
            blocks[-1]._inside.append(event)
        for recorder in _recorders:
            recorder.events.append(event)

    def _frames(self) -> tuple[str, ...]:
        return _stack()


class _Step(Block):
    """A step of compiled code on the CPU."""

    # what is known of the steps that ran, until the last recorder stops
    known: ClassVar[dict[tuple[Any, ...], tuple[Leaf, Work]]] = {}

    def __init__(self, step: Leaf, dims: Mapping[str, int]) -> None:
        super().__init__(f"graphc::{step.kernel.name if isinstance(step, Launch) else step.op}")
        key = id(step), *dims.values()
        if key not in self.known:
            cost = cost_of(step, dims)
            ops = step.ops if isinstance(step, Launch) else (step.op,)
            what = " ".join((" ".join(dict.fromkeys(ops)), *step.locs[:1]))
            self.known[key] = step, Work(cost.read + cost.written, cost.flops, 0.0, None, what)
        self._work = self.known[key][1]
        self._lines = step.locs

    def _frames(self) -> tuple[str, ...]:
        """The line that was recorded, then those that made the call."""
        return (*self._lines[:1], *_stack())

    def __exit__(self, *exception: Any) -> None:
        self.work = self._work._replace(seconds=time.perf_counter() - self.started)
        super().__exit__(*exception)


class _Named(Block):
    annotates = True


class record_function:  # torch spells this class in lower case
    """A named block in a profile: a context manager, and a decorator."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self._blocks: list[Block] = []

    def __enter__(self) -> record_function:
        self._blocks.append(_Named(self.name).__enter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._blocks.pop().__exit__()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return within(function, functools.partial(record_function, self.name))


def recording() -> bool:
    """Whether any recorder runs."""
    return bool(_recorders)


def stop_all() -> None:
    """Stop every recorder that runs."""
    for recorder in list(_recorders):
        recorder.stop()
