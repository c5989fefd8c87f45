"""Native code of LLVM assembly that is no program's: made once on a machine, and kept."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from graphc.backends.llvm.identity import identity
from graphc.backends.llvm.image import Image
from graphc.backends.llvm.kept import open_store
from graphc.backends.llvm.library import Library

if TYPE_CHECKING:
    from pathlib import Path

    from graphc.backends.llvm.target import Target


def linked(
    text: str, symbols: Mapping[str, int] | None, target: Target, directory: Path | None
) -> Library:
    """The code in this process. `symbols`: where what it calls is; `directory`: where compiled code
    is kept (None: nowhere)."""
    told = None if directory is None else identity()
    key = hashlib.sha256(b"linked" + (told or b"") + text.encode()).digest()
    if told is not None and (found := open_store(directory).read(key)) is not None:
        return Library.of(Image.decode(found), symbols)
    from graphc.backends.llvm.jit import compile_object

    library = Library([compile_object(text, target)], symbols)
    if told is not None and library.image is not None:
        open_store(directory).write(key, library.image.encode())
    return library
