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

MAGIC = b"graphc linked 2\n"


def linked(
    name: str, text: Callable[[], str], symbols: Mapping[str, int] | None,
    directory: Path | None, opt_level: int = 1,
) -> Library:
    """The code in this process. `name`: what the text follows from, beside the sources of this
    folder and of ../host, which are part of the identity; `text`: asked for where it is compiled,
    for this machine. `symbols`: where what it calls is; `directory`: where compiled code is kept
    (None: nowhere)."""
    told = None if directory is None else identity()
    store = Store(directory, MAGIC, ".linked")
    key = hashlib.sha256(b"%d" % opt_level + (told or b"") + name.encode()).digest()
    if told is not None and (found := store.read(key)) is not None:
        return Library.of(Image.decode(found), symbols)
    from graphc.backends.llvm.jit import compile_object
    from graphc.backends.llvm.target import host_target

    library = Library([compile_object(text(), host_target(), opt_level)], symbols)
    if told is not None and library.image is not None:
        store.write(key, library.image.encode())
    return library
