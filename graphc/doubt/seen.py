"""What can be seen after a call: values, types, and which things are the same object."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from ..engine.capture.kinds import content_of
from ..frontend.history import requires_grad
from ..frontend.layouts import strided
from ..frontend.tensor import Tensor
from ..ir.dtypes import from_numpy
from ..ir.memory import on_host
from ..testing.comparison import TOLERANCES
from .oracle import between, spread
from .reach import UNNAMED, content_base
from .walk import Roots, Visit, walk

Array = np.ndarray[Any, Any]
Facts = tuple[tuple[str, Any], ...]
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|\bnan\b|\binf\b")
_TEXT = (1e-3, 2e-4)  # tensors are printed with four digits
_TIMES = 2.0  # how much further than rounding moved others an element may be
_SCALARS = (bool, int, float, complex, str, bytes, type(None))


class Entry(NamedTuple):
    """One object as it was: facts that must be equal, and numbers that must be close."""

    path: str
    facts: Facts
    values: Array | None = None
    tolerance: tuple[float, float] = (0.0, 0.0)


class Closeness(NamedTuple):
    """How close numbers must be; without rtol and atol as close as their dtype asks for, or as
    rounding alone can tell."""

    rtol: float | None = None
    atol: float | None = None


class Difference(NamedTuple):
    """The first thing that differs after a call."""

    path: str
    detail: str


def look(roots: Roots, known: Mapping[int, str]) -> list[Entry]:
    """Everything that can be seen from the roots. `known`: objects from before the first call."""
    paths: list[str] = []
    memory: dict[int, str] = {}
    entries: list[Entry] = []
    for visit in walk(roots, inner=False):
        if visit.again >= 0:
            entries.append(Entry(visit.path, (("", f"{paths[visit.again]} itself"),)))
            continue
        if visit.rule is not None:
            paths.append(visit.path)
        entries.append(entry(visit, known, memory))
    return entries


def entry(visit: Visit, known: Mapping[int, str], memory: dict[int, str]) -> Entry:
    """One object as it is now. `memory`: where each storage was met first."""
    path, value, rule = visit[:3]
    kind = ("type", type(value).__qualname__)
    if issubclass(type(value), float):  # isinstance() would ask a user's object
        return Entry(path, (kind,), np.array(float(value)), TOLERANCES["float32"])
    if type(value) in _SCALARS:
        return Entry(path, (kind, ("value", value)))
    if rule is None:
        return Entry(path, (kind, ("value", _plain(value))))
    facts: list[tuple[str, Any]] = [kind]
    if id(value) in known:
        facts.append(("object", f"the {known[id(value)]} of before"))
    elif not issubclass(type(value), (*UNNAMED, types.CellType)):
        facts.append(("object", "a new one"))
    if issubclass(type(value), Tensor):
        return _tensor(path, value, facts, memory)
    if type(value) is np.ndarray and value.dtype != object:
        facts += [("dtype", str(value.dtype)), ("shape", value.shape)]
        return Entry(path, tuple(facts), value.copy(), _tolerance(value))
    if type(value) is types.FunctionType:
        facts.append(("code", value.__code__))
    elif content_of(type(value)) is not None:
        base: Any = content_base(type(value))
        facts.append(("length", base.__len__(value)))
    elif rule.save is not None and rule.shows:
        facts.append(("state", _plain(rule.save(value))))
    return Entry(path, tuple(facts))


def _plain(value: Any) -> Any:
    """A state or an immutable object as something that == compares."""
    if isinstance(value, dict):
        return tuple((key, _plain(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    return value.tobytes() if isinstance(value, np.ndarray) else value


def _tensor(path: str, value: Tensor, facts: list[Any], memory: dict[int, str]) -> Entry:
    if value._graphc_trace is not None:
        return Entry(path, (*facts, ("tensor", "of a trace that is over")))
    if value.layout is not strided:
        whole = value.detach().to_dense()._graphc_array
        facts += [
            ("dtype", str(value.dtype)), ("layout", str(value.layout)), ("shape", whole.shape),
            ("requires_grad", value.requires_grad), ("grad_fn", value.grad_fn is not None),
        ]
        return Entry(path, tuple(facts), whole, _tolerance(whole))
    array = value._graphc_array
    # steps along sizes of one mean nothing
    steps = tuple(s for n, s in zip(array.shape, value.stride(), strict=True) if n > 1)
    facts += [
        ("dtype", str(value.dtype)), ("device", str(value.device)), ("shape", array.shape),
        ("strides", steps),
        ("requires_grad", requires_grad(value)), ("grad_fn", value.grad_fn is not None),
        ("memory", memory.setdefault(id(value._graphc_storage.root), path)),
    ]
    if value.device.type == "meta":  # no values
        return Entry(path, tuple(facts))
    return Entry(path, tuple(facts), on_host(array).copy(), _tolerance(array))


def _tolerance(array: Array) -> tuple[float, float]:
    return TOLERANCES.get(array.dtype.name, (0.0, 0.0))


def text_entry(path: str, text: str) -> Entry:
    """What was printed, with the numbers in it apart."""
    numbers = [float(found) for found in _NUMBER.findall(text)]
    return Entry(path, (("text", _NUMBER.sub("#", text)),), np.array(numbers), _TEXT)


# --- comparing -------------------------------------------------------------------------------


def difference(
    eager: Sequence[Entry], compiled: Sequence[Entry], closeness: Closeness,
    again: Callable[[], list[Sequence[Entry]]],
) -> Difference | None:
    """The first entry that differs. `again` runs eager mode with its rounding errors made larger:
    what such runs do not agree upon is no difference."""
    for i, (want, have) in enumerate(zip_longest(eager, compiled)):
        if want is None or have is None or want.path != have.path:
            if have is None or (want is not None and want.path not in {e.path for e in compiled}):
                return Difference(want.path, "is there in eager mode alone")
            return Difference(have.path, "is there in the compiled run alone")
        if want.facts != have.facts:
            return Difference(want.path, _facts(want.facts, have.facts))
        if want.values is None or have.values is None:
            continue
        wrong = _wrong(have.values, want.values, want.tolerance, closeness)
        if wrong.any() and closeness.rtol is None and want.values.dtype.kind in "fiubV":
            wrong = _without_rounding(wrong, have.values, want, _samples(want, i, again()))
        if wrong.any():
            return Difference(want.path, _values(have.values, want.values, wrong))
    return None


def _facts(want: Facts, have: Facts) -> str:
    before, now = dict(want), dict(have)
    for name in dict.fromkeys((*before, *now)):
        if before.get(name) != now.get(name):
            if name == "state":
                return "is in another state than in eager mode"
            a, b = (str(side.get(name, "its own")) for side in (now, before))
            return f"{name}{' is' if name else 'is'} {a}, in eager mode {b}"
    raise AssertionError


def _wrong(
    have: Array, want: Array, tolerance: tuple[float, float], closeness: Closeness
) -> Array:
    if have.shape != want.shape:
        return np.ones(want.shape, bool)
    rtol, atol = tolerance
    if closeness.rtol is not None and closeness.atol is not None and any(tolerance):
        rtol, atol = closeness.rtol, closeness.atol
    if not any(tolerance):
        return np.asarray(have != want)
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    a, b = have.astype(wide), want.astype(wide)
    with np.errstate(all="ignore"):
        close = (a == b) | (np.abs(a - b) <= atol + rtol * np.abs(b))
        close |= np.isnan(a) & np.isnan(b)
    return np.asarray(~close)


def _samples(want: Entry, index: int, runs: list[Sequence[Entry]]) -> list[Array]:
    """What runs with larger rounding errors have in an entry's place."""
    assert want.values is not None
    found = [run[index] for run in runs if index < len(run)]
    return [
        e.values for e in found
        if e.path == want.path and e.values is not None and e.values.shape == want.values.shape
    ]


def _without_rounding(wrong: Array, have: Array, want: Entry, samples: list[Array]) -> Array:
    """Of the elements that differ those that rounding alone does not explain."""
    centre = want.values
    assert centre is not None
    if not samples:
        return wrong
    if centre.dtype.kind in "iub":
        return np.asarray(wrong & ~between(have, [centre, *samples]))
    wide = [s.astype(np.float64) for s in (centre, *samples)]
    with np.errstate(all="ignore"):
        left = wrong & ~spread(have.astype(np.float64), wide, from_numpy(centre.dtype))
        # what is all rounding (a step of Adam where the gradient should be zero) goes either way:
        # other elements tell how far, and how many of them there are
        apart = [_wrong(s, centre, want.tolerance, Closeness()) for s in samples]
        moved = np.any(apart, axis=0)
        room = _TIMES * np.max([np.abs(s - wide[0])[moved].max(initial=0.0) for s in wide[1:]])
        far = np.abs(have.astype(np.float64) - wide[0])[left].max(initial=0.0)
    explained = left.sum() <= moved.sum() and far <= room
    return np.zeros_like(left) if explained else np.asarray(left)


def _values(have: Array, want: Array, wrong: Array) -> str:
    if have.shape != want.shape:
        return f"has {have.size} numbers, in eager mode {want.size}"
    at = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.ndim else ()
    if not wrong.ndim:
        return f"is {have[()]!s}, in eager mode {want[()]!s}"
    return (
        f"differs in {int(wrong.sum())} of {wrong.size} elements; at {list(at)} it is "
        f"{have[at]!s}, in eager mode {want[at]!s}"
    )
