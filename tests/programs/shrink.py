"""Make a failing program small: fewer constructs, steps, statements; a plainer form."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.programs.construct import Piece
from tests.programs.program import Call, Change, Program

Fails = Callable[[Program], bool]


def shrink(program: Program, fails: Fails, seconds: float = 20.0) -> Program:
    """The smallest program found for which `fails` still says so, within about `seconds`."""
    deadline = time.monotonic() + seconds
    progress = True
    while progress and time.monotonic() < deadline:
        progress = False
        for step in (_fewer_pieces, _fewer_steps, _plainer, _fewer_statements, _fewer_slots):
            better = True
            while better:
                program, better = _first(program, step, fails, deadline)
                progress = progress or better
    return program


def _first(
    program: Program, step: Callable[[Program], Iterator[Program]], fails: Fails, deadline: float
) -> tuple[Program, bool]:
    """The first candidate of a step that still fails."""
    for candidate in step(program):
        if time.monotonic() > deadline:
            break
        try:
            if fails(candidate):
                return candidate, True
        except Exception:  # a candidate that is no program
            continue
    return program, False


def _fewer_pieces(program: Program) -> Iterator[Program]:
    if len(program.pieces) > 1:
        for piece in program.pieces:
            rest = tuple(p for p in program.pieces if p is not piece)
            yield replace(program, pieces=rest, script=tuple(program.steps()))


def _fewer_steps(program: Program) -> Iterator[Program]:
    steps = program.steps()
    if len(steps) > 3:
        yield replace(program, script=tuple(steps[: len(steps) * 2 // 3]))
    for i in reversed(range(len(steps))):
        yield replace(program, script=tuple(steps[:i] + steps[i + 1 :]))


def _plainer(program: Program) -> Iterator[Program]:
    """A function that gives the tensor; no shapes; the same arguments at every call."""
    if program.form != "function":
        pieces = tuple(_without(p, ("self", "nonlocal")) for p in program.pieces)
        yield replace(program, form="function", pieces=pieces)
    if program.result != "tensor":
        yield replace(program, result="tensor")
        if program.result != "pair":
            yield replace(program, result="pair")
    for i, piece in enumerate(program.pieces):
        for plain in (replace(piece, shape="inline"), _without(piece, None)):
            if plain != piece:
                yield _with_piece(program, i, plain)
    calls = [s for s in program.steps() if isinstance(s, Call)]
    for call in calls:
        for plainer in (replace(calls[0], mode=""), replace(call, x="data(3, 0)"),
                        replace(call, mode="")):
            if plainer != call:
                script = [plainer if s == call else s for s in program.steps()]
                yield replace(program, script=tuple(script))


def _without(piece: Piece, kinds: tuple[str, ...] | None) -> Piece:
    """A piece whose state of these kinds is global."""
    slots = tuple(
        (name, slot._replace(kind="global") if kinds is None or slot.kind in kinds else slot)
        for name, slot in piece.slots
    )
    return replace(piece, slots=slots)


def _with_piece(program: Program, index: int, piece: Piece) -> Program:
    pieces = list(program.pieces)
    pieces[index] = piece
    return replace(program, pieces=tuple(pieces))


def _fewer_statements(program: Program) -> Iterator[Program]:
    for i, piece in enumerate(program.pieces):
        for body in _shorter(re.sub(r"@([HKMN])\b", r"STATE_\1", piece.body)):
            yield _with_piece(program, i, replace(piece, body=body.replace("STATE_", "@")))
        for top in _shorter(piece.top):
            yield _with_piece(program, i, replace(piece, top=top))


def _shorter(text: str) -> Iterator[str]:
    """The text without one of its statements, or with a block's body in the block's place."""
    tree = ast.parse(text)
    lines = text.split("\n")
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt):
            continue
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))]) - 1
        rest = lines[:first] + lines[node.end_lineno :]
        yield "\n".join(rest)
        if isinstance(node, (ast.If, ast.For, ast.While, ast.With, ast.Try)):
            start, end = node.body[0].lineno - 1, node.body[-1].end_lineno
            depth = node.body[0].col_offset - node.col_offset
            kept = [line[depth:] for line in lines[start:end]]
            yield "\n".join(lines[:first] + kept + lines[node.end_lineno :])


def _fewer_slots(program: Program) -> Iterator[Program]:
    """Without the arguments and places that nothing uses any more."""
    for i, piece in enumerate(program.pieces):
        for entry in piece.arguments:
            rest = tuple(a for a in piece.arguments if a is not entry)
            yield _with_piece(program, i, replace(piece, arguments=rest))
        for slot in piece.slots:
            kept = tuple(s for s in piece.slots if s is not slot)
            yield _with_piece(program, i, replace(piece, slots=kept))


def size(program: Program) -> int:
    """How long a program is, to say how much smaller it became."""
    changes = sum(isinstance(s, Change) for s in program.steps())
    return len(program.source().splitlines()) + changes
