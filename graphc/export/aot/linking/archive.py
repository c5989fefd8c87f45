"""A static archive (.a) of objects, with the table of symbols by which linkers read it.

Source: the System V ABI's chapter on archive files: a header of 60 characters before each member,
which begins at an even place; the member "/" holds a count, places of members, and names, the
numbers big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from graphc.backends.host import elf
from graphc.export.aot.linking.errors import LinkError

MAGIC = b"!<arch>\n"
_HEADER = 60
_MOST = 1 << 32  # places are words of 4 bytes


def static_archive(objects: Sequence[bytes]) -> bytes:
    """The archive; equal objects give equal bytes.

    Raises LinkError for what is no 64-bit ELF object, and for a name that two of them define:
    whoever links the archive would get one of the two.
    """
    named = _exported(objects)
    table_bytes = 4 + sum(4 + len(name) + 1 for name, _ in named)
    places, at = [], len(MAGIC) + _HEADER + _even(table_bytes)
    for data in objects:
        places.append(at)
        at += _HEADER + _even(len(data))
    if at >= _MOST:
        raise LinkError(f"a static archive holds 4 GB at most, and this one has {at:,} bytes. "
                        'Cure: weights="file"')
    table = struct.pack(">I", len(named))
    table += b"".join(struct.pack(">I", places[number]) for _, number in named)
    table += b"".join(name + b"\0" for name, _ in named)
    parts = [MAGIC, _member("/", table)]
    parts += [_member(f"{number:04}.o/", data) for number, data in enumerate(objects)]
    return b"".join(parts)


def _exported(objects: Sequence[bytes]) -> list[tuple[bytes, int]]:
    """The names that objects define, with the number of their object."""
    found: dict[str, int] = {}
    for number, data in enumerate(objects):
        names = elf.global_names(data)
        if names is None:
            raise LinkError(f"object {number} is no 64-bit little-endian ELF object")
        for name in sorted(names[0]):
            if name in found:
                raise LinkError(f"objects {found[name]} and {number} both define {name}")
            found[name] = number
    return [(name.encode(), number) for name, number in found.items()]


def _even(size: int) -> int:
    return size + size % 2


def _member(name: str, data: bytes) -> bytes:
    """Without an owner, and of the year 1970."""
    header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'644':<8}{len(data):<10}`\n".encode()
    return header + data + b"\n" * (len(data) % 2)
