"""Machine code for archives: a library for each kind of machine, in memory."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from graphc import backends
from graphc.export.aot.library import aot
from graphc.export.contents import Native
from graphc.export.errors import ExportError
from graphc.export.program import ExportedProgram


def native_code(
    program: ExportedProgram, targets: Sequence[str],
    sizes: Mapping[str, int | tuple[int, int]] | None, freeze: bool,
) -> tuple[Native, ...]:
    """A program's code for these kinds of CPU: what aot() makes, one library for all that are of
    one architecture. Raises what aot() raises."""
    if isinstance(targets, str):
        raise TypeError(f"targets must be a list of names, got {targets!r}. Cure: [{targets!r}]")
    backend: Any = backends.get(backends.DEFAULT)
    made: list[Native] = []
    for machine, names in backend.machines(targets).items():
        with tempfile.TemporaryDirectory(prefix="graphc-native-") as folder:
            library = aot(program, folder, targets=names, sizes=sizes, freeze=freeze).library
            if library.suffix != ".so":
                raise ExportError(f"a .gcx file holds code for Linux, not for {machine}")
            content = library.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        made.append(Native(machine, f"native/{machine}/{library.name}", digest, content))
    return tuple(made)
