"""JSON from strangers: bounded in depth, and long arrays of numbers parsed a piece at a time.

json.loads holds the GIL from its first character to its last, so a thread that parses megabytes
with it stops all others, the event loop's too. Here a long array of numbers is cut out of the text
before (it becomes a `Numbers`), and parsed when its dtype and shape are known, in pieces that take
half a millisecond each.
"""

from __future__ import annotations

import functools
import json
import re
import secrets
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from graphc.serve.errors import malformed, too_large

LONG = 1 << 15  # bytes: an array of numbers from here on is a Numbers
_PIECE = 1 << 15
_REST = 1 << 22  # bytes of a document without its long arrays: what is parsed in one go
_QUOTES = 40_000  # in one document; a request of a hundred tensors has two thousand
_RANK = 64
_BRACKETS = re.compile(rb"[\[\]{}]")
_NUMBERS = b"0123456789+-.eE \t\r\n"
_TO_SPACES = bytes.maketrans(b"[]", b"  ")
_DIGITS, _POINT = b"0123456789", ord(".")
_FORMS = bytes(ord("0") if c in _DIGITS else c if c == _POINT else ord(" ") for c in range(256))
_LONG_INTEGER = b" " + b"0" * 19


class Numbers:
    """A long array of JSON, not parsed yet: "[[1, 2], [3, 4]]"."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        # its brackets and commas; whatever else there is stays, and then fits no shape
        skeleton = text.translate(None, _NUMBERS)
        self.skeleton = skeleton.replace(b"tru", b"").replace(b"fals", b"")
        self.count = self.skeleton.count(b",") + 1

    def __repr__(self) -> str:
        return f"[{self.count} numbers]"

    def shape(self) -> tuple[int, ...]:
        """The sizes by which its brackets nest. Raises Refused where it has none."""
        text = self.skeleton
        rank = len(text) - len(text.lstrip(b"["))
        sizes: list[int] = []
        unit = 0  # the length of one block of the level below
        for level in range(1, min(rank, _RANK) + 1):
            end = text.find(b"]" * level)
            length = end + level - 1 - (rank - level + 1)  # between the brackets of a block
            sizes.append((length + 1) // (unit + 1))
            unit = length + 2
        shape = tuple(reversed(sizes))
        if rank > _RANK or min(shape, default=0) < 1 or not _nested(text, shape):
            raise malformed("an array of the body is not rectangular")
        return shape

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether it is flat, or its brackets nest as these sizes do."""
        return _nested(self.skeleton, (self.count,)) or _nested(self.skeleton, shape)

    def pieces(self) -> Iterator[list[Any]]:
        """The numbers in order. Raises Refused where something is no number."""
        text, start = self.text, 0
        while start <= len(text):
            stop = text.find(b",", start + _PIECE)
            stop = len(text) if stop < 0 else stop
            yield loads(b"[" + text[start:stop].translate(_TO_SPACES) + b"]")
            start = stop + 1


def _nested(skeleton: bytes, shape: tuple[int, ...]) -> bool:
    """Whether brackets and commas are those of an array of this shape, which has elements."""
    length = 0
    for size in reversed(shape):
        length = size * (length + 1) + 1
        if length > len(skeleton):
            return False
    if length != len(skeleton):
        return False
    text = b""
    for size in reversed(shape):
        text = b"[" + b",".join([text] * size) + b"]"
    return text == skeleton


def parse(body: bytes, max_depth: int) -> Any:
    """A JSON document in which long arrays of numbers are Numbers. Raises Refused."""
    if not body.strip():
        raise malformed("the body is empty; it must be JSON")
    if len(body) < LONG and body.count(b"[") + body.count(b"{") <= max_depth:
        return loads(body)  # too short to hold anybody up, and for brackets that nest too deep
    cut: list[Numbers] = []
    parts: list[bytes] = []
    token = secrets.token_hex(16)  # nobody's string is this one
    depth = quotes = done = position = 0
    while position < len(body):
        quote = body.find(b'"', position)
        stop = len(body) if quote < 0 else quote
        found = _array(body, position, stop)
        if found is not None:
            first, last = found
            depth = _deepened(body, position, first, depth, max_depth)
            parts += [body[done:first], f'"{token}{len(cut)}"'.encode()]
            cut.append(Numbers(body[first:last]))
            done = position = last
        depth = _deepened(body, position, stop, depth, max_depth)
        if quote < 0:
            break
        position, passed = _end_of_string(body, quote)
        quotes += passed
        if quotes > _QUOTES:
            raise too_large(f"the JSON of the body has more than {_QUOTES} quotes")
    parts.append(body[done:])
    if sum(map(len, parts)) > _REST:
        raise too_large(f"the JSON of the body has more than {_REST} bytes beside its tensors' "
                        "data. Cure: send tensors as binary data")
    found_document = loads(b"".join(parts))
    return _restored(found_document, token, cut) if cut else found_document


def _array(body: bytes, start: int, stop: int) -> tuple[int, int] | None:
    """Where a long array lies between two strings; it ends before any object does."""
    if stop - start < LONG:
        return None
    first = body.find(b"[", start, stop)
    if first < 0:
        return None
    end = body.find(b"}", first, stop)
    last = body.rfind(b"]", first, stop if end < 0 else end)
    return (first, last + 1) if last - first >= LONG else None


def _deepened(body: bytes, start: int, stop: int, depth: int, most: int) -> int:
    """The depth behind some text outside of strings. Raises Refused where it is beyond `most`."""
    for bracket in _BRACKETS.finditer(body, start, stop):
        depth += 1 if bracket.group() in b"[{" else -1
        if depth > most:
            raise malformed(
                f"the JSON of the body is nested more than {most} deep, at byte {bracket.start()}"
            )
    return depth


def _end_of_string(body: bytes, quote: int) -> tuple[int, int]:
    """The position behind the string that begins at `quote`, and how many quotes it has."""
    position, passed = quote + 1, 1
    while passed <= _QUOTES:
        end = body.find(b'"', position)
        if end < 0:
            raise malformed(f"the JSON of the body has a string without an end, at byte {quote}")
        passed += 1
        slashes = end - 1
        while body[slashes] == 0x5C:  # the opening quote, at the latest, is none
            slashes -= 1
        position = end + 1
        if (end - slashes) % 2:
            break
    return position, passed


@functools.cache
def _quick() -> Callable[[bytes], Any] | None:
    """orjson's parser, if that is installed: the same values in a tenth of the time."""
    try:
        import orjson
    except ImportError:
        return None
    found: Callable[[bytes], Any] = orjson.loads
    return found


def has_long_integer(text: bytes) -> bool:
    """Whether there are 19 digits in a row, and not behind a point: an integer of more than 64
    bits, perhaps, which orjson reads as a float, and Python as what it is."""
    return _LONG_INTEGER in (b" " + text).translate(_FORMS)


def loads(text: bytes) -> Any:
    """Strict JSON, without NaN. Raises Refused."""
    quick = _quick()
    if quick is not None and not has_long_integer(text):
        try:
            return quick(text)
        except ValueError:  # json says what is wrong, or that nothing is
            pass
    try:
        return json.loads(text.decode(), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise malformed(f"the body is not UTF-8: {error}") from None
    except RecursionError:
        raise malformed("the JSON of the body is nested too deep") from None
    except ValueError as error:
        raise malformed(f"the body is not JSON: {error}") from None


def _no_constant(name: str) -> NoReturn:
    raise malformed(f"{name} is no number of JSON. Cure: send the tensor as binary data")


def _restored(value: Any, token: str, cut: list[Numbers]) -> Any:
    """The document with each Numbers where its array was."""
    if isinstance(value, dict):
        return {key: _restored(item, token, cut) for key, item in value.items()}
    if isinstance(value, list):
        return [_restored(item, token, cut) for item in value]
    if isinstance(value, str) and value.startswith(token):
        return cut[int(value[len(token) :])]
    return value
