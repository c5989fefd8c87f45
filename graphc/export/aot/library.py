"""`aot(program, folder)`: an exported program as a library that needs libc, libm and threads alone.

What is where: described.py says what callers see, compiled.py makes the programs, the backend
objects of them, data.py those of weights, linking/ the file, header.py its header.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphc import backends
from graphc.backends.host.interface import Interface, Level, Place
from graphc.config import current
from graphc.engine import pipeline
from graphc.export.aot.compiled import code, ones_of
from graphc.export.aot.data import MOST_EMBEDDED, Data, WeightsFile
from graphc.export.aot.described import Described, described
from graphc.export.aot.header import header
from graphc.export.aot.linking import link_shared, static_archive
from graphc.export.errors import ExportError
from graphc.export.program import ExportedProgram
from graphc.export.steps import ExportedStep
from graphc.ir import dtypes
from graphc.ir.memory import on_host

_C_WORDS = frozenset("""
alignas alignof and asm auto bitand bitor bool break case catch char class compl const constexpr
continue decltype default delete do double else enum explicit export extern false float for friend
goto if inline int long mutable namespace new noexcept not nullptr operator or private protected
public register restrict return short signed sizeof static struct switch template this throw true
try typedef typeid typename union unsigned using virtual void volatile while xor
""".split())
_MOST_NAME = 64


class Library(NamedTuple):
    """The files of a library. `weights`: None where they are embedded."""

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
    """Write libNAME.so (`static`: libNAME.a) and NAME.h into the folder `out`.

    `name`: a C identifier; the model's where it is left out. `weights`: "embedded", or "file":
    NAME.safetensors beside the library, mapped when it runs. `targets`: kinds of CPU by name, of
    one architecture ("x86-64-v2", "aarch64", ...), among which the library chooses; "native" is
    this machine's. `sizes`: the largest of free sizes, where the export has none, or smaller ones.
    `freeze`: what hangs on weights alone is computed now, and laid out for the CPU; results then
    are those of compile(model), not to the bit those of program(x), and the file has such weights.
    Raises ExportError for what a library cannot do or hold, LinkError without a linker.
    """
    if weights not in ("embedded", "file"):
        raise ValueError(f'weights must be "embedded" or "file", got {weights!r}')
    program = _checked_kind(program)
    called = _checked_name(name, program)
    _refuse_writes(program)
    backend: Any = backends.get(backends.DEFAULT)
    made = _Made(program, dict(sizes or {}), weights == "file")
    interface, levels, file = _contents(program, made, called, backend, targets, freeze)
    built = backend.library_objects(interface, levels, pipeline.host(current()))
    if made.data.size > MOST_EMBEDDED:
        raise ExportError(
            f"{made.data.size / 1e9:.1f} GB of weights are too many for a library. Cure: "
            'weights="file"'
        )
    objects = [*built.objects, made.data.as_object(built.data, built.arch)]
    library = f"lib{called}.{'a' if static else 'so'}"
    linked = static_archive(objects) if static else link_shared(
        objects, built.exports, built.triple, library
    )
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    written = Library(
        folder / library, folder / f"{called}.h",
        None if file is None else folder / f"{called}.safetensors",
    )
    if written.weights is not None and file is not None:
        written.weights.write_bytes(file.content)
    written.library.write_bytes(linked)
    written.header.write_text(header(interface, library))
    return written


def _checked_kind(program: ExportedProgram | ExportedStep) -> ExportedProgram:
    """A program. Raises ExportError for a step, and for what was not exported at all."""
    if isinstance(program, ExportedStep):
        raise ExportError(
            "a training step changes its state at each call, which a library does not do. Cure: "
            "export(model.eval(), (x,))"
        )
    if not isinstance(program, ExportedProgram):
        raise ExportError(
            f"a library is made of an exported program, not of {type(program).__name__}. Cure: "
            "graphc.export.export(model, args)"
        )
    return program


def _contents(
    program: ExportedProgram, made: _Made, name: str, backend: Any, targets: Sequence[str],
    freeze: bool,
) -> tuple[Interface, list[Level], WeightsFile | None]:
    """What callers see, the programs for each kind of CPU, and what they read from a file."""
    graph, about = program.graph, made.about
    levels = [
        Level(level, tuple(
            code(program, made.arrays, about, ones, backend.at(level), current(),
                 freeze, made.stored, made.data)
            for ones in ones_of(graph, about)
        ))
        for level in backend.levels(targets)
    ]
    interface = Interface(name, about.inputs, about.outputs, about.results, about.sizes)
    file = made.file()
    if file is None:
        return interface, levels, None
    results = tuple(
        each._replace(place=made.real(each.place, file)) for each in interface.results
    )
    interface = interface._replace(
        results=results, file=file.head, file_bytes=len(file.content)
    )
    return interface, [made.placed(level, file) for level in levels], file


def _checked_name(name: str | None, program: ExportedProgram) -> str:
    if name is None:
        name = re.sub(r"\W", "_", program.graph.name, flags=re.ASCII).strip("_").lower()
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


def _refuse_writes(program: ExportedProgram) -> None:
    for variant in program.variants:
        for write in variant.signature.writes:
            what = write.get("weight", "an argument")
            raise ExportError(
                f"the program writes to {what}, which a library's calls do not: it was exported in "
                "train mode. Cure: export(model.eval(), args)"
            )


class _Made:
    """The weights of a library, and where they lie: in the data, or, at first by number, in the
    file, whose places are known when all are."""

    def __init__(
        self, program: ExportedProgram, sizes: dict[str, Any], in_file: bool
    ) -> None:
        self.arrays = {
            name: np.asarray(on_host(tensor._graphc_array), order="C")
            for name, tensor in program._weights.items()
        }
        self.data = Data()
        self._in_file = in_file
        self._numbers: dict[bytes, int] = {}
        self._file: dict[str, np.ndarray] = {}
        self.about: Described = described(
            program.graph, program.signature, sizes, self._described
        )

    def _described(self, name: str) -> tuple[dtypes.DType, tuple[int, ...], Place]:
        array = self.arrays[name]
        return dtypes.from_numpy(array.dtype), array.shape, self.stored(name, array)

    def stored(self, name: str, array: np.ndarray) -> Place:
        """Where a weight lies; in the file, equal ones lie once, under the first one's name."""
        if not self._in_file:
            return self.data.add(array)
        key = repr((array.dtype, array.shape)).encode() + array.tobytes()
        number = self._numbers.setdefault(key, len(self._numbers))
        if number == len(self._file):
            taken = name in self._file
            self._file[f"{name}.{number}" if taken else name] = array
        return Place(False, number)

    def file(self) -> WeightsFile | None:
        """All that was stored there."""
        return WeightsFile(self._file) if self._in_file else None

    def real(self, place: Place | None, file: WeightsFile) -> Place | None:
        """A place by its number as one by bytes."""
        if place is None or place.embedded:
            return place
        return file.places[list(self._file)[place.offset]]

    def placed(self, level: Level, file: WeightsFile) -> Level:
        """A level with the file's places."""
        codes = [
            each._replace(inputs=tuple(
                self.real(source, file) if isinstance(source, Place) else source
                for source in each.inputs
            )) for each in level.codes
        ]
        return level._replace(codes=tuple(codes))
