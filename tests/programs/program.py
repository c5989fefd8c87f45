"""A program: pieces, a form of entry, a script of calls and changes; and its source text."""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass

from tests.programs.construct import Piece, Slot

FORMS = ("function", "closure", "method", "decorated", "module", "callable", "partial", "lambda")
KINDS = ("global", "attribute", "item", "class", "list", "slots", "aid", "self", "nonlocal")
RESULTS = {
    "tensor": "acc",
    "pair": "acc, out",
    "dict": '{"y": acc, "out": out}',
    "list": "[*out, acc]",
    "named": "Named(acc, out)",
    "object": "Fields(acc, out)",
}

PRELUDE = """\
import abc, array, collections, contextlib, contextvars, copy, ctypes, dataclasses, datetime
import decimal, enum, fractions, functools, io, itertools, json, logging, math, numbers, operator
import os, pathlib, random, re, string, struct, sys, threading, time, types, uuid, warnings, weakref
import numpy as np
import aid, aid.sub

Named = collections.namedtuple("Named", "y out")


@dataclasses.dataclass
class Fields:
    y: object
    out: object = None


class Box:
    pass


class Slots:
    __slots__ = tuple(f"{a}{i}" for a in "hkmn" for i in range(6))


box, slot, store, cells = Box(), Slots(), {}, [None] * 24


def data(rows, seed):
    values = [[((seed * 7 + i * 3 + j * 5) % 11 - 5) * 0.5 for j in range(3)] for i in range(rows)]
    return torch.tensor(values)


def row(seed):
    return data(1, seed)[0]

"""


@dataclass(frozen=True)
class Call:
    """One call: x, the pieces' arguments by name, and a mode it is made in."""

    x: str
    arguments: tuple[tuple[str, str], ...]
    mode: str = ""


@dataclass(frozen=True)
class Change:
    """Code that runs between two calls, of the piece with this index."""

    piece: int
    text: str


@dataclass(frozen=True)
class Program:
    """What generate() draws and shrink() makes smaller."""

    seed: int
    form: str
    result: str
    pieces: tuple[Piece, ...]
    script: tuple[Call | Change, ...]

    def source(self) -> str:
        """The module's text."""
        return PRELUDE + _Renderer(self).text()

    def steps(self) -> list[Call | Change]:
        """The script without changes of pieces that are gone."""
        kept = {piece.index for piece in self.pieces}
        return [s for s in self.script if isinstance(s, Call) or s.piece in kept]


class _Renderer:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.closure = program.form == "closure"
        self.owned = program.form in ("method", "decorated", "module", "callable")

    def text(self) -> str:
        lines = [piece.top for piece in self.program.pieces if piece.top]
        lines += self._initial()
        owner = self._owner()
        inner: list[str] = []
        for piece in self.program.pieces:
            if piece.shape in ("helper", "generator"):
                inner.append(self._part(piece))
        if not self.owned:
            inner.append(self._function("entry", ""))
        inner += [self._change(i, s) for i, s in enumerate(self.program.steps())
                  if isinstance(s, Change)]
        if self.closure:
            lines += [owner] if owner else []
            lines.append(self._factory(inner))
        else:
            lines += inner
            lines += [owner] if owner else []
        lines += [self._compiled(), self._script()]
        return "\n\n".join(lines) + "\n"

    # --- places ------------------------------------------------------------------------------

    def _place(self, slot: Slot, inside: bool) -> str:
        if slot.kind == "nonlocal":
            return slot.name
        if slot.kind == "self":
            return f"self.{slot.name}" if inside else f"owner.{slot.name}"
        number = int(re.findall(r"\d+$", slot.name)[0])
        return {
            "global": slot.name, "attribute": f"box.{slot.name}", "class": f"Box.{slot.name}",
            "item": f'store["{slot.name}"]', "slots": f"slot.{slot.name}",
            "list": f"cells[{number * 4 + 'hkmn'.index(slot.name[0])}]", "aid": f"aid.{slot.name}",
        }[slot.kind]

    def _with_places(self, text: str, piece: Piece, inside: bool = False) -> str:
        for name, slot in piece.slots:
            text = re.sub(rf"@{name}\b", self._place(slot, inside), text)
        return text

    def _slots(self, *kinds: str) -> list[Slot]:
        return [s for p in self.program.pieces for _, s in p.slots if s.kind in kinds]

    def _outer(self) -> tuple[str, ...]:
        """Kinds whose places are variables at the top of the module."""
        return ("global",) if self.closure else ("global", "nonlocal")

    def _initial(self) -> list[str]:
        skipped = ("self", "nonlocal") if self.closure else ("self",)
        lines = []
        for piece in self.program.pieces:
            for _, slot in piece.slots:
                if slot.kind not in skipped:
                    lines.append(f"{self._place(slot, False)} = {slot.initial}")
        return ["\n".join(lines)] if lines else []

    def _declared(self, text: str) -> list[str]:
        """The global and nonlocal statements that a function with this body needs."""
        stored = _stored(text)
        lines = []
        names = {s.name for s in self._slots(*self._outer())}
        for piece in self.program.pieces:
            names |= _stored(piece.top)
        outer = sorted(stored & names)
        if outer:
            lines.append("global " + ", ".join(outer))
        cells = sorted(stored & {s.name for s in self._slots("nonlocal")}) if self.closure else []
        if cells:
            lines.append("nonlocal " + ", ".join(cells))
        return lines

    # --- functions ---------------------------------------------------------------------------

    def _names(self, piece: Piece) -> str:
        names = [name for name, _ in piece.arguments]
        return ", ".join(["acc", "out", "x", *names])

    def _body(self, piece: Piece, inside: bool) -> str:
        text = self._with_places(piece.body, piece, inside)
        if piece.shape == "loop":
            return "for _ in range(2):\n" + _indent(text)
        if piece.shape == "no_grad":
            return "with torch.no_grad():\n" + _indent(text)
        if piece.shape == "flag":
            return f"if flag{piece.index}:\n" + _indent(text)
        if piece.shape == "try":
            return f"try:\n{_indent(text)}\nfinally:\n    out.append({piece.index})"
        return text

    def _part(self, piece: Piece, method: bool = False) -> str:
        text = self._with_places(piece.body, piece, method)
        ending = "yield acc" if piece.shape == "generator" else "return acc"
        lines = [*self._declared(text), text, ending]
        names = ("self, " if method else "") + self._names(piece)
        return f"def part{piece.index}({names}):\n" + _indent("\n".join(lines))

    def _use(self, piece: Piece, inside: bool) -> str:
        names = self._names(piece)
        if piece.shape == "helper":
            return f"acc = part{piece.index}({names})"
        if piece.shape == "generator":
            return f"for acc in part{piece.index}({names}):\n    pass"
        if piece.shape == "method":
            holder = "self" if inside else "owner"
            return f"acc = {holder}.part{piece.index}({names})"
        if piece.shape == "nested":
            text = self._with_places(piece.body, piece, inside)
            lines = "\n".join([*self._declared(text), text, "return acc"])
            return f"def part{piece.index}({names}):\n{_indent(lines)}\n\n" + (
                f"acc = part{piece.index}({names})"
            )
        return self._body(piece, inside)

    def arguments(self) -> list[str]:
        names = []
        for piece in self.program.pieces:
            names += [name for name, _ in piece.arguments]
            names += [f"flag{piece.index}"] if piece.shape == "flag" else []
        return names

    def _function(self, name: str, first: str) -> str:
        inside = bool(first)
        parts = [self._use(piece, inside) for piece in self.program.pieces]
        inline = "\n".join(
            p for p, piece in zip(parts, self.program.pieces, strict=True)
            if piece.shape != "nested"
        )
        body = [*self._declared(inline), "out = []", "acc = x.sum(0)", *parts]
        body.append("return " + RESULTS[self.program.result])
        names = ", ".join([*([first] if first else []), "x", *self.arguments()])
        return f"def {name}({names}):\n" + _indent("\n".join(body))

    def _owner(self) -> str:
        slots = self._slots("self")
        methods = [p for p in self.program.pieces if p.shape == "method"]
        if not (self.owned or slots or methods):
            return ""
        form = self.program.form
        base = "nn.Module" if form == "module" else ""
        lines = ["super().__init__()"] + [f"self.{s.name} = {s.initial}" for s in slots]
        members = ["def __init__(self):\n" + _indent("\n".join(lines))]
        members += [self._part(piece, method=True) for piece in methods]
        if self.owned:
            name = {"module": "forward", "callable": "__call__"}.get(form, "run")
            mark = "@compile\n" if form == "decorated" else ""
            members.append(mark + self._function(name, "self"))
        inner = _indent("\n\n".join(members))
        return f"class Owner({base}):\n{inner}\n\n\nowner = Owner()"

    def _change(self, number: int, change: Change) -> str:
        piece = next(p for p in self.program.pieces if p.index == change.piece)
        text = self._with_places(change.text, piece)
        stored = _stored(text)
        cells = {s.name for s in self._slots("nonlocal")} if self.closure else set()
        cells |= {f"part{p.index}" for p in self.program.pieces
                  if self.closure and p.shape in ("helper", "generator")}
        lines = [f"nonlocal {name}" for name in sorted(stored & cells)]
        lines += [f"global {name}" for name in sorted(stored - cells)]
        return f"def change_{number}():\n" + _indent("\n".join([*lines, text]))

    def _factory(self, inner: list[str]) -> str:
        lines = [f"{s.name} = {s.initial}" for s in self._slots("nonlocal")]
        body = "\n".join(lines) + "\n\n" + "\n\n".join(inner) + "\n\nreturn locals()"
        return f"def make():\n{_indent(body)}\n\n\nmade = make()"

    # --- the script --------------------------------------------------------------------------

    def _compiled(self) -> str:
        form = self.program.form
        if form == "closure":
            return 'entry = compile(made["entry"])'
        if form == "method":
            return "entry = compile(owner.run)"
        if form == "decorated":
            return "entry = owner.run"
        if form == "partial":
            return "entry = compile(functools.partial(entry))"
        if form == "lambda":
            return "plain_entry = entry\nentry = compile(lambda *a: plain_entry(*a))"
        return "entry = compile(owner)" if self.owned else "entry = compile(entry)"

    def _script(self) -> str:
        lines = []
        names = self.arguments()
        for i, step in enumerate(self.program.steps()):
            if isinstance(step, Change):
                found = f'made["change_{i}"]' if self.closure else f"change_{i}"
                lines.append(f'    ("change", {found}),')
            else:
                values = dict(step.arguments)
                given = ", ".join([step.x, *(values[name] for name in names)])
                lines.append(f'    ("call", lambda: ({given},), "{step.mode}"),')
        return "script = [\n" + "\n".join(lines) + "\n]"


def _indent(text: str) -> str:
    return textwrap.indent(text, "    ")


def _stored(text: str) -> set[str]:
    """The names that code binds, not those of functions inside it."""
    found: set[str] = set()
    stack: list[ast.AST] = [ast.parse(text)]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            found.add(node.id)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif not isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp,
                                   ast.GeneratorExp)):
            stack.extend(ast.iter_child_nodes(node))
    return found
