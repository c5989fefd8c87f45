"""torch.export.draft_export: export, with a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graphc.export.capture import export
from graphc.export.program import ExportedProgram


class DraftExportReport:
    """What draft_export() found. `failures` are always none: what torch lists there is raised."""

    def __init__(self) -> None:
        self.failures: list[Any] = []

    def successful(self) -> bool:
        """Whether the program is sound, as every ExportedProgram is."""
        return not self.failures

    def apply_suggested_fixes(self) -> None:
        """Raises NotImplementedError, as torch's."""
        raise NotImplementedError("Not implemented yet")

    def __str__(self) -> str:
        return (
            "Congratulations: No issues are found during export, and it was able to soundly "
            "produce a graph.\nYou can now change back to torch.export.export()"
        )

    def __repr__(self) -> str:
        return f"DraftExportReport({self.failures})"


def draft_export(
    mod: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    preserve_module_call_signature: tuple[str, ...] = (),
    strict: bool = False,
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """export(), with a DraftExportReport as `_report` of the program.

    torch's gives an unsound program where the model decides by its data or fixes a free size, and
    says so in the report. graphc has no unsound programs: that is raised, as by export(), naming
    every place (TraceError, ExportError).
    """
    program = export(
        mod, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict,
        preserve_module_call_signature=preserve_module_call_signature,
        prefer_deferred_runtime_asserts_over_guards=prefer_deferred_runtime_asserts_over_guards,
    )
    program._report = DraftExportReport()
    return program
