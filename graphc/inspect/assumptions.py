"""What a version relies on, for people: guards on graphc's own state folded, a line per object.

A Module alone has some 25 guards that it be called as it was. Plain values that users set, and
their own objects, keep a line each.
"""

from __future__ import annotations

import re
import types
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from graphc.engine.capture.kinds import is_plain
from graphc.engine.version.guards import Entry, Fields, Guard
from graphc.engine.version.guards_of_calls import Differentiable, FoundBy, MemoryOf
from graphc.inspect.report import without_folder
from graphc.nn.modules.module import Module
from graphc.optim.optimizer import Optimizer

_DEPTH = 4  # opt.__dict__ > param_groups > a group > its list of parameters
# fields of Modules and optimizers, in a person's words; the names of all others that are folded
# end in "hooks", or are those of methods
_WORDS = {
    "training": "training flag", "_parameters": "parameters", "_buffers": "buffers",
    "_modules": "submodules", "param_groups": "parameter groups", "state": "state",
}
_LIBRARY = "graphc's own classes, functions and settings"
_CALLS = "modes, and kinds of arguments,"
_TENSORS = "tensors from outside: memory, requires_grad and hooks"
_ENTRY = re.compile(r"\._(?:modules|parameters|buffers)\['([^']*)'\]")


class _Part(NamedTuple):
    """Whose state a container is part of, and of which of its fields (of several: "")."""

    owner: str
    field: str


def folded(guards: Iterable[Guard]) -> Iterator[str]:
    """Lines that name all guards, in the order of the first of each."""
    guards = list(guards)
    parts = dict(_parts(guards))
    counts: Counter[str] = Counter()
    words: dict[str, dict[str, None]] = {}
    for guard in guards:
        part = _part(guard, parts)
        line = without_folder(short(guard.text())) if part is None else part.owner
        counts[line] += 1
        if part is not None:
            words.setdefault(line, {}).update(dict.fromkeys(_named(guard, part)))
    for line, count in counts.items():
        if line in words:
            what = ", ".join(sorted(words[line])) or "attributes"
            yield f"{line} unchanged ({count})" if line in (_LIBRARY, _CALLS, _TENSORS) else (
                f"{line}: {what} unchanged ({count})"
            )
        else:
            yield line if count == 1 else f"{line} ({count} times)"


def short(path: str) -> str:
    """A path as users write it: model.0.weight for model._modules['0']._parameters['weight']."""
    return _ENTRY.sub(r".\1", path)


def _parts(guards: Iterable[Guard]) -> Iterator[tuple[int, _Part]]:
    """By id: what the state of Modules, optimizers and graphc's own code is kept in."""
    for guard in guards:
        if isinstance(guard, Fields):
            owner = guard.owner()
            kind = type(owner).__qualname__
            if isinstance(owner, Module):
                yield from _within(guard, f"module {short(guard.path)} ({kind})", 1)
            elif isinstance(owner, Optimizer):
                yield from _within(guard, f"optimizer {guard.path} ({kind})", _DEPTH)
        elif isinstance(guard, Entry):
            yield from ((id(held), _Part(_LIBRARY, "")) for held in _of_library(guard))


def _of_library(guard: Entry) -> Iterator[Any]:
    """The cells of graphc's decorated functions, and the containers that its modules hold."""
    value = guard.value
    if isinstance(value, types.FunctionType) and _is_ours(value.__globals__.get("__name__")):
        yield from value.__closure__ or ()
    about = guard.about()
    if isinstance(about, dict) and _is_ours(about.get("__name__")):
        yield from _containers(value, 2)


def _within(guard: Fields, owner: str, depth: int) -> Iterator[tuple[int, _Part]]:
    yield id(guard.owner()), _Part(owner, "")
    yield id(guard.fields), _Part(owner, "")
    for name, value in guard.fields.items():
        if name in _WORDS or name.endswith("hooks"):
            yield from ((id(held), _Part(owner, name)) for held in _containers(value, depth))


def _containers(value: Any, depth: int) -> Iterator[Any]:
    if not depth or not isinstance(value, (dict, list)):
        return
    yield value
    for item in dict.values(value) if isinstance(value, dict) else value:
        yield from _containers(item, depth - 1)


def _part(guard: Guard, parts: dict[int, _Part]) -> _Part | None:
    """Whose state a guard is about; None: it is shown by itself."""
    if isinstance(guard, FoundBy):
        return _Part(_CALLS, "") if guard.usual else None
    if isinstance(guard, Differentiable) or (
        isinstance(guard, MemoryOf) and guard.source.kind != "argument"
    ):
        return _Part(_TENSORS, "")
    about = guard.about()
    found = parts.get(id(about))
    if found is not None:
        return None if isinstance(guard, Entry) and _is_setting(guard, found) else found
    if isinstance(about, type):
        ours = _is_ours(about.__module__)
        return _Part(_LIBRARY if ours else f"class {about.__qualname__}", "")
    if isinstance(about, dict) and _is_ours(about.get("__name__")):
        return _Part(_LIBRARY, "")
    return None


def _is_setting(guard: Entry, part: _Part) -> bool:
    """Whether an entry is a plain value that a user has given."""
    absent = guard.place.is_missing(guard.value)
    return not absent and guard.place.key not in _WORDS and (
        part.field in ("", "param_groups") and not guard.identity and is_plain(guard.value)
    )


def _named(guard: Guard, part: _Part) -> Iterator[str]:
    """What of its owner a guard is about, in words."""
    names: Iterable[Any] = (part.field,)
    if isinstance(guard, Fields):
        names = guard.names
    elif not part.field and isinstance(guard, Entry):
        names = (guard.place.key,)
    for name in names:
        if part.owner.startswith("class "):
            yield str(name) if name else "bases"
        elif name in _WORDS:
            yield _WORDS[name]
        elif str(name).endswith("hooks"):
            yield "hooks"


def _is_ours(module: Any) -> bool:
    return isinstance(module, str) and module.split(".")[0] == "graphc"
