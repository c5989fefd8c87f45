"""A random program for each seed."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.programs import (
    constructs_attributes,
    constructs_code,
    constructs_containers,
    constructs_deep,
    constructs_functions,
    constructs_late,
    constructs_numbers,
    constructs_numpy,
    constructs_objects,
    constructs_opaque,
    constructs_open,
    constructs_outside,
    constructs_results,
    constructs_rules,
    constructs_state,
    constructs_tables,
    constructs_training,
)
from tests.programs.construct import Construct, Piece, draw, parse
from tests.programs.program import FORMS, KINDS, RESULTS, Call, Change, Program

FAMILIES = {
    "attributes": constructs_attributes.TEXT + constructs_late.TEXT,
    "code": constructs_code.TEXT,
    "containers": constructs_containers.TEXT + constructs_deep.TEXT,
    "functions": constructs_functions.TEXT,
    "numbers": constructs_numbers.TEXT,
    "opaque": constructs_opaque.TEXT,
    "outside": constructs_outside.TEXT,
    "results": constructs_results.TEXT,
    "state": constructs_state.TEXT,
    "tables": constructs_tables.TEXT + constructs_numpy.TEXT + constructs_objects.TEXT
    + constructs_rules.TEXT,
    "training": constructs_training.TEXT,
}
CONSTRUCTS: dict[str, Construct] = {
    construct.name: construct
    for family, text in FAMILIES.items() for construct in parse(family, text)
}

# judged each by itself, and not drawn
OPEN: dict[str, Construct] = {c.name: c for c in parse("open", constructs_open.TEXT)}

SHAPES = ("helper", "method", "nested", "loop", "no_grad", "flag", "generator", "try")


def generate(seed: int) -> Program:
    """The program of a seed: two to five constructs, four to eight calls."""
    rng = random.Random(seed)
    form = rng.choice(FORMS) if rng.random() < 0.7 else "function"
    kinds = tuple(k for k in KINDS if k != "self" or form in ("method", "module", "decorated"))
    names = [rng.choice(_names(rng)) for _ in range(rng.choice((2, 2, 2, 3, 3, 4, 5)))]
    pieces = []
    for index, name in enumerate(dict.fromkeys(names)):
        piece = draw(CONSTRUCTS[name], index, kinds, rng)
        pieces.append(_shaped(piece, form, rng))
    result = rng.choice(tuple(RESULTS)) if rng.random() < 0.5 else "pair"
    script = _script(pieces, rng)
    return Program(seed, form, result, tuple(pieces), tuple(script))


def alone(name: str) -> Program:
    """A program of one construct, with each of its changes in turn, then its other arguments.

    All is called twice: what a version does is seen when it runs again.
    """
    piece = draw((CONSTRUCTS | OPEN)[name], 0, ("global",), random.Random(0))
    given = tuple((argument, values[0]) for argument, values in piece.arguments)
    script: list[Call | Change] = [Call("data(3, 1)", given), Call("data(3, 3)", given)]
    for change in piece.changes:
        script += [Change(0, change), Call("data(3, 2)", given), Call("data(3, 4)", given)]
    for number in range(1, max([len(values) for _, values in piece.arguments], default=0)):
        other = tuple((name, values[number % len(values)]) for name, values in piece.arguments)
        script += [Call("data(3, 2)", other), Call("data(3, 5)", other)]
    return Program(0, "function", "pair", (piece,), tuple(script))


def _names(rng: random.Random) -> list[str]:
    """The constructs of one family: families are drawn alike, however many they have."""
    family = rng.choice(tuple(FAMILIES))
    return [c.name for c in CONSTRUCTS.values() if c.family == family]


def _shaped(piece: Piece, form: str, rng: random.Random) -> Piece:
    """A piece moved into a function, a loop, a with or an if, or left where it is."""
    if rng.random() < 0.55:
        return piece
    shape = rng.choice(SHAPES)
    if shape in ("helper", "generator") and any(s.kind == "self" for _, s in piece.slots):
        shape = "method"
    if shape == "method" and form == "closure":
        shape = "helper"
    changes = list(piece.changes)
    names = ", ".join(["acc", "out", "x", *(name for name, _ in piece.arguments)])
    if shape == "helper":
        changes.append(f"part{piece.index} = lambda {names}: acc + 3")
        if form != "closure":
            changes.append(f"part{piece.index}.__code__ = (lambda {names}: acc * 3).__code__")
    elif shape == "method":
        changes.append(f"Owner.part{piece.index} = lambda self, {names}: acc - 2")
        if form != "module":
            changes.append(f"owner.part{piece.index} = lambda {names}: acc - 4")
    return replace(piece, shape=shape, changes=tuple(changes))


# --- the script ------------------------------------------------------------------------------


def _script(pieces: list[Piece], rng: random.Random) -> list[Call | Change]:
    values = {name: list(given) for piece in pieces for name, given in piece.arguments}
    values |= {f"flag{p.index}": ["True", "False"] for p in pieces if p.shape == "flag"}
    changes = [(piece.index, text) for piece in pieces for text in piece.changes]
    now = {name: given[0] for name, given in values.items()}
    varying = rng.random() < 0.3
    graded = rng.random() < 0.2
    moded = rng.random() < 0.15
    steps: list[Call | Change] = []
    for number in range(rng.randint(4, 8)):
        for name, given in values.items():
            if rng.random() < 0.4:
                now[name] = rng.choice(given)
        if number and changes:
            for _ in range(rng.choice((0, 0, 1, 1, 2))):
                index, text = rng.choice(changes)
                steps.append(Change(index, text))
        rows = rng.choice((1, 2, 4, 5)) if varying and rng.random() < 0.6 else 3
        x = f"data({rows}, {rng.randint(0, 5)})"
        if graded and rng.random() < 0.5:
            x += ".requires_grad_()"
        mode = rng.choice(("no_grad", "enable_grad", "")) if moded else ""
        steps.append(Call(x, tuple(now.items()), mode))
    return steps
