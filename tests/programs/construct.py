"""Constructs: the parts that programs are made of, written as text.

    == name
    T a line at the top of the module
    S H = None || 0.0       a place of the program's state, and what it may start as; read as @H
    A n = 1 || 2 || 2.5     an argument, and the values that calls draw from
    B a line in the function; `acc` is the running tensor of shape [3], `x` the argument
    B of shape [rows, 3], `out` the list of further results
    C a change between calls; lines below it that start with a small c belong to it

`$` is a number that no other construct of the program has; @{a || b}@ is one of these texts.
Places are called H, K, M or N.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import NamedTuple

_CHOICE = re.compile(r"@\{(.*?)\}@")


@dataclass(frozen=True)
class Construct:
    """One block of the text; `family` is the file's topic."""

    family: str
    name: str
    top: tuple[str, ...]
    state: tuple[tuple[str, str], ...]
    arguments: tuple[tuple[str, str], ...]
    body: tuple[str, ...]
    changes: tuple[str, ...]


class Slot(NamedTuple):
    """A place of the state: its variable's name, where it lives, what it starts as."""

    name: str
    kind: str
    initial: str


@dataclass(frozen=True)
class Piece:
    """A construct as it was drawn: no choices are left, only places and the shape to render."""

    construct: str
    index: int
    top: str
    slots: tuple[tuple[str, Slot], ...]
    arguments: tuple[tuple[str, tuple[str, ...]], ...]
    body: str
    changes: tuple[str, ...]
    shape: str = "inline"


def parse(family: str, text: str) -> list[Construct]:
    """The blocks of a text."""
    found = []
    for block in re.split(r"^== ", text, flags=re.M)[1:]:
        name, *lines = block.rstrip().split("\n")
        parts: dict[str, list[str]] = {letter: [] for letter in "TSABC"}
        for line in filter(None, lines):
            letter, rest = line[0], line[2:]
            if letter == "c":
                parts["C"][-1] += "\n" + rest
            else:
                parts[letter].append(rest)
        found.append(Construct(
            family, name.strip(), tuple(parts["T"]), tuple(map(_named, parts["S"])),
            tuple(map(_named, parts["A"])), tuple(parts["B"]), tuple(parts["C"]),
        ))
    return found


def _named(line: str) -> tuple[str, str]:
    name, _, value = line.partition(" = ")
    return name, value


def draw(construct: Construct, index: int, kinds: tuple[str, ...], rng: random.Random) -> Piece:
    """Make the choices of a construct; `kinds` are the places that state may live in."""

    def settle(text: str) -> str:
        text = _CHOICE.sub(lambda found: rng.choice(found[1].split("||")).strip(), text)
        return text.replace("$", str(index))

    slots = []
    for name, values in construct.state:
        initial = settle(rng.choice(values.split(" || ")).strip())
        slots.append((name, Slot(f"{name.lower()}{index}", rng.choice(kinds), initial)))
    arguments = [
        (settle(name), tuple(settle(value.strip()) for value in values.split(" || ")))
        for name, values in construct.arguments
    ]
    return Piece(
        construct.name, index, settle("\n".join(construct.top)), tuple(slots), tuple(arguments),
        settle("\n".join(construct.body)), tuple(settle(change) for change in construct.changes),
    )
