"""Messages over the pipes of a helper process: 8 bytes of length, little-endian, then as many
bytes."""

from __future__ import annotations

from typing import IO


def write(stream: IO[bytes], data: bytes) -> None:
    """Sends one."""
    stream.write(len(data).to_bytes(8, "little") + data)
    stream.flush()


def read(stream: IO[bytes]) -> bytes | None:
    """The next one, None where the stream ends."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    size = int.from_bytes(head, "little")
    data = stream.read(size)
    return data if len(data) == size else None
