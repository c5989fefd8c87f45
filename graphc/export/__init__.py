"""torch.export: models as files that run without their code: export(model, args).save("m.gcx")."""

from __future__ import annotations

from os import PathLike

from graphc.export import archive
from graphc.export.aot.library import Library, aot
from graphc.export.capture import export
from graphc.export.dynamic import Dim
from graphc.export.errors import ExportError
from graphc.export.program import ExportedModule, ExportedProgram

__all__ = [
    "Dim", "ExportError", "ExportedModule", "ExportedProgram", "Library", "aot", "export", "load",
    "save",
]


def load(path: str | PathLike[str]) -> ExportedProgram:
    """The program in a .gcx file; it is compiled at its first call.

    Raises ExportError for a file that is damaged or that this graphc cannot read, OSError for one
    that cannot be opened. Nothing in the file is executed as Python.
    """
    found = archive.read(path)
    return ExportedProgram(found.graph, found.signature, found.weights)


def save(program: ExportedProgram, path: str | PathLike[str]) -> None:
    """program.save(path), as torch.export.save."""
    program.save(path)
