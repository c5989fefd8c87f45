"""Native code of LLVM assembly that is no program's: made once on a machine, and kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from graphc.backends.host.store import Store
from graphc.backends.llvm.identity import identity
from graphc.backends.llvm.image import Image
from graphc.backends.llvm.library import Library

if TYPE_CHECKING:
    from pathlib import Path

    from graphc.backends.llvm.target import Target

MAGIC = b"graphc linked 1\n"


def linked(
    text: str, symbols: Mapping[str, int] | None, target: Callable[[], Target],
    directory: Path | None, opt_level: int = 1,
) -> Library:
    """The code in this process. `symbols`: where what it calls is; `target`: asked for where it is
    compiled; `directory`: where compiled code is kept (None: nowhere)."""
    told = None if directory is None else identity()
    store = Store(directory, MAGIC, ".linked")
    key = hashlib.sha256(b"%d" % opt_level + (told or b"") + text.encode()).digest()
    if told is not None and (found := store.read(key)) is not None:
        return Library.of(Image.decode(found), symbols)
    from graphc.backends.llvm.jit import compile_object

    library = Library([compile_object(text, target(), opt_level)], symbols)
    if told is not None and library.image is not None:
        store.write(key, library.image.encode())
    return library
