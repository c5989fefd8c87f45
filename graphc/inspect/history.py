"""The versions of a function: what each was compiled for, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from graphc.engine.capture.reached import argument_names
from graphc.engine.version.guards_of_calls import MODES
from graphc.frontend.captured import TensorInput
from graphc.frontend.tree import Structure
from graphc.inspect.recompiled import arguments_said, differences
from graphc.inspect.report import without_folder

if TYPE_CHECKING:
    from graphc.engine.version.version import Specialisation

FIRST = "the first call"


class Compiled(NamedTuple):
    """A version. `arguments`: what kinds of arguments it is for; `why`: what made the earlier ones
    unfit; `explained`: whether it is the one that is shown."""

    number: int
    arguments: tuple[str, ...]
    why: tuple[str, ...]
    calls: int
    seconds: float
    explained: bool


def history_of(
    function: Any, versions: Iterable[Specialisation], shown: Specialisation | None
) -> list[Compiled]:
    """Those that are there, in the order in which they were compiled."""
    found: list[Compiled] = []
    before: list[Any] = []
    for version in versions:
        origin = version.origin
        structure = origin.key[0]
        names = _names(function, structure)
        now = origin.key, origin.shapes
        said = arguments_said((origin.key, _sizes(version)), names)
        why = tuple(without_folder(reason) for reason in dict.fromkeys(origin.reasons))
        found.append(Compiled(
            origin.number, tuple(said),
            why or tuple(_why(before, now, names)), version.calls, version.compile_seconds,
            version is shown,
        ))
        before.append(now)
    return found


def _sizes(version: Specialisation) -> list[tuple[Any, ...]]:
    """The shapes of the tensors among the arguments, with the names of sizes that may be any."""
    parts = version.origin.key[len(MODES) :]
    tensors = [i for i, part in enumerate(parts) if isinstance(part, tuple) and len(part) > 2]
    found = dict(zip(tensors, version.origin.shapes, strict=True))
    for source in version.inputs:
        if isinstance(source, TensorInput) and source.kind == "argument" and source.index in found:
            found[source.index] = source.type.shape
    return list(found.values())


def _names(function: Any, structure: Structure) -> Sequence[str]:
    """Those of the arguments; of none where the signature does not tell."""
    positional, named = structure.children
    args = (None,) * len(positional.children)
    try:
        return argument_names(function, args, dict.fromkeys(named.keys), structure)
    except (TypeError, ValueError):
        return ()


def _why(before: list[Any], now: Any, names: Sequence[str]) -> Iterable[str]:
    """How it differs from the earlier version that is most like it."""
    if not before:
        return (FIRST,)
    alike = [each for each in before if each[0][0] == now[0][0]] or before
    found = min((list(differences(each, now, names)) for each in reversed(alike)), key=len)
    return found or ("state that it relies on has changed",)
