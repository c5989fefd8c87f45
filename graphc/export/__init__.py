"""torch.export: models as files that run without their code: export(model, args).save("m.gcx")."""

from __future__ import annotations

from os import PathLike
from typing import BinaryIO

from graphc.export import archive
from graphc.export.aot.library import Library, aot
from graphc.export.capture import export
from graphc.export.contents import Contents
from graphc.export.decompositions import default_decompositions
from graphc.export.dynamic_shapes import AdditionalInputs, Dim, Range, ShapesCollection, dims
from graphc.export.errors import ExportError
from graphc.export.graph_signature import ExportGraphSignature
from graphc.export.limits import Limits
from graphc.export.module import ExportedModule
from graphc.export.program import ExportedProgram
from graphc.export.steps import ExportedStep, export_step

__all__ = [
    "AdditionalInputs", "Dim", "ExportError", "ExportGraphSignature", "ExportedModule",
    "ExportedProgram", "ExportedStep", "Library", "Limits", "Range", "ShapesCollection", "aot",
    "default_decompositions", "dims", "export", "export_step", "load", "save",
]


def load(
    path: str | PathLike[str] | BinaryIO, *, limits: Limits | None = None
) -> ExportedProgram | ExportedStep:
    """The program, or the training step, in a .gcx file (its path, or a file that is open for
    reading bytes); it is compiled at its first call.

    `limits`: what its graphs may ask of this machine. Raises ExportError for a file that is damaged
    or that this graphc cannot read, or that is beyond the limits, OSError for one that cannot be
    opened. Nothing in the file is executed as Python, and no native code of it is loaded.
    """
    bounds = limits or Limits()

    def make(contents: Contents) -> ExportedProgram | ExportedStep:
        if contents.kind == "step":
            return ExportedStep(contents, bounds=bounds)
        return ExportedProgram(contents, bounds=bounds)

    return archive.opened(path, bounds, make)


def save(program: ExportedProgram | ExportedStep, path: str | PathLike[str] | BinaryIO) -> None:
    """program.save(path), as torch.export.save."""
    program.save(path)
