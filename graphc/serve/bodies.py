"""A request's body: read with limits of size, time and memory, and unpacked with the same."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect, Request

from graphc.serve.errors import Refused, malformed, too_large, unavailable
from graphc.serve.settings import Settings

_MOST_PACKED = 1032  # deflate makes no more bytes of one
INLINE = 1 << 16  # bytes: what is unpacked or parsed on the event loop itself
_WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": 15}


class Memory:
    """The bytes that all bodies together may take."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0

    def take(self, count: int) -> None:
        """Raise Refused where there is no room."""
        if self.taken + count > self.most:
            raise unavailable("the server has no memory for another body now", close=True)
        self.taken += count


class Share:
    """What one request has taken of the memory."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.taken = 0

    def grow(self, count: int) -> None:
        self.memory.take(count)
        self.taken += count

    def shrink(self, count: int) -> None:
        self.memory.taken -= count
        self.taken -= count


@contextmanager
def share(memory: Memory) -> Iterator[Share]:
    """A share that is given back at the end of a request."""
    mine = Share(memory)
    try:
        yield mine
    finally:
        mine.shrink(mine.taken)


async def read(request: Request, settings: Settings, mine: Share) -> bytes:
    """The whole body, unpacked. Raises Refused for what is too large, too slow or no encoding."""
    declared = _declared(request, settings)
    try:
        async with asyncio.timeout(settings.read_seconds):
            body = await _collected(request, settings, mine, declared)
    except TimeoutError:
        raise Refused(
            408, f"the body did not arrive within {settings.read_seconds:g} seconds", close=True
        ) from None
    except ClientDisconnect:
        raise Refused(499, "the client went away while it sent the body", close=True) from None
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in _WINDOWS:
        raise Refused(415, f"the body's Content-Encoding is {encoding[:60]!r}. Cure: send gzip, "
                           "deflate or none")
    room = min(settings.max_body, _MOST_PACKED * len(body) + 64)
    mine.grow(room)
    if len(body) < 1024:  # at most a megabyte unpacked
        unpacked = unpack(body, encoding, settings.max_body)
    else:
        unpacked = await asyncio.to_thread(unpack, body, encoding, settings.max_body)
    mine.shrink(room - len(unpacked))
    return unpacked


def _declared(request: Request, settings: Settings) -> int:
    """What Content-Length says; 0 where nothing does."""
    text = request.headers.get("content-length", "")
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise Refused(400, f"Content-Length is {text[:40]!r}", close=True)
    return int(text)


async def _collected(
    request: Request, settings: Settings, mine: Share, declared: int
) -> bytes:
    if declared > settings.max_body:
        await _thrown_away(request, settings)
        raise too_large(f"the body has {declared} bytes; the limit is {settings.max_body}",
                        close=True)
    mine.grow(declared)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > settings.max_body:
            await _thrown_away(request, settings)
            raise too_large(f"the body has more than {settings.max_body} bytes, the limit",
                            close=True)
        if size > mine.taken:
            mine.grow(len(part))
    return b"".join(parts)


async def _thrown_away(request: Request, settings: Settings) -> None:
    """Read on for a moment: a client that is still sending would not see an answer."""
    end = time.monotonic() + 2.0
    left, more = settings.max_body, True
    while more and left > 0 and time.monotonic() < end:
        try:
            async with asyncio.timeout(0.2):
                message = await request.receive()
        except TimeoutError:
            return
        left -= len(message.get("body", b""))
        more = message.get("more_body", False)


def unpack(body: bytes, encoding: str, most: int) -> bytes:
    """The bytes that were compressed. Raises Refused for more than `most`, or what is broken."""
    windows = _WINDOWS[encoding]
    try:
        return _unpacked(body, windows, most)
    except zlib.error as error:
        if encoding == "deflate":  # some leave zlib's header out
            try:
                return _unpacked(body, -15, most)
            except zlib.error:
                pass
        raise malformed(f"the body cannot be unpacked as {encoding}: {error}") from None


def _unpacked(body: bytes, windows: int, most: int) -> bytes:
    unpacker = zlib.decompressobj(windows)
    data = unpacker.decompress(body, most + 1)
    if len(data) > most:
        raise too_large(f"the body has more than {most} bytes when unpacked, the limit")
    if not unpacker.eof:
        raise malformed("the packed body ends too early")
    if unpacker.unused_data:
        raise malformed("there is something behind the end of the packed body")
    return data
