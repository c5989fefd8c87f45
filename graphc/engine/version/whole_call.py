"""Calls of a shortcut that native code makes as a whole (backends/host/entry_whole.py): where all
that Python would do besides is to make memory for the results, and tensors of it. Tensors with a
history are made in Python, of the arrays that native code gives."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import config as configuration
from ...backends.host.entry import Code, Conditions, Entry
from ...backends.host.entry_numbers import KnownNumbers
from ...backends.host.entry_whole import ARRAYS, LIST, ONE, OTHER_NUMBERS, TUPLE, Result, Whole
from ...backends.host.watched import Steps
from ...frontend import promote, state_version
from ...frontend.context import local
from ...frontend.nodes import SpentNode
from ...frontend.storage import Storage, readers
from ...optim.optimizer import GroupSource
from ..marks import Compilers
from ..native_run import native_code
from .call import Call

if TYPE_CHECKING:
    from .plain_results import PlainResult
    from .shortcut import Shortcut


class WholeCall:
    """The native call of a shortcut, with a lease of its own; `call`: see entry_whole.py. What
    it does not make, where the code refuses for one, is for Python to make."""

    def __init__(
        self, shortcut: Shortcut, lease: Any, whole: Whole, gives: int, known: KnownNumbers | None
    ) -> None:
        """`known`: of run-time numbers that native code asks."""
        self._executable, self._sizes = shortcut.executable, shortcut.sizes
        self._lease, self._whole, self._known = lease, whole, known
        self.call = whole.call
        self._history = shortcut.history
        assert self._history is None or not shortcut.version.engine.mutated
        results: Any = () if shortcut.history is not None else shortcut.results
        # tensors that are made in Python: of which of the arrays
        at = {output: i for i, (output, *_) in enumerate(shortcut.other_outputs)}
        self._made = [(each, at[each.output]) for each in results] if gives == ARRAYS else []
        self._make = None if gives in (ONE, TUPLE, ARRAYS) else shortcut.makes
        self._gives_numbers = shortcut.has_numbers and known is None
        # whether nothing is left to Python
        self.alone = not (self._make or self._gives_numbers or gives == ARRAYS)

    def run(self, shortcut: Shortcut, leaves: Any) -> Any:
        """The result of a call, with what native code leaves to Python; or a number, as `call`."""
        call = None
        if self._gives_numbers:
            call = Call(leaves, None)
            call.dims = shortcut.dims
            try:
                call.numbers = shortcut.number_arrays(call)
            except Exception:  # nobody has asked yet whether they are there
                return -2
            made = self.call(leaves, *[array for _, array in call.numbers])
        else:
            made = self.call(leaves)
            if type(made) is int and made == OTHER_NUMBERS:
                made = self.call(leaves) if self._know(shortcut, leaves) else -2
        if type(made) is int:
            if made < -1:
                self._follow_threads()
            return made
        if self._history is not None:
            return self._recorded(shortcut, call or Call(leaves, None), made)
        if self._made:
            tensors = [each.of(made[i]) for each, i in self._made]
            return tensors[0] if shortcut.makes is None else shortcut.makes(tensors)[0]
        return made if self._make is None else self._make(made)[0]

    def _recorded(self, shortcut: Shortcut, call: Call, arrays: tuple[np.ndarray, ...]) -> Any:
        """The results of a call that has run, with their history; `arrays`: of all outputs, as
        none goes into the memory of an input where there is a plain history."""
        call.results, call.dims = list(arrays), shortcut.dims
        history: Any = self._history
        made = history.of(call)
        return made[0] if shortcut.makes is None else shortcut.makes(made)[0]

    def _know(self, shortcut: Shortcut, leaves: Any) -> bool:
        """Numbers are others, and native code is told; False: they are for Python to fetch."""
        known, version, executable = self._known, shortcut.version, self._executable
        assert known is not None
        call = Call(leaves, None)
        call.dims = shortcut.dims
        items = [source.item() for source, _ in version.sources]
        try:
            arrays = shortcut.number_arrays(call)
        except Exception:  # nobody has asked yet whether they are there
            return False
        for (source, _), (*_, held) in zip(version.sources, items, strict=True):
            if not source.is_told_by(held, call.sources[source]):
                return False
        if not self._whole.take():
            return False
        try:
            known.forget()
            for number, array in arrays:
                executable.point(self._lease, number, array)
            known.know(items, arrays)
        finally:
            self._whole.give_back()
        return True

    def _follow_threads(self) -> None:
        """The number of threads may be another one."""
        executable = self._executable
        if not executable.is_laid_out(self._lease) and self._whole.take():
            try:
                self._whole.take_turns(executable.lay_out(self._lease, self._sizes))
            finally:
                self._whole.give_back()


def whole_of(shortcut: Shortcut) -> WholeCall | None:
    """None where Python has more to do in a call."""
    version, code = shortcut.version, native_code()
    if (
        code is None or (shortcut.results is None and shortcut.history is None)
        or shortcut.asked or shortcut.states
        or version.guards.asks_last or local.place is not None
        or not shortcut.executable.can_run_twice
        or (shortcut.history is not None and version.engine.mutated)
    ):
        return None
    executable = shortcut.executable
    lease = executable.own_lease()
    turns = executable.lay_out(lease, shortcut.sizes)
    first = executable.first_input + len(version.inputs)
    arrays: list[tuple[Callable[..., Any], tuple[Any, ...], int]] = [
        (np.empty if small else shortcut.allocate, (shape, dtype), first + output)
        for output, small, shape, dtype in shortcut.other_outputs
    ]
    at = {output: i for i, (output, *_) in enumerate(shortcut.other_outputs)}
    plain = (shortcut.results or ()) if shortcut.history is None else ()
    results = [Result(at[each.output], _storage(each), each.spent) for each in plain]
    gives = ONE if shortcut.makes is None else TUPLE if version.rebuild.gives_a_tuple else LIST
    if shortcut.history is not None or any(each.order is not None for each in plain):
        gives = ARRAYS
    known = _known(shortcut)
    places = [executable.first_input + source.number for source in version.computed]
    whole = Whole(
        shortcut.entry, _world(code, shortcut), lease.address, executable.places(lease), arrays,
        results, gives, version.native_calls, places if known is None else (), known, SpentNode,
    )
    whole.take_turns(turns)
    return WholeCall(shortcut, lease, whole, gives, known)


def _known(shortcut: Shortcut) -> KnownNumbers | None:
    """For run-time numbers that items of dictionaries tell; None: there are others, or none."""
    sources = shortcut.version.sources
    if not shortcut.has_numbers or shortcut.history is not None:
        return None
    if not all(type(source) is GroupSource for source, _ in sources):
        return None
    return KnownNumbers(len(sources))


def _world(code: Code, shortcut: Shortcut) -> Entry:
    """What holds for all calls of the process, and now."""
    conditions, guards = Conditions(), shortcut.guards
    for owner, name in ((Compilers, "stance"), (promote.Defaults, "dtype")):
        conditions.item(_fields(owner), name, getattr(owner, name))
    conditions.item(_fields(Steps), "watch", None)  # though somebody may watch just now
    conditions.item(vars(configuration), "_process", shortcut.config)
    conditions.item(vars(configuration), "overridden", 0)
    conditions.current(
        vars(state_version), "_version", ctypes.addressof(guards.seen)
    )
    conditions.keep.append(guards)
    if shortcut.version.traced.mutations:  # what waits for them may have to keep what was there
        conditions.empty(readers)
    return Entry(code, conditions, 0, 0, 0, 0, False, 0, {}, 0, False)


def _fields(owner: type) -> dict[str, Any]:
    """The dictionary of a class, which is one for as long as the class lives."""
    found: dict[str, Any] = next(each for each in gc.get_referents(owner) if type(each) is dict)
    return found


def _storage(result: PlainResult) -> Storage:
    """A storage like those of a result."""
    storage = Storage(np.empty(0))
    storage.version, storage.inference = result.writes, result.inference
    return storage
