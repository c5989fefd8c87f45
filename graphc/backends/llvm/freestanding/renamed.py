"""Global names of relocatable ELF64 objects, changed in their symbol tables: so that two models, or
code of one model for two kinds of CPU, can be linked into one program.

Names that are changed are hidden, too: nobody outside of the library finds them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

_HEADER = struct.Struct("<IIQQQQIIQQ")  # of a section
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOLS = 2  # the kind of section
_LOCAL, _HIDDEN = 0, 2  # binding, visibility


def renamed(data: bytes, names: Mapping[str, str]) -> bytes:
    """The object with these global names changed, whether it defines or wants them."""
    result = bytearray(data)
    (table,) = struct.unpack_from("<Q", data, 40)
    (count,) = struct.unpack_from("<H", data, 60)
    headers = [_HEADER.unpack_from(data, table + 64 * i) for i in range(count)]
    for kind, offset, size, link in [(h[1], h[4], h[5], h[6]) for h in headers]:
        if kind != _SYMBOLS:
            continue
        strings = headers[link]
        known = bytes(data[strings[4] : strings[4] + strings[5]])
        added = bytearray()
        for at in range(offset, offset + size, _SYMBOL.size):
            name, info, other, *rest = _SYMBOL.unpack_from(data, at)
            old = known[name : known.index(b"\0", name)].decode()
            if info >> 4 == _LOCAL or old not in names:
                continue
            new = len(known) + len(added)
            added += names[old].encode() + b"\0"
            _SYMBOL.pack_into(result, at, new, info, other & ~3 | _HIDDEN, *rest)
        if added:
            # the longer table goes to the end of the file; what it was leaves a gap
            place = len(result)
            result += known + added
            struct.pack_into("<Q", result, table + 64 * link + 24, place)
            struct.pack_into("<Q", result, table + 64 * link + 32, len(known) + len(added))
    return bytes(result)
