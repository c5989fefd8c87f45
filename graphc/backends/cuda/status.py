"""What a Check that was false leaves: words that kernels write, and what the host reads of them.

Nobody waits for a Check. A launch that finds one false says so once for the whole device; launches
without Checks that come behind it do nothing (`guarded`), so that nothing is written which hangs on
what failed; and whoever waits for the device next raises what the user is to see.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Sequence
from typing import NamedTuple

from graphc.backends.cuda.driver import Driver, Stream
from graphc.backends.cuda.source import Source
from graphc.ir.failure import check_error, late
from graphc.ir.kernel import Check, Kernel, walk
from graphc.ir.record import replaced

WORDS = 4  # of 8 bytes: see fail() in prelude.py
BYTES = 8 * WORDS
_HEAD = re.compile(r"__global__\s[^{;]*?\b(?P<name>\w+)\s*\([^(){;]*\bi64\s*\*\s*status\b[^{;]*\{")
_FAIL = re.compile(r"\bfail\s*\(")


def kernel_checks(kernel: Kernel) -> tuple[Check, ...]:
    """The Checks of a kernel by the numbers that fail() is told."""
    return tuple(
        stmt for body in walk.bodies(kernel) for stmt in walk.statements(body)
        if isinstance(stmt, Check)
    )


def guarded(source: Source) -> tuple[Source, frozenset[str]]:
    """A source whose launches do nothing once a Check was false, but for those that have Checks;
    and the names of these."""
    parts, position, checking = [], 0, set()
    for head in _HEAD.finditer(source.text):
        parts.append(source.text[position : head.end()])
        position = head.end()
        if _FAIL.search(source.text, position, _end(source.text, position)):
            checking.add(head["name"])
        else:
            parts.append("\n  if (failed(status)) return;")
    assert len(parts) >= len(source.stages), source.text
    return replaced(source, text="".join((*parts, source.text[position:]))), frozenset(checking)


def _end(text: str, position: int) -> int:
    """Behind the brace that closes the one in front of a position."""
    depth = 1
    for brace in re.compile(r"[{}]").finditer(text, position):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return brace.end()
    return len(text)


class Checked(NamedTuple):
    """A launch with Checks, as an error tells of it."""

    checks: tuple[Check, ...]
    locs: tuple[str, ...]


class Status:
    """One device's words. `device`: what guarded launches are given; `never`: words by which
    nothing has failed, for what is done in any case."""

    def __init__(self, driver: Driver, stream: Stream) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._launches: list[Checked] = []
        self._seen = driver.allocate_host(BYTES)
        self._words = (ctypes.c_int64 * WORDS).from_address(self._seen)
        self._words[:] = [0] * WORDS
        self.device = driver.allocate(2 * BYTES)
        self.never = self.device + BYTES
        begin = (ctypes.c_int64 * (2 * WORDS))(0, driver.device_address(self._seen))
        driver.copy_in(self.device, ctypes.addressof(begin), 2 * BYTES, stream)

    def words(self, launches: Sequence[Checked]) -> list[int]:
        """What launches with Checks are to be given, WORDS for each."""
        with self._lock:
            first = len(self._launches)
            self._launches += launches
        return [
            word for number in range(first, first + len(launches))
            for word in (0, self.device, number, 0)
        ]

    @property
    def watched(self) -> bool:
        """Whether there are launches with Checks."""
        return bool(self._launches)

    def look(self) -> None:
        """Raises what failed, once; the caller has waited for the current stream."""
        if not self._words[0]:
            return
        with self._lock:
            if not self._words[0]:
                return
            self._driver.synchronise()  # all that was begun behind it has done nothing
            _, number, check, value = self._words
            self._words[0] = 0
            self._driver.fill(self.device, 0, 4, 2, Stream(0))
            self._driver.synchronise()
            failed = self._launches[number]
        message = failed.checks[check].message.replace("{value}", str(value))
        raise late(check_error(message, failed.locs))
