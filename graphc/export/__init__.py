"""torch.export: models as files that run without their code: export(model, args).save("m.gcx")."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, overload

from graphc.ir.late import late

from ..on_demand import on_demand

if TYPE_CHECKING:
    from .aot.library import Library as Library
    from .aot.library import aot as aot
    from .capture import export as export
    from .contents import Contents
    from .decompositions import default_decompositions as default_decompositions
    from .draft import DraftExportReport as DraftExportReport
    from .draft import draft_export as draft_export
    from .dynamic_shapes import AdditionalInputs as AdditionalInputs
    from .dynamic_shapes import Dim as Dim
    from .dynamic_shapes import Range as Range
    from .dynamic_shapes import ShapesCollection as ShapesCollection
    from .dynamic_shapes import dims as dims
    from .errors import ExportError as ExportError
    from .graph_signature import ExportGraphSignature as ExportGraphSignature
    from .limits import Limits as Limits
    from .module import ExportedModule as ExportedModule
    from .native.model import NativeModel as NativeModel
    from .native.model import load_library as load_library
    from .native.program import NativeProgram as NativeProgram
    from .program import ExportedProgram as ExportedProgram
    from .registered import register_dataclass as register_dataclass
    from .steps import ExportedStep as ExportedStep
    from .steps import export_step as export_step
    from .unflattened import UnflattenedModule as UnflattenedModule
    from .unflattened import unflatten as unflatten

_NAMES = {
    "aot.library": "Library aot",
    "capture": "export",
    "contents": "Contents",
    "decompositions": "default_decompositions",
    "draft": "DraftExportReport draft_export",
    "dynamic_shapes": "AdditionalInputs Dim Range ShapesCollection dims",
    "errors": "ExportError",
    "graph_signature": "ExportGraphSignature",
    "limits": "Limits",
    "module": "ExportedModule",
    "native.model": "NativeModel load_library",
    "native.program": "NativeProgram",
    "program": "ExportedProgram",
    "registered": "register_dataclass",
    "steps": "ExportedStep export_step",
    "unflattened": "UnflattenedModule unflatten",
}
_OTHERS = """
    archive checking closeness containers dynamic files graph_module interpreting lifted manifest
    names native
    ones portable recorded safetensors signature store verifying
""".split()
_archive, _native = late("graphc.export.archive"), late("graphc.export.native.program")
_program, _steps = late("graphc.export.program"), late("graphc.export.steps.program")

if not TYPE_CHECKING:
    # the folder aot/ is imported first, and once: the function of that name takes its place
    from . import aot

    del aot
    __getattr__, __dir__, __all__ = on_demand(__name__, _NAMES, _OTHERS)
    __all__ += ["load", "save"]
    __all__.remove("Contents")


@overload
def load(
    path: str | PathLike[str] | BinaryIO, *, limits: Limits | None = None,
    native: Literal[False] = False, extra_files: dict[str, Any] | None = None,
) -> ExportedProgram | ExportedStep: ...


@overload
def load(
    path: str | PathLike[str] | BinaryIO, *, limits: Limits | None = None, native: Literal[True],
    trust: str | Iterable[str] | None = None, threads: int = 1,
) -> NativeProgram: ...


def load(
    path: str | PathLike[str] | BinaryIO, *, limits: Limits | None = None, native: bool = False,
    trust: str | Iterable[str] | None = None, threads: int = 1,
    extra_files: dict[str, Any] | None = None,
) -> ExportedProgram | ExportedStep | NativeProgram:
    """The program (an ExportedProgram), or the training step (an ExportedStep), in a .gcx file (its
    path, or a file that is open for reading bytes); it is compiled at its first call.

    `limits`: what its graphs may ask of this machine. `native`: a NativeProgram, run by machine
    code that the file holds, without a compiler, by so many `threads` for each call; only if the
    SHA-256 of that code is `trust` (or among several). Nothing in the file grants that: the digest
    has to come from whoever made the file, by another way. `extra_files`: if it has entries, the
    texts that were saved beside the program are put into it, by name. Without `native` nothing in
    the file is executed as Python, and no native code of it is loaded. Raises ExportError for a
    file that is damaged or that this graphc cannot read, that is beyond the limits, or whose code
    is not trusted, OSError for one that cannot be opened.
    """
    bounds = limits or _archive.DEFAULT
    if native and extra_files is not None:
        raise ValueError("extra_files are not read where native code is. Cure: load(path, "
                         "extra_files=...) without native=True")
    if native:
        program: NativeProgram = _native.load_native(path, trust, threads=threads, limits=bounds)
        return program
    if trust is not None or threads != 1:
        raise ValueError("trust and threads are for the code in a file. Cure: load(path, "
                         "native=True, ...)")

    def make(contents: Contents) -> Any:
        if extra_files:  # an empty one asks for none, as in torch
            extra_files.update(contents.extra)
        if contents.kind == "step":
            return _steps.ExportedStep(contents, bounds=bounds)
        return _program.ExportedProgram(contents, bounds=bounds)

    found: ExportedProgram | ExportedStep = _archive.opened(path, bounds, make)
    return found


def save(
    program: ExportedProgram | ExportedStep, path: str | PathLike[str] | BinaryIO, **options: Any
) -> None:
    """program.save(path, ...), as torch.export.save. `options`: those of an ExportedProgram's."""
    refused = sorted(options.keys() - {"extra_files"})
    if refused and isinstance(program, _steps.ExportedStep):
        raise _archive.ExportError(
            f"the file of a training step takes no {refused[0]}=. Cure: "
            "graphc.export.aot(step, folder) makes a library beside it"
        )
    program.save(path, **options)
