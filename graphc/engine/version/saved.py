"""What a compiled call saves for its backward, and writes to memory that this lies in.

Eager mode saves tensors: what a write that autograd does not see (`.data`) does to their memory,
or to what they are views of, its rules read. A compiled backward saves less, and computes again
from it what eager mode has saved by itself. So before a write to memory that eager mode would
read, the node gives way to eager mode's, which hold that memory (frontend/held.py); what eager
mode would not read there is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...backends.numpy.ops import TABLE
from ...frontend.device_table import table_for
from ...frontend.errors import located
from ...frontend.folded import FoldedNode
from ...frontend.held import Place
from ...frontend.nodes import TWICE, Edge, Node
from ...frontend.recorded_tape import Layout
from ...frontend.storage import note_read, reads_later, reads_no_more
from ...ir.graph import Graph
from .spent import Spending

_GONE = np.empty(0)  # in place of a saved value that nothing may read any more
Stamp = tuple[Any, int]  # a storage, and its version when the call ended


class SavingNode(FoldedNode):
    """A folded node with saved values, some of which are memory that the user can write to."""

    plan: Any  # of its class: `parts` is the backward graph
    saved: list[np.ndarray] | None
    places: Sequence[Place]  # of each saved value: the input or output of the forward that it is
    stamps: dict[int, Stamp]  # by place in `saved`
    inputs: list[np.ndarray]  # of the forward; those that it overwrote, as they were
    input_stamps: dict[int, Stamp]  # by number of the input
    outputs: dict[int, tuple[Any, int, np.ndarray]]  # by number: a stamp, and the memory
    # by id of the memory that it lies in, once asked for: what may still be as it was
    _lying: dict[int, list[Stamp]] | None = None
    spent: int | None = None  # operations of the tape that ran and are released, as bits
    _ran: tuple[tuple[bool, ...], tuple[bool, ...]]  # cotangents and gradients of the last pass

    def __init__(self, edges: Any, types: Any) -> None:
        super().__init__(edges, types)
        self.stamps, self.inputs, self.input_stamps, self.outputs = {}, [], {}, {}

    def noted(self) -> None:
        """It is complete: from now on it is told of writes."""
        for storage in self.storages():
            note_read(storage)
        reads_later(self)

    def storages(self) -> Iterable[Any]:
        """Of all that is stamped."""
        stamped = self.stamps, self.input_stamps, self.outputs
        return [stamp[0] for stamps in stamped for stamp in stamps.values()]

    def lies_in(self, root: Any) -> bool:
        """Whether any of that is in the memory of a root: asked of most readers at most writes."""
        for stamps in (self.stamps, self.input_stamps, self.outputs):
            for stamp in stamps.values():
                if stamp[0].root is root:
                    return True
        return False

    # --- passes -------------------------------------------------------------------------------

    def spending(self, whole: bool) -> Spending | None:
        """What passes use up; None where that is all, as it is of a `whole` one at least."""
        raise NotImplementedError

    def within(self, output: int, number: int) -> bool:
        behind: int = self.plan.parts.behind[number]
        return not behind or bool(behind >> output & 1)

    @property
    def used(self) -> bool:
        return self.stands_for is None and (self.spent is not None or self.saved is None)

    def exhausted(self, given: Sequence[int], needs: Sequence[bool]) -> bool:
        if self.spent is None:
            return True
        known = self.spending(False)
        if known is None or (self.saved is None and not known.is_all(self.spent)):
            return False  # what is left reads nothing here, and could not be laid out
        results = range(len(self.out_types))
        return bool(
            known.runs(tuple([i in given for i in results]), needs) & self.spent
        )

    def begin(self, given: tuple[bool, ...], needs: Sequence[bool], by_tape: bool) -> None:
        """A pass is about to run (`by_tape`: from the inputs). Raises RuntimeError where it needs
        what another one has used up."""
        self._ran = given, tuple(needs)
        if self.spent is not None:
            known = self.spending(False)
            gone = known is None or known.runs(given, needs) & self.spent
        else:
            gone = self.saved is None
        if gone or (by_tape and self.saved is None):
            raise RuntimeError(located(TWICE))

    def release(self) -> None:
        """Forget what no pass may read any more."""
        if self.stands_for is not None:
            return self.forget()
        given, needs = self._ran
        known = self.spending(all(given) and all(needs))
        if known is not None:
            self.spent = (self.spent or 0) | known.runs(given, needs)
            kept = known.kept(self.spent)
            if kept and self.saved is not None:
                self.saved = [v if i in kept else _GONE for i, v in enumerate(self.saved)]
                self.stamps = {i: stamp for i, stamp in self.stamps.items() if i in kept}
                return
        self.forget()

    def forget(self) -> None:
        """Forget all that was saved."""
        self.saved = None
        self.stamps = {}
        self.inputs, self.input_stamps, self.outputs = [], {}, {}
        reads_no_more(self)

    # --- what subclasses know -----------------------------------------------------------------

    def layout(self) -> tuple[Layout, Graph] | None:
        """What eager mode would have recorded, and what computes the values that it would have
        saved; None where it cannot be laid out."""
        raise NotImplementedError

    def freed_layout(self) -> Layout | None:
        """The same when nothing is saved any more."""
        laid = self.layout()
        return None if laid is None else laid[0]

    def read_directly(self, place: int) -> bool:
        """Whether eager mode's rules are known to read the value saved at a place."""
        raise NotImplementedError

    def entries(self) -> list[Edge | None]:
        """Where the gradient of each entry of the tape goes."""
        raise NotImplementedError

    def recomputable(self, layout: Layout) -> bool:
        """Whether the inputs are there from which the layout's values are computed."""
        raise NotImplementedError

    def unread(self, number: int) -> None:
        """Note that no pass reads the memory of an output."""

    # --- writes -------------------------------------------------------------------------------

    def watch(self, outputs: Mapping[int, tuple[Any, np.ndarray]]) -> None:
        """Note which outputs the user is handed: their storages, and the memory. What else it
        saves it has `noted`."""
        self._lying = None
        for number, (storage, array) in outputs.items():
            self.outputs[number] = storage, storage.version, array
            note_read(storage)
        for at, (kind, number) in enumerate(self.places):
            if kind == "output" and number in self.outputs:
                self.stamps[at] = self.outputs[number][:2]
            elif kind == "input" and number in self.input_stamps:
                self.stamps[at] = self.input_stamps[number]
        reads_later(self)

    def _memory(self) -> dict[Place, Stamp]:
        found: dict[Place, Stamp] = {("input", i): s for i, s in self.input_stamps.items()}
        found.update({("output", i): kept[:2] for i, kept in self.outputs.items()})
        for at, stamp in self.stamps.items():
            found[self.places[at]] = stamp
        return found

    def keep(self, storage: Any, tracked: bool) -> bool:
        """`storage` is about to be written to; whether any of that is read later."""
        if self.saved is None or self.stands_for is not None:
            return False
        root, memory = storage.root, None
        if self._lying is None:  # they become fewer, no others; what is noted keeps them
            if not self.lies_in(root):
                return False
            self._lying, memory = {}, self._memory()
            for stamp in memory.values():
                self._lying.setdefault(id(stamp[0].root), []).append(stamp)
        lying = self._lying.get(id(root), ())
        if not any(watched.version == version for watched, version in lying):
            self._lying.pop(id(root), None)  # versions grow
            return False
        written = [
            (place, watched) for place, (watched, version) in (memory or self._memory()).items()
            if watched.root is root and version == watched.version
        ]
        for place, watched in written:
            if self.saved is not None:
                self._keep(place, tracked and watched is storage)
        return True

    def _keep(self, place: Place, seen: bool) -> None:
        """A place is about to be written to; `seen`: autograd will find out."""
        at = self.places.index(place) if place in self.places else -1
        laid = self.layout()
        if laid is None:  # an error where its gradient is asked for
            if at >= 0 and not (seen and place[0] == "input") and not self.read_directly(at):
                self._copy(place, at)
        elif place not in laid[0].places:
            if at >= 0 or (place[0] == "input" and place[1] in laid[0].behind):
                self._copy(place, at)
            elif place[0] == "output":
                self.unread(place[1])
        elif not self._changed(laid[0]):
            # also where autograd sees the write: eager mode's nodes know which of them it concerns
            self.unfold()

    def keep_former(self, storage: Any, output: int) -> Node | None:
        for at, (watched, version) in list(self.stamps.items()):
            if watched is storage and version == storage.version:
                self._copy(self.places[at], at)
        read: set[Place] = {
            ("input", i) for i, (watched, version) in self.input_stamps.items()
            if watched is storage and version == storage.version
        }
        if not read or self.saved is None or self.stands_for is not None:
            return None
        laid = self.layout()
        if laid is None or read.isdisjoint(laid[0].places):
            return None
        self.unfold()  # as the write would, after which it is known which operation reads it
        return self.place(output)[0]

    def _copy(self, place: Place, at: int) -> None:
        """What is at a place now is read later; `at`: which of the saved values that is, or -1."""
        if self.saved is None:
            return
        kind, number = place
        if at >= 0:
            if at not in self.stamps:
                return
            array = self.saved[at] = self.saved[at].copy()
            del self.stamps[at]
        else:
            array = self.inputs[number].copy()
        if kind == "input" and number < len(self.inputs):
            self.inputs[number] = array
            self.input_stamps.pop(number, None)
        elif kind == "output":
            self.outputs.pop(number, None)

    # --- unfolding ----------------------------------------------------------------------------

    def lay_out(self) -> tuple[Edge, ...] | None:
        if self.saved is None:
            return self._lay_out_freed()
        laid = self.layout()
        if laid is None:
            return None
        layout, compute = laid
        if not self.recomputable(layout) or any(
            kind == "output" and i not in self.outputs for kind, i in layout.places
        ):
            return None
        changed = self._changed(layout)
        if changed:
            raise RuntimeError(located(self.modified(changed[0])))
        inputs = self.inputs[: len(compute.inputs)]
        values = layout.values(inputs, compute, table_for(inputs, TABLE), self._array)
        memory = self._memory()
        stamps = {
            number: memory[held.place] for number, held in layout.held.items()
            if held.place in memory
        }
        entries = self.entries()
        self.forget()
        return layout.nodes(values, stamps, entries, self.sequence, self.spent or 0)

    def _lay_out_freed(self) -> tuple[Edge, ...] | None:
        """Nodes of which none has what it saved any more."""
        layout = self.freed_layout()
        known = None if self.spent is None else self.spending(False)
        if layout is None or (known is not None and not known.is_all(self.spent or 0)):
            raise RuntimeError(located(TWICE))
        values = [_GONE] * len(layout.read)
        every = (1 << len(layout.tape.steps)) - 1
        return layout.nodes(values, {}, self.entries(), self.sequence, every)

    def _changed(self, layout: Layout) -> list[int]:
        """Inputs from which values are computed, and that were written to since."""
        return [
            i for i in layout.behind if i in self.input_stamps
            and self.input_stamps[i][0].version != self.input_stamps[i][1]
        ]

    def modified(self, number: int) -> str:
        """What is said of an input that was written to."""
        raise NotImplementedError

    def _array(self, place: Place) -> np.ndarray:
        kind, number = place
        return self.inputs[number] if kind == "input" else self.outputs[number][2]
