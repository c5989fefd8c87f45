"""`aot(program, folder)`: an exported program as a library that needs libc, libm and threads alone,
or as WebAssembly, which needs nothing.

What is where: described.py says what callers see, programs.py and steps.py what a library is made
of, compiled.py makes the programs, the backend objects of them, stock.py and data.py those of
weights, linking/ the file, header.py its header.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from graphc import backends
from graphc.config import current
from graphc.engine import pipeline
from graphc.export import files
from graphc.export.aot.data import MOST_EMBEDDED
from graphc.export.aot.header import header
from graphc.export.aot.linking import link_shared, link_wasm, static_archive
from graphc.export.aot.programs import ProgramLibrary
from graphc.export.aot.steps import StepLibrary
from graphc.export.aot.stock import Stock
from graphc.export.aot.web.script import script
from graphc.export.errors import ExportError
from graphc.export.program import ExportedProgram
from graphc.export.steps import ExportedStep

_C_WORDS = frozenset("""
alignas alignof and asm auto bitand bitor bool break case catch char class compl const constexpr
continue decltype default delete do double else enum explicit export extern false float for friend
goto if inline int long mutable namespace new noexcept not nullptr operator or private protected
public register restrict return short signed sizeof static struct switch template this throw true
try typedef typeid typename union unsigned using virtual void volatile while xor
""".split())
_MOST_NAME = 64


class Library(NamedTuple):
    """The files of a library. `header`: for WebAssembly the script that loads it; `weights`: None
    where they are embedded."""

    library: Path
    header: Path
    weights: Path | None


def aot(
    program: ExportedProgram | ExportedStep,
    out: str | os.PathLike[str],
    *,
    name: str | None = None,
    weights: str = "embedded",
    static: bool = False,
    targets: Sequence[str] = ("native",),
    sizes: Mapping[str, int | tuple[int, int]] | None = None,
    freeze: bool = True,
) -> Library:
    """Write libNAME.so (`static`: libNAME.a) and NAME.h into the folder `out`. A training step's
    library has the state as it is now, of which each context changes its own.

    `name`: a C identifier; the model's where it is left out. `weights`: "embedded", or "file":
    NAME.safetensors beside the library, mapped when it runs. `targets`: kinds of CPU by name, of
    one architecture ("x86-64-v2", "aarch64", ...), among which the library chooses; "native" is
    this machine's; "wasm32" writes NAME.wasm, which imports nothing, and NAME.mjs, which loads it.
    `sizes`: the largest of free sizes, where the export has none, or smaller ones.
    `freeze`: what hangs on weights alone (of a step: nothing) is computed now, and laid out for the
    CPU; results then are those of compile(model), not to the bit those of program(x), and the file
    has such weights.
    Raises ExportError for what a library cannot do or hold, LinkError without a linker.
    """
    if weights not in ("embedded", "file"):
        raise ValueError(f'weights must be "embedded" or "file", got {weights!r}')
    _check_kind(program)
    called = _checked_name(name, program.graph.name)
    backend: Any = backends.get(backends.DEFAULT)
    wanted = backend.levels(targets)
    if static and "wasm32" in wanted:
        raise ValueError("static=True is for C programs. Cure: leave it out for wasm32")
    stock = Stock(weights == "file")
    made: StepLibrary | ProgramLibrary
    if isinstance(program, ExportedStep):
        made = StepLibrary(program, stock, dict(sizes or {}))
    else:
        made = ProgramLibrary(program, stock, dict(sizes or {}), freeze)
    levels = [made.level(level, backend.at(level)) for level in wanted]
    interface, file = made.interface(called), stock.file()
    if file is not None:
        interface = stock.interface(interface, file)
        levels = [stock.level(level, file) for level in levels]
    built = backend.library_objects(interface, levels, pipeline.host(current()))
    if stock.data.size > MOST_EMBEDDED:
        raise ExportError(
            f"{stock.data.size / 1e9:.1f} GB of weights are too many for a library. Cure: "
            'weights="file"'
        )
    objects = [*built.objects, stock.data.as_object(built.data, built.arch)]
    beside = None if file is None else f"{called}.safetensors"
    web = built.arch == "wasm32"
    library = f"{called}.wasm" if web else f"lib{called}.{'a' if static else 'so'}"
    if web:
        linked, spoken = link_wasm(objects, built.exports), script(interface, library, beside)
    else:
        linked = static_archive(objects) if static else link_shared(
            objects, built.exports, built.triple, library
        )
        spoken = header(interface, library)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    written = Library(
        folder / library, folder / f"{called}.{'mjs' if web else 'h'}",
        None if beside is None else folder / beside,
    )
    if written.weights is not None and file is not None:
        files.write(written.weights, file.content)
    files.write(written.library, linked)
    files.write(written.header, spoken.encode())
    return written


def _check_kind(program: ExportedProgram | ExportedStep) -> None:
    """Raises ExportError for what was not exported."""
    if not isinstance(program, ExportedProgram | ExportedStep):
        raise ExportError(
            f"a library is made of an exported program, not of {type(program).__name__}. Cure: "
            "graphc.export.export(model, args)"
        )


def _checked_name(name: str | None, own: str) -> str:
    if name is None:
        name = re.sub(r"\W", "_", own, flags=re.ASCII).strip("_").lower()
        name = f"model_{name}" if not name or name[0].isdigit() or name in _C_WORDS else name
        name = name[:_MOST_NAME]
    if not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_]*", name, flags=re.ASCII) or name in _C_WORDS or (
        len(name) > _MOST_NAME or name.lower().startswith("graphc")
    ):
        raise ValueError(
            f"{name!r} cannot begin C functions' names. Cure: name= of up to {_MOST_NAME} letters, "
            "digits and underscores, a letter first, no word of C or C++, not graphc"
        )
    return name


