"""The random generator: its state is a Tensor, which operators take and hand back.

`draw("uniform", shape=(2, 3), dtype=f32)` advances the default generator. Under a trace the state
is captured and written like any other tensor, so a compiled function goes on where eager stopped.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from graphc.ir import dtypes
from graphc.ir.counter_draws import DRAWS
from graphc.ir.op import Op
from graphc.ir.op import get as get_op

from .context import local
from .device import CPU, device
from .dispatch import apply, constant, inplace
from .eager import is_writable
from .errors import TraceError, kind_name, located
from .placement import ON_CPU, TWO_DEVICES, Place, place_at, place_of, places
from .random_state_bytes import SIZE, from_bytes, to_bytes
from .storage import LOOSE, readers
from .tensor import Tensor, from_array
from .transfer import moved
from .values import Eager

_WORDS = 624
_NO_SPARE = -1


def seed_words(seed: int) -> np.ndarray:
    """The state after seeding, i64[626]: mt19937's words (Knuth's recurrence), the position of
    the next one (624: used up), and the spare normal (-1: none)."""
    state = np.empty(_WORDS + 2, np.int64)
    word = seed & 0xFFFFFFFF
    for i in range(_WORDS):
        state[i] = word
        word = (1812433253 * (word ^ (word >> 30)) + i + 1) & 0xFFFFFFFF
    state[_WORDS], state[_WORDS + 1] = _WORDS, _NO_SPARE
    return state


def _any_seed() -> int:
    """63 bits of the system's randomness."""
    return int.from_bytes(os.urandom(8), "little") >> 1


# of a generator that nobody seeded; docs.pytorch.org/docs/stable/generated/torch.Generator.html
_FIRST_SEED = 67280421310721


class Generator:
    """torch.Generator: a stream of random numbers. Unseeded, it starts where every other one does;
    the default generators start anywhere.

    `turn`: held from reading the state to writing it, as threads that read one state would draw
    the same numbers. By the same thread again: a finalizer may draw in the middle of a draw.
    """

    def __init__(self, device: device | str = CPU) -> None:
        self._place = place_of(device)
        self._seed: int | None = _FIRST_SEED
        self._state: Tensor | None = None
        self.turn = threading.RLock()
        _generators.add(self)

    @property
    def state(self) -> Tensor:
        """The state as a Tensor i64[626], made at first use."""
        found = self._state
        if found is None:
            with self.turn:
                found = self._state
                if found is None:
                    if self._seed is None:
                        self._seed = _any_seed()
                    found = self._begin(self._seed)
        return found

    def _begin(self, seed: int) -> Tensor:
        """The state's memory, which no recording makes: it was there before."""
        words = seed_words(seed)
        made = from_array(words if self._place is None else self._place.put(words))
        self._state = made
        _by_memory[id(made._graphc_array)] = self
        return made

    @property
    def device(self) -> device:
        """Where the state lies."""
        return CPU if self._place is None else self._place.device

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of a seed. Raises ValueError outside [-2**63, 2**64), RuntimeError for
        what is no integer."""
        if not isinstance(seed, (int, np.integer)):
            raise RuntimeError(located(
                f"manual_seed expected a long, but got {kind_name(seed)}. Cure: int(seed)"
            ))
        seed = int(seed)
        if not -(2**63) <= seed < 2**64:
            raise ValueError(located(f"Overflow when unpacking long long: seed {seed}"))
        seed %= 2**64
        if local.trace is None:
            with self.turn:
                if self._state is None:
                    self._begin(seed)
                else:
                    inplace(self._state, from_array(seed_words(seed)))
                self._seed = seed
        else:
            before, trace = self._seed, local.trace
            trace.on_rollback(lambda: setattr(self, "_seed", before))
            if trace.whole:
                trace.deferred.append(lambda: setattr(self, "_seed", seed))
            inplace(self.state, constant(seed_words(seed)), overwrite=True)
            if local.trace.whole:  # each call has seeded it so
                local.trace.deferred.append(partial(setattr, self, "_seed", seed))
            self._seed = seed
        return self

    def seed(self) -> int:
        """Start anywhere; the seed chosen. Raises TraceError under a trace of a whole function."""
        if local.trace is not None and local.trace.runs_eagerly("seed()"):
            with local.trace.eager("seed()"):
                return self.seed()
        if local.trace is not None:
            raise TraceError(located(
                "seed() draws a number that a compiled function would repeat at every call. "
                "Cure: call it outside"
            ))
        self.manual_seed(_any_seed())
        return self.initial_seed()

    def initial_seed(self) -> int:
        """The seed that the stream started from."""
        self.state  # noqa: B018  # chooses a seed if there is none
        assert self._seed is not None
        return self._seed

    def get_state(self) -> Tensor:
        """The state as torch's byte tensor on the CPU, u8[5056], for set_state."""
        if local.trace is None:
            with self.turn:
                return to_bytes(moved(self.state, None), self.initial_seed())
        seed = self.initial_seed()
        return to_bytes(moved(self.state, None), seed)

    def set_state(self, new_state: Tensor) -> Generator:
        """Go on from a state that get_state (torch's, too) gave. Raises TypeError for another
        dtype, RuntimeError for another size."""
        if not isinstance(new_state, Tensor) or new_state.dtype is not dtypes.u8 or (
            new_state.device.type != "cpu"
        ):
            what = getattr(new_state, "dtype", type(new_state).__name__)
            where = f" on {new_state.device}" if isinstance(new_state, Tensor) else ""
            raise TypeError(located(
                f"expected a torch.ByteTensor, but got {what}{where}. Cure: state.cpu().byte()"
            ))
        if tuple(new_state.shape) != (SIZE,):
            raise RuntimeError(located(
                f"Expected a CPUGeneratorImplState of size {SIZE} but found the input RNG state "
                f"of shape {list(new_state.shape)}"
            ))
        if local.trace is None:
            words = from_bytes(new_state)
            if not 0 < int(words._graphc_array[_WORDS]) <= _WORDS:
                raise RuntimeError(located("Invalid mt19937 state"))
            with self.turn:
                self._seed = int(new_state._graphc_array[:8].copy().view("<u8")[0])
                inplace(self.state, words, overwrite=True)
        else:
            inplace(self.state, from_bytes(new_state), overwrite=True)
        return self

    def copied_state(self) -> Tensor:
        """A copy of the state as it is kept, i64[626]."""
        trace = local.trace
        if trace is not None and trace.whole:  # a value of one graph is never written to
            return trace.wrap(trace.read(trace.shadow(self.state)))
        with self.turn if trace is None else _NOBODY:
            copy: Tensor = apply(get_op("add"), self.state, constant(0, self.state.dtype))
        return copy

    def clone_state(self) -> Generator:
        """A generator that goes on from the same state."""
        twin = Generator(self.device)
        with self.turn if local.trace is None else _NOBODY:
            twin._seed = self.initial_seed()
            twin._state = self.copied_state()
        if local.trace is None:
            _by_memory[id(twin._state._graphc_array)] = twin
        return twin

    def __reduce__(self) -> Any:
        return (_rebuild, (self._seed, self._state, self.device))

    def __repr__(self) -> str:
        return f"<graphc.Generator on {self.device}>"


def _rebuild(seed: int | None, state: Tensor | None, device: device = CPU) -> Generator:
    generator = Generator(device)
    generator._seed, generator._state = seed, state
    if state is not None:
        # a shallow copy is of the same state
        generator.turn = _by_memory.setdefault(id(state._graphc_array), generator).turn
    return generator


_NOBODY: AbstractContextManager[None] = nullcontext()  # a recording reads no state
_generators: weakref.WeakSet[Generator] = weakref.WeakSet()
# by the id of the array that the state is
_by_memory: weakref.WeakValueDictionary[int, Generator] = weakref.WeakValueDictionary()


def turns_of(arrays: Sequence[Any]) -> AbstractContextManager[Any]:
    """What compiled code holds while it reads and writes memory: the turns of the generators whose
    states are among it."""
    if not arrays:
        return _NOBODY  # as nearly always
    turns = {}
    for array in arrays:
        found = _by_memory.get(id(array))
        if found is not None and found._state is not None and found._state._graphc_array is array:
            turns[id(found.turn)] = found.turn
    if len(turns) < 2:
        return turns.popitem()[1] if turns else _NOBODY
    all_of_them = ExitStack()
    for _, turn in sorted(turns.items()):  # in one order, or threads could wait for each other
        all_of_them.enter_context(turn)
    return all_of_them


def _after_fork() -> None:
    """Whoever held a turn is not in this process."""
    fresh: dict[Any, Any] = {}
    for generator in _generators:
        generator.turn = fresh.setdefault(generator.turn, threading.RLock())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


default_generator = Generator()
default_generator._seed = None  # anywhere, once it is asked


def generator_at(place: Place | None) -> Generator:
    """The default generator of a device."""
    if place is None:
        return default_generator
    if place.generator is None:
        with default_generator.turn:
            if place.generator is None:
                made = Generator(place.device)
                made._seed = default_generator.initial_seed()
                place.generator = made
    found: Generator = place.generator
    return found


def _drawn(op: Op, generator: Generator | None, *parameters: Tensor, **attrs: Any) -> Tensor:
    """One thread at a time draws from a generator."""
    making = local.making
    place = making[0] if making else None
    if generator is None:
        generator = default_generator if place is None else generator_at(place)
    elif not isinstance(generator, Generator):
        raise TypeError(located(
            f"argument 'generator' must be torch.Generator, not {kind_name(generator)}"
        ))
    elif generator._place is not place and (place is None or place.device.type != "meta"):
        wanted = CPU if place is None else place.device
        raise RuntimeError(located(
            f"Expected a '{wanted.type}' device type for generator but found "
            f"'{generator.device.type}'"
        ))
    # what a recording becomes runs in its turn (Engine.turns)
    with generator.turn if local.trace is None else _NOBODY:
        state = generator.state
        if place is None and not parameters:
            quick = _drawn_quickly(op, state, attrs)
            if quick is not None:
                return quick
        return _drawn_slowly(op, state, place, parameters, attrs)


def _drawn_slowly(
    op: Op, state: Tensor, place: Place | None, parameters: tuple[Tensor, ...],
    attrs: dict[str, Any],
) -> Tensor:
    """Draws on the host, as a device's arithmetic may lack what the algorithms need, unless the
    device makes them of a counter; the state stays where the generator is. The meta device draws
    nothing."""
    away = local.trace is None and state.device.type not in ("cpu", "meta")
    if away and place is not None and op.name in DRAWS:
        away = not place.by_counter()
    near = [moved(x, None) for x in parameters] if away else parameters
    values, after = apply(op, moved(state, None) if away else state, *near, **attrs)
    if away:
        values._graphc_storage.away |= LOOSE
        if parameters and values.dtype is parameters[0].dtype and place_at(parameters[0]) is place:
            values = moved(values, place)
    inplace(state, after)
    found: Tensor = values
    return found


def _drawn_quickly(op: Op, state: Tensor, attrs: dict[str, Any]) -> Tensor | None:
    """Few numbers, where drawing them comes to filling memory and writing to the state's; None:
    it does not."""
    if (
        local.trace is not None or local.counted is not None or Eager.prepare is None
        or (Eager.elsewhere is not None and (
            local.making is not ON_CPU or type(state._graphc_array) is not np.ndarray
        ))
    ):
        return None
    fill = Eager.drawer(op.name, attrs)
    if fill is None or not is_writable(state):
        return None
    if "n" in attrs:  # an order
        memory = np.empty(attrs["n"], np.int64)
    else:
        memory = np.empty(attrs["shape"], attrs["dtype"].numpy)
    if readers:
        state._graphc_storage.before_write()
    if fill(state._graphc_array, memory) is None:
        return None
    state._graphc_storage.version += 1
    return from_array(memory)


def drawn_at_once(op: Op, attrs: dict[str, Any]) -> Tensor | None:
    """What an operator without parameters draws on the CPU from the default generator, of few
    numbers; None: nothing was drawn."""
    if local.trace is not None:
        return None
    with default_generator.turn:
        return _drawn_quickly(op, default_generator.state, attrs)


def draw(kind: str | Op, generator: Generator | None = None, **attrs: Any) -> Tensor:
    """Random values of the operator rng_`kind`, or of that operator; advances the generator."""
    op = get_op(f"rng_{kind}") if isinstance(kind, str) else kind
    return _drawn(op, generator, **attrs)


def draw_from(kind: str, generator: Generator | None, *parameters: Tensor) -> Tensor:
    """Random values of the operator rng_`kind`, whose parameters are tensors."""
    return _drawn(get_op(f"rng_{kind}"), generator, *parameters)


def manual_seed(seed: int) -> Generator:
    """Seed the default generators of all devices; gives the CPU's."""
    trace, seed = local.trace, int(seed)
    if trace is not None and trace.whole:
        # nothing draws on another device; at each call, those are seeded that there are then
        here = trace.place or None
        generator_at(here).manual_seed(seed)
        trace.deferred.append(partial(_seed_others, seed, here))
        return default_generator
    default_generator.manual_seed(seed)
    for place in _drawing():
        if trace is None or trace.place is place:
            place.generator.manual_seed(seed)
        else:
            with trace.eager(TWO_DEVICES):
                place.generator.manual_seed(seed)
    return default_generator


def _seed_others(seed: int, but: Place | None) -> None:
    for place in (None, *_drawing()):
        if place is not but:
            generator_at(place).manual_seed(seed)


def _drawing() -> list[Place]:
    """The devices besides the CPU that have drawn, and that this process may use."""
    return [
        place for place in drawing_places()
        if place.generator is not None and place.process == os.getpid()
    ]


def seed() -> int:
    """Seed the default generators of all devices from the system's randomness."""
    chosen = default_generator.seed()
    for place in _drawing():
        place.generator.manual_seed(chosen)
    return chosen


def initial_seed() -> int:
    """The default generator's seed."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """A copy of the default generator's state."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Set the default generator's state."""
    default_generator.set_state(new_state)


class States:
    """Where the default generators of the CPU and of some devices stand."""

    def __init__(self, chosen: list[Place], near: Iterable[Tensor] = ()) -> None:
        """`near`: tensors that say where a recording that has met none will be."""
        everywhere = [None, *chosen]
        trace = local.trace
        if trace is not None and trace.whole:  # one graph is of one device: no other draws
            here = trace.place
            if here is False:
                here = next(map(place_at, near), None)
            everywhere = [place for place in everywhere if place is here]
        self._kept = [_seed_and_state(generator_at(place)) for place in everywhere]

    def restore(self) -> None:
        """All stand there again."""
        for generator, seed, state in self._kept:
            with generator.turn if local.trace is None else _NOBODY:
                _of_device(generator, partial(inplace, generator.state, state, overwrite=True))
                generator._seed = seed


def _seed_and_state(generator: Generator) -> tuple[Generator, int | None, Tensor]:
    """Both of one moment."""
    with generator.turn if local.trace is None else _NOBODY:
        return generator, generator._seed, _of_device(generator, generator.copied_state)


def _of_device(generator: Generator, function: Callable[[], Tensor]) -> Tensor:
    """What is done with a generator's state: where this recording is of another device, eagerly."""
    trace = local.trace
    if trace is None or trace.joins(generator._place):
        return function()
    with trace.eager(TWO_DEVICES):
        return function()


def drawing_places() -> list[Place]:
    """The devices besides the CPU that have random numbers."""
    return [place for place in places() if place.device.type != "meta"]


@contextmanager
def fork_rng(
    devices: Any = None, enabled: bool = True, _caller: str = "fork_rng",
    _devices_kw: str = "devices", device_type: str | None = None,
) -> Iterator[None]:
    """The default generators of the CPU and of `devices` (by number; None: all of that type) are
    afterwards as they were before."""
    if not enabled:
        yield
        return
    wanted = None if devices is None else [
        d if isinstance(d, int) else device(d).index or 0 for d in devices
    ]
    states = States([
        place for place in drawing_places()
        if device_type in (None, place.device.type)
        and (wanted is None or place.device.index in wanted)
    ])
    try:
        yield
    finally:
        states.restore()
