"""What a call has to find as it was, asked by native code (entry_text.py,
entry_words.py).

An `Entry` is made of conditions: that an item of a dictionary, or a word of memory, is what it
was, and what tensors are like. Asking takes some nanoseconds each, and gives the addresses of the
inputs' elements. All objects that a condition names must live as long as the Entry, or be named by
a condition before it that tells their death.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ...ir.named import NamedTuple
from . import entry_words as kinds
from .allocator import BLOCK
from .layouts import (
    COUNT,
    REFERENT,
    attribute_index,
    layout,
    order_offset,
    shared_keys,
    slot_offset,
)
from .methods import Method, address_of, bound, method

_OF_DICTS = (kinds.ITEM, kinds.PRESENT)
_FEW = 2  # items that cost as much as asking whether their dictionary was written to
_HOOKS_OF_NODES = ("pre_hooks", "post_hooks")


class Library(Protocol):
    """Native code in this process."""

    def address(self, name: str) -> int: ...


class Code:
    """The native code, for two classes of tensors and one of storages."""

    def __init__(
        self, link: Callable[[str, Callable[[], str], Mapping[str, int]], Library],
        classes: tuple[type, type], storage: type,
    ) -> None:
        """`link`: makes native code of LLVM assembly, by its name, that uses these addresses.
        Raises ValueError where objects are not laid out as the code expects."""
        found = layout()
        if found is None:
            raise ValueError("objects of this Python are not laid out as expected")
        rows: list[int] = []
        for kind in classes:
            indices = [attribute_index(kind, name) for name in kinds.ATTRIBUTES]
            known = [i for i in indices if i is not None and i >= 0]
            if len(known) < len(indices):
                raise ValueError(f"the attributes of {kind.__name__} do not lie together")
            rows += [id(kind), *known, shared_keys(kind, kinds.ATTRIBUTES[0])]
        self.classes = classes
        self.rows = _words(rows)
        self._texts = (*kinds.ATTRIBUTES, *_HOOKS_OF_NODES, "__dict__")
        self.names = _words([id(name) for name in self._texts])
        self.inference = slot_offset(vars(storage)["inference"])
        self.version = slot_offset(vars(storage)["version"])
        self.storage = storage
        self.weak = [kind.__weakrefoffset__ for kind in (classes[0], np.ndarray, storage)]
        offsets = [slot_offset(vars(storage)[name]) for name in kinds.SLOTS]
        self.slots = _words([*offsets, id(0)])
        symbols = {name: address_of(name) for name in kinds.FUNCTIONS}
        self._library = link(f"entry {found.version}", lambda: _text(found.version), symbols)
        self.check = self._method("graphc_check")
        self.done = self._method("graphc_done")
        self.keep = self._method("graphc_keep")
        self.run = self._method("graphc_run")
        self.whole = self._method("graphc_whole")
        self.take = self._method("graphc_take")

    def _method(self, name: str) -> Method:
        return method(name, self._library.address(name))

    @property
    def dict_name(self) -> int:
        """Where the text "__dict__" is."""
        return id(self._texts[-1])


def _text(version: tuple[int, int]) -> str:
    from .entry_text import text

    return text(version)


class TensorFacts(NamedTuple):
    """What a tensor has to be like: `bits` as entry_text.py has them."""

    argument: int  # its number; -1: a captured one
    tensor: Any  # None: an argument
    kind: type
    input: int
    dtype: np.dtype[Any]  # this very object
    shape: tuple[int, ...]
    bits: int
    writes: int  # how many writes its storage sees
    steps: tuple[int, ...] | None = None  # bytes, without gaps; None: it is row-major


class Gradient(NamedTuple):
    """A `.grad` that a call leaves: an array like the former's, by itself."""

    tensor: Any  # that has it
    output: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    writes: int  # how many its storage has seen
    inference: bool
    in_place: bool = False  # it is written where the former one lies
    order: tuple[int, ...] | None = None  # puts the dims of its memory back, where not row-major
    steps: tuple[int, ...] | None = None  # its strides in bytes then


class Conditions:
    """The entries of a table, in order; `keep` has what must not go."""

    def __init__(self) -> None:
        self.words: list[tuple[int, ...]] = []
        self.keep: list[Any] = []
        self.tensors: list[TensorFacts] = []
        self.gradients: list[Gradient] = []

    def item(self, held: Any, key: str, value: Any, missing: bool = False) -> None:
        """An item of a dictionary is this object, or there is none."""
        self.keep += [held, key]
        self.words.append((kinds.ITEM, id(held), id(key), 0 if missing else id(value)))

    def present(self, held: Any, key: str) -> None:
        """A dictionary has an item under a key, whatever it is."""
        self.keep += [held, key]
        self.words.append((kinds.PRESENT, id(held), id(key)))

    def gather(self, first: int, owners: list[Any]) -> None:
        """Put the items among the conditions from `first` on behind the others, by dictionary, and
        ask those of a dictionary only where it was written to. `owners`: what each stands for,
        which follows."""
        pairs = list(zip(self.words[first:], owners[first:], strict=True))
        by_dict: dict[int, list[tuple[tuple[int, ...], Any]]] = {}
        for row, owner in pairs:
            if row[0] in _OF_DICTS:
                by_dict.setdefault(row[1], []).append((row, owner))
        pairs = [pair for pair in pairs if pair[0][0] not in _OF_DICTS]
        found = layout()
        for held, rows in by_dict.items():
            count = len(rows) + 2
            if found is None or not found.counts_writes or len(rows) < _FEW:
                pairs += rows
                continue
            back = 2 - kinds.WORDS * (count - 1)  # from the last entry to the first one's word
            pairs.append(((kinds.DICT, held, 0, count), None))
            pairs += rows
            pairs.append(((kinds.HELD, held, back), None))
        self.words[first:] = [row for row, _ in pairs]
        owners[first:] = [owner for _, owner in pairs]

    def current(self, held: Any, key: str, place: int) -> None:
        """An item of a dictionary is the object whose address is in a word of memory, which
        somebody keeps up to date, and the object alive."""
        self.keep += [held, key]
        self.words.append((kinds.CURRENT, id(held), id(key), place))

    def empty(self, held: dict[Any, Any]) -> None:
        """A dictionary has no items."""
        self.keep.append(held)
        self.word(id(held) + COUNT, 0)

    def word(self, place: int, value: int) -> None:
        """8 bytes of memory."""
        self.words.append((kinds.WORD, place, 0, value))

    def referent(self, reference: Any, value: Any) -> None:
        """A weak reference refers to this object, which is alive."""
        self.keep.append(reference)
        self.word(id(reference) + REFERENT, id(value))

    def members(self, kind: type) -> bool:
        """The classes that a class is made of are the same; False: not for native code to say."""
        offset = order_offset()
        if offset is None:
            return False
        self.keep += [kind, kind.__mro__]
        self.word(id(kind) + offset, id(kind.__mro__))
        return True

    def modes(self, code: Code, local: Any, values: Sequence[tuple[str, Any, Any]]) -> None:
        """Of this thread: (name, the default, what it has to be) of each."""
        row = _words([id(part) for each in values for part in each])
        self.keep += [local, list(values), row]
        place = ctypes.addressof(row)
        self.words.append((kinds.LOCAL, id(local), code.dict_name, len(values), place))

    def tensor(self, facts: TensorFacts) -> None:
        """A tensor is like this; it is fetched."""
        header = _header(facts.dtype, facts.shape, facts.steps)
        self.keep += [facts, header]
        self.tensors.append(facts)
        self.words.append((
            kinds.TENSOR, facts.argument, 0 if facts.tensor is None else id(facts.tensor),
            id(facts.kind), ctypes.addressof(header), facts.input, facts.bits,
        ))

    def items(self, held: list[Any]) -> None:
        """A list holds the objects that it holds now, and no others."""
        wanted = list(held)
        row = _words([id(item) for item in wanted])
        self.keep += [held, wanted, row]
        self.words.append((kinds.LIST, id(held), ctypes.addressof(row), len(wanted)))

    def argument(self, number: int, value: Any) -> None:
        """An argument is this object, which somebody else keeps, or whose death he tells."""
        self.words.append((kinds.ARGUMENT, number, 0, id(value)))

    def argument_class(self, number: int, kind: type) -> None:
        """An argument is of this class."""
        self.keep.append(kind)
        self.words.append((kinds.CLASS, number, 0, id(kind)))

    def same(self, number: int, other: int | Any, is_one: bool) -> None:
        """Whether an argument is another one, by its number, or an object."""
        by_number = type(other) is int
        if not by_number:
            self.keep.append(other)
        self.words.append((
            kinds.SAME, number, other if by_number else -1, 0 if by_number else id(other),
            int(is_one),
        ))

    def gradient(self, number: int, tensor: Any, kind: type, present: bool) -> None:
        """A tensor has a `.grad`, or has none."""
        self.keep += [tensor, kind]
        place = 0 if tensor is None else id(tensor)
        self.words.append((kinds.GRADIENT, number, place, id(kind), int(present)))


class Entry:
    """`check(arguments, block)`, `run(block, *outputs)`, `done(block, ran)`, `keep(*gradients)`:
    see entry_text.py."""

    def __init__(
        self, code: Code, conditions: Conditions, inputs: int, arguments: int, first: int,
        held: int, apart: bool, outputs: int, mutated: Mapping[int, int], run: int, releases: bool,
    ) -> None:
        """`first`: the word of a block with the first input's address, behind which the outputs'
        are; `held`: the first of those for references, two for each input and one for each output;
        `apart`: written memory is no other input's; `mutated`: which output goes into which
        input's memory; `run`: the address of the program's code; `releases`: without the GIL."""
        spans, counts, written = [0] * inputs, [0] * inputs, [0] * inputs
        for facts in conditions.tensors:
            spans[facts.input] = math.prod(facts.shape) * facts.dtype.itemsize
            counts[facts.input] = facts.writes
            written[facts.input] = int(bool(facts.bits & kinds.WRITTEN))
        count = len(conditions.tensors) + len(conditions.gradients)
        hints = _words([0] * kinds.HINTS * (count + kinds.AHEAD))
        padded, further = _padded(conditions.words, ctypes.addressof(hints))
        copies = [w + first for to, of in mutated.items() for w in (inputs + to, of)]
        grads = self._gradients(conditions, first + inputs, further)
        made = [first + inputs + i for i in range(outputs) if i not in mutated]
        graded = {first + inputs + each.output for each in conditions.gradients}
        others = [word for word in made if word not in graded]
        self._spares = _words([0] * len(conditions.gradients))
        lists = {
            "entries": padded, "places": [0] * inputs, "spans": spans, "written": written,
            "counts": counts, "copies": copies, "grads": grads, "made": made, "others": others,
        }
        parts = {name: _words(values) for name, values in lists.items()}
        values = {name: ctypes.addressof(part) for name, part in parts.items()}
        values |= {
            "count": len(conditions.words), "inputs": inputs, "first": first,
            "held": held, "classes": ctypes.addressof(code.rows),
            "names": ctypes.addressof(code.names), "array": id(np.ndarray),
            "storage": id(code.storage), "inference": code.inference, "version": code.version,
            "none": id(None), "true": id(True), "arguments": arguments,
            "copied": len(mutated), "graded": len(conditions.gradients),
            "weak_tensor": code.weak[0], "weak_array": code.weak[1], "weak_storage": code.weak[2],
            "slots": ctypes.addressof(code.slots), "false": id(False),
            "spares": ctypes.addressof(self._spares), "run": run, "releases": int(releases),
            "made_count": len(made), "block": id(BLOCK),
        }
        if not apart:
            values["places"] = 0
        table = _words([values[name] for name in kinds.TABLE])
        kept = conditions, parts, table, self._spares, code, hints
        self.code, self.table = code, (address := ctypes.addressof(table))
        weakref.finalize(self, _release, self._spares).atexit = False
        self.check: Callable[[tuple[Any, ...], int], bool | int | None]
        self.check = bound(code.check, address, kept)
        self.done: Callable[[int, bool], None] = bound(code.done, address, kept)
        self.keep: Callable[..., None] = bound(code.keep, address, kept)
        self.run: Callable[..., int] = bound(code.run, address, kept)


    def _gradients(self, conditions: Conditions, first: int, hints: int) -> list[int]:
        """The records of gradients; `first`: the word of a block with the first output's address;
        `hints`: where theirs are."""
        words: list[int] = []
        for i, each in enumerate(conditions.gradients):
            header = _header(each.dtype, each.shape, each.steps)
            conditions.keep.append(header)
            words += [
                id(each.tensor), id(type(each.tensor)), ctypes.addressof(header),
                first + each.output, id(each.writes), id(each.inference),
                int(each.in_place), hints + 8 * kinds.HINTS * i,
            ]
        return words


def _padded(rows: Sequence[tuple[int, ...]], hints: int) -> tuple[list[int], int]:
    """Entries side by side, of which those of tensors have a place for hints each; where others'
    are."""
    words: list[int] = []
    for row in rows:
        if row[0] == kinds.TENSOR:
            row, hints = (*row, hints), hints + 8 * kinds.HINTS
        words += [*row, *[0] * (kinds.WORDS - len(row))]
    return words, hints


_decrement = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("Py_DecRef", ctypes.pythonapi))


def _release(spares: Any) -> None:
    for i, place in enumerate(spares):
        spares[i] = 0
        if place:
            _decrement(place)


def _header(
    dtype: np.dtype[Any], shape: tuple[int, ...], steps: tuple[int, ...] | None
) -> Any:
    return _words([id(dtype), len(shape), int(steps is not None), *shape, *(steps or ())])


def _words(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * max(len(values), 1))(*values)
