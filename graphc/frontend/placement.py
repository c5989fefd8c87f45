"""Devices other than the CPU: which there are, and where an operator runs.

A Place is a device with its Memory and its eager runner. Until there is one, eager mode does not
ask where arrays lie (`Eager.elsewhere` is None). As in torch, an operator's tensors lie on one
device; a CPU tensor without dimensions joins any. So does a *loose* one, which graphc's own code
made on the way (positions, masks): it was not placed by a user.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from sys import _getframe
from types import FrameType
from typing import Any, TypeVar, cast

import numpy as np

from graphc.ir.channels import asks_for_last, with_channels_last
from graphc.ir.device_array import DeviceArray
from graphc.ir.memory import (
    Array,
    Buffer,
    Memory,
    as_strided,
    contiguous,
    inverse,
    memory_order,
    on_host,
)
from graphc.ir.op import Attrs, Op

from . import meta
from .context import local
from .device import CPU, Placing, device, registered
from .errors import located
from .layouts import NotDense
from .storage import LOOSE
from .values import Eager, Runner
from .views import ARRAYS
from .wrapped import wraps

F = TypeVar("F", bound=Callable[..., Any])
_CONSTANTS = 4096


class Place:
    """A device: its memory, and what runs one operator on buffers there."""

    def __init__(self, device: device, memory: Memory, run: Runner, backend: str | None) -> None:
        self.device, self.memory, self.backend = device, memory, backend
        self.own_run = _in_memory_order(run)
        self.run = _wrapped(self.own_run)
        self.generator: Any = None  # its default generator, made at first use
        # whether plain draws are made there, from a counter
        self.by_counter: Callable[[], bool] = lambda: False
        self.process = os.getpid()  # in one that is forked from it, no device can be used
        self._constants: dict[Any, Buffer] = {}

    def take(self, array: Array) -> Buffer:
        """A host array's elements here. Of one number that nobody writes to, a shared copy."""
        if array.ndim or array.flags.writeable:
            return self.put(array)
        key = (array.dtype, array.tobytes())
        found = self._constants.get(key)
        if found is None:
            if len(self._constants) >= _CONSTANTS:
                self._constants.clear()
            found = self._constants[key] = self.put(array)
        return found

    def put(self, array: Array) -> Buffer:
        """A copy of a host array here."""
        made = self.memory.allocate(array.shape, array.dtype)
        self.memory.write(made, array)
        return made

    def bring(self, buffer: Buffer) -> Buffer:
        """The buffer itself, or a copy of a host array here."""
        return buffer if isinstance(buffer, DeviceArray) else self.take(buffer)


_places: dict[str, Place] = {}
# kinds of devices that nobody looks for until they are asked for: what finds the Place of a
# number (None: the current one); None: there is no such device
_late: dict[str, Callable[[int | None], Place | None]] = {}


def register(kind: str, memory: Memory, run: Runner, backend: str | None = None) -> Place:
    """Make a device known by its memory's place. Raises ValueError where there is one already."""
    if memory.place in _places:
        raise ValueError(f"a device {memory.place!r} is registered already")
    registered.add(kind)
    place = _places[memory.place] = Place(device(memory.place), memory, run, backend)
    Eager.elsewhere = staticmethod(anywhere)
    return place


def look_for(kind: str, find: Callable[[int | None], Place | None]) -> None:
    """Have devices of a type found, and registered, when one is first asked for."""
    _late[kind] = find


def look() -> None:
    """Have those found that nobody has asked for yet."""
    for find in _late.values():
        find(None)


def place_of(given: Any) -> Place | None:
    """The Place of a device; None: the CPU. Raises RuntimeError for one that is not there."""
    if isinstance(given, int) and not isinstance(given, bool):
        kind, index = "cuda", given
        for place in _places.values():
            if place.device.index == index:
                return place
    asked = device(given)
    kind = asked.type
    if kind == "cpu":
        return None
    if kind == "meta" and "meta" not in _places:
        return register("meta", meta.MEMORY, meta.run)
    found = _places.get(kind) or _places.get(f"{kind}:{asked.index or 0}")
    if kind in _late and (found is None or asked.index is None):
        found = _late[kind](asked.index)
    if found is not None:
        return found
    if kind == "cuda":
        raise RuntimeError(located(
            "no CUDA device was found: use device='cpu' (torch.cuda.is_available() is False; "
            "`python -m graphc doctor` says what is missing)"
        ))
    if kind in registered:
        raise RuntimeError(located(f"device {str(given)!r}: there is no such device"))
    raise RuntimeError(located(f"device {str(given)!r} is not supported: use 'cpu'"))


def places() -> list[Place]:
    """All devices but the CPU."""
    return list(_places.values())


Placing.find = staticmethod(place_of)


def of(buffer: Buffer) -> Place | None:
    """Where a buffer lies; None: on the CPU."""
    return _places[buffer.memory.place] if isinstance(buffer, DeviceArray) else None


def device_of(buffer: Buffer) -> device:
    """The device of a buffer."""
    return _places[buffer.memory.place].device if isinstance(buffer, DeviceArray) else CPU


class Pinned:
    """Memory of the host from which devices copy while it goes on: set where a device has it."""

    copy: Callable[[Array], Array] | None = None  # a row-major copy in it
    holds: Callable[[Array], bool] = staticmethod(lambda array: False)
    # a context in which what is copied from it may be read later
    later: Callable[[], AbstractContextManager[object]] = nullcontext


class Streams:
    """A device's queues, as other libraries call them: set where it has any."""

    current: Callable[[Place], int]  # the handle of the running thread's
    # what comes next on the first waits for what was begun on the second
    order: Callable[[Place, int, int], None]


# --- who watches the runners -------------------------------------------------------------------

Wrap = Callable[[Runner], Runner]
_wraps: list[Wrap] = []
_cpu: list[Any] = []  # the CPU's runner, and what prepares it, while it is wrapped


def _wrapped(run: Runner) -> Runner:
    return functools.reduce(lambda inner, wrap: wrap(inner), _wraps, run)


def _renew() -> None:
    Eager.run = staticmethod(_wrapped(_cpu[0]))
    Eager.prepare = None if _wraps or _cpu[1] is None else staticmethod(_cpu[1])
    for place in _places.values():
        place.run = _wrapped(place.own_run)


def is_watched() -> bool:
    """Whether runners are wrapped: who wraps them is to see every eager operator."""
    return bool(_wraps)


def wrap_runners(wrap: Wrap) -> Callable[[], None]:
    """From here on, `wrap(runner)` runs eager operators everywhere. What is given ends it."""
    _cpu[:] = _cpu if _wraps else [Eager.run, Eager.prepare]
    _wraps.append(wrap)
    _renew()

    def end() -> None:
        _wraps.remove(wrap)
        _renew()

    return end


def _in_memory_order(run: Runner) -> Runner:
    """Results of operators that keep the order of dims have the layout of the first operand of
    their shape, as in torch; what runs operators knows rows alone."""

    def ran(op: Op, buffers: list[Any], attrs: Attrs) -> Any:
        if op.keeps_channels:
            out = run(op, buffers, attrs)
            parts = out if type(out) is tuple else (out,)
            laid = tuple([
                with_channels_last(o) if asks_for_last(op, buffers, o.ndim) else o for o in parts
            ])
            return laid if type(out) is tuple else laid[0]
        if not op.keeps_order or all(buffer.flags.c_contiguous for buffer in buffers):
            return run(op, buffers, attrs)
        if not op.pointwise:
            out = run(op, buffers, attrs)
            return tuple([_ordered(o, buffers) for o in out]) if type(out) is tuple else (
                _ordered(out, buffers)
            )
        shape = np.broadcast_shapes(*[buffer.shape for buffer in buffers])
        order, rank = _order_of(shape, buffers), len(shape)
        if order is None:
            return run(op, buffers, attrs)
        turned = [
            b if b.ndim == 0 else as_strided(
                b, (*[1] * (rank - b.ndim), *b.shape), (*[0] * (rank - b.ndim), *b.strides)
            ).transpose(order)
            for b in buffers
        ]
        return run(op, turned, attrs).transpose(inverse(order))

    return ran


def _order_of(shape: tuple[int, ...], buffers: list[Any]) -> tuple[int, ...] | None:
    first = next((buffer for buffer in buffers if buffer.shape == shape), None)
    return None if first is None else memory_order(first)


def _ordered(out: Any, buffers: list[Any]) -> Any:
    """A row-major result, laid out anew."""
    order = _order_of(out.shape, buffers)
    return out if order is None else contiguous(out.transpose(order)).transpose(inverse(order))


# --- which runner ------------------------------------------------------------------------------


def anywhere(op: Op, arrays: list[Any], attrs: Attrs) -> Any:
    """Runs an operator where one of its arrays lies; those on the host are taken there."""
    place = next((of(a) for a in arrays if type(a) is DeviceArray), None)
    if place is None:
        return Eager.run(op, arrays, attrs)
    if op.view:
        view = ARRAYS[op.name](arrays[0], attrs)
        if view is not None:
            return view
    there = [a if type(a) is DeviceArray else place.take(np.asarray(a)) for a in arrays]
    return place.run(op, there, attrs)


def gathered(
    op: Op, inputs: Sequence[Any], arrays: list[Any]
) -> tuple[Runner, list[Any], bool]:
    """What runs an operator, its tensors' buffers in one memory, and whether the result is loose.

    Raises RuntimeError for tensors that a user has placed on different devices.
    """
    if not arrays:
        chosen: Place | None = local.making[0] if local.making else None
        return (Eager.run, arrays, True) if chosen is None else (chosen.run, arrays, False)
    if DeviceArray not in map(type, arrays):
        return Eager.run, arrays, _all_loose(inputs, arrays)
    place, loose = _common(inputs, arrays)
    if place is None:
        return Eager.run, [on_host(array) for array in arrays], False
    found = [
        array if of(array) is place else place.take(on_host(array)) for array in arrays
    ]
    return place.run, found, loose


def _common(inputs: Sequence[Any], arrays: list[Any]) -> tuple[Place | None, bool]:
    """Where an operator runs, and whether all its tensors are loose."""
    chosen: list[Place | None] = []
    for x, array in zip(inputs, arrays, strict=True):
        place = of(array)
        if not is_loose(x) and (place is not None or array.ndim) and place not in chosen:
            chosen.append(place)
    if len(chosen) > 1:
        raise mixed(*chosen[:2])
    if chosen:
        return chosen[0], False
    return next(of(array) for array in arrays if type(array) is DeviceArray), True


def _all_loose(inputs: Sequence[Any], arrays: list[Any]) -> bool:
    """Whether tensors on the CPU are loose, but for numbers among them."""
    found = False
    for x, array in zip(inputs, arrays, strict=True):
        if is_loose(x):
            found = True
        elif array.ndim:  # as nearly always
            return False
    return found


def one_place(tensors: Iterable[Any]) -> Place | None:
    """Where tensors lie that share one device. Raises RuntimeError where they do not."""
    found = list(dict.fromkeys(of(tensor._graphc_array) for tensor in tensors))
    if len(found) > 1:
        raise mixed(*found[:2])
    return found[0] if found else None


def mixed(one: Place | None, other: Place | None) -> RuntimeError:
    """The error for tensors on two devices."""
    if one is None:  # the CPU is told last, as in torch
        one, other = other, one
    first, second = (CPU if place is None else place.device for place in (one, other))
    if "meta" in (first.type, second.type):
        found = second if first.type == "meta" else first
        return RuntimeError(located(
            f"Tensor on device {found} is not on the expected device meta!"
        ))
    return RuntimeError(located(
        "Expected all tensors to be on the same device, but found at least two devices, "
        f"{first} and {second}!"
    ))


def is_loose(tensor: Any) -> bool:
    """Whether a tensor may be taken to any device."""
    return bool(getattr(tensor._graphc_storage, "away", 0) & LOOSE)


# --- where new tensors go ----------------------------------------------------------------------


ON_CPU = (None,)  # local.making while a user's tensor is made there, who named no device
LOOSELY = (None, LOOSE)  # while graphc's own code makes one on the way


@contextmanager
def selected(place: Place | None, loose: bool = False) -> Iterator[None]:
    """Operators without inputs run there."""
    outer = local.making
    local.making = (place,) if place is not None else LOOSELY if loose else ON_CPU
    try:
        yield
    finally:
        local.making = outer


_UNSAID: Any = object()  # `device` was not given; None: a user's choice, handed on, to name none


def makes(function: F) -> F:
    """A function that makes tensors, on the device that it is given."""

    @wraps(function)
    def made(*args: Any, device: Any = _UNSAID, **kwargs: Any) -> Any:
        if device is _UNSAID or device is None:
            if Eager.elsewhere is None or local.making is not None:
                return function(*args, **kwargs)
            loose, place = device is _UNSAID and _asked_by_own_code(_getframe(1)), local.place
            if place is None and not loose and local.trace is None:  # as nearly always
                local.making = ON_CPU  # as in _on_cpu(), a call of which is felt
                try:
                    result = function(*args, **kwargs)
                finally:
                    local.making = None
                result._graphc_storage.away &= ~LOOSE
                return result
        elif device is CPU and Eager.elsewhere is None:
            return function(*args, **kwargs)
        else:
            place, loose = place_of(device), False
        with selected(place, loose), _recorded(place, loose and place is None):
            named = device is not _UNSAID and device is not None
            return settled(function(*args, **kwargs), place, named, loose)

    return cast(F, made)


def _on_cpu(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """A user's new tensor, eagerly."""
    local.making = ON_CPU
    try:
        result = function(*args, **kwargs)
    finally:
        local.making = None
    result._graphc_storage.away &= ~LOOSE
    return result


def makes_like(function: F) -> F:
    """A function that makes tensors on the device it is given, or on that of its first tensor."""

    @wraps(function)
    def made(input: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        if device is None and (Eager.elsewhere is None or local.making is not None):
            return function(input, *args, **kwargs)
        if device is None and local.trace is None and type(input._graphc_array) is not DeviceArray:
            return _on_cpu(function, (input, *args), kwargs)
        place = place_at(input) if device is None else place_of(device)
        with selected(place), _recorded(place, False):
            return settled(function(input, *args, **kwargs), place, True, False)

    return cast(F, made)


def _recorded(place: Place | None, loose: bool) -> AbstractContextManager[None]:
    """Under a trace: a recording is of one device; what is made on another is made eagerly."""
    trace = local.trace
    if trace is None or loose or Eager.elsewhere is None or trace.joins(place):
        return nullcontext()
    return trace.eager(TWO_DEVICES)


TWO_DTYPES = "a write to memory that is read as two dtypes"
TWO_DEVICES = "tensors on two devices"
_AROUND = frozenset({"graphc.frontend.tensors_only", "graphc.frontend.ownership"})  # decorators


def _asked_by_own_code(frame: FrameType | None) -> bool:
    while frame is not None:
        name = frame.f_globals.get("__name__") or ""
        if name[:7] != "graphc.":
            return False
        if name not in _AROUND:
            return True
        frame = frame.f_back
    return False


def beside(function: F) -> F:
    """A function that draws, or makes tensors on the way, where its first tensor lies."""

    @wraps(function)
    def done(input: Any, *args: Any, **kwargs: Any) -> Any:
        if Eager.elsewhere is None:
            return function(input, *args, **kwargs)
        with selected(place_at(input)):
            result = function(input, *args, **kwargs)
        if local.trace is None and not is_loose(input):
            for made in result if isinstance(result, tuple) else (result,):
                if isinstance(made, type(input)):
                    made._graphc_storage.away &= ~LOOSE
        return result

    return cast(F, done)


def place_at(tensor: Any) -> Place | None:
    """Where a tensor lies; None: on the CPU."""
    trace = tensor._graphc_trace
    try:
        place: Place | None = of(tensor._graphc_array) if trace is None else trace.lies()
    except NotDense:
        return None
    return place


def settled(tensor: Any, place: Place | None, asked: bool, loose: bool) -> Any:
    """A new tensor, taken to a place. Unless that was `asked` for, one that was made of a tensor on
    a device stays there."""
    if tensor._graphc_trace is None:
        buffer = tensor._graphc_array
        if of(buffer) is not place and (asked or not isinstance(buffer, DeviceArray)):
            host = on_host(buffer)
            tensor._graphc_array = host.copy() if place is None else place.put(host)
            tensor._graphc_storage = type(tensor._graphc_storage)(tensor._graphc_array)
        tensor._graphc_storage.away = tensor._graphc_storage.away & ~LOOSE | (LOOSE if loose else 0)
    return tensor
