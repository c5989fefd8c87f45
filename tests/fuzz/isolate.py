"""Run cases in child processes, so that a crash or a hang of native code is a finding as well."""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

HANG = 120.0  # seconds without a result


class Ended(NamedTuple):
    """A child's end that it did not choose: "crash" or "hang", and what it was doing."""

    kind: str
    detail: str
    item: int


def run(items: Iterable[int], work: Callable[[int], Any], take: Callable[[int, Any], None]) -> None:
    """take(item, work(item)) for all items; work runs in children, take here.

    What killed a child is taken as an Ended, and the rest goes on in a new child.
    """
    rest = list(items)
    while rest:
        done = _batch(rest, work, take)
        rest = rest[done:]


def _batch(items: list[int], work: Callable[[int], Any], take: Callable[[int, Any], None]) -> int:
    """One child; returns how many items are done with."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiving)
        _serve(items, work, sending)
    os.close(sending)
    done = 0
    try:
        with os.fdopen(receiving, "rb") as stream:
            while done < len(items):
                answer = _receive(stream, child)
                if answer is None:
                    break
                take(items[done], pickle.loads(answer))
                done += 1
    finally:
        hung = _reap(child, done < len(items))
    if done < len(items):
        take(items[done], Ended(*hung, items[done]))
        done += 1
    return done


def _serve(items: list[int], work: Callable[[int], Any], sending: int) -> None:
    try:
        with os.fdopen(sending, "wb") as stream:
            for item in items:
                data = pickle.dumps(work(item))
                stream.write(len(data).to_bytes(8, "little") + data)
                stream.flush()
    finally:
        os._exit(0)


def _receive(stream: Any, child: int) -> bytes | None:
    """The next answer; None where the child ended, or was stopped because it hung."""
    ready, _, _ = select.select([stream], [], [], HANG)
    if not ready:
        os.kill(child, signal.SIGALRM)  # ends a process that does not handle it
        return None
    header = stream.read(8)
    return stream.read(int.from_bytes(header, "little")) if len(header) == 8 else None


def _reap(child: int, early: bool) -> tuple[str, str]:
    deadline = time.monotonic() + 5.0
    status = 0
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            break
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    if not os.WIFSIGNALED(status):
        return ("crash", f"exit status {os.waitstatus_to_exitcode(status)}") if early else ("", "")
    number = os.WTERMSIG(status)
    kind = "hang" if number == signal.SIGALRM else "crash"
    return kind, signal.Signals(number).name
