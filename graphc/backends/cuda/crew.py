"""NVRTC in processes of its own, several texts at a time: in one process, releases before CUDA 13
compile one after another. A process has the library and no more of graphc than it needs, so it
begins within a tenth of a second; it ends with its work, or with the pipe of who began it. A crash
of the compiler is an error.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from graphc.backends.cuda import libraries
from graphc.backends.cuda.libraries import Found, dotted
from graphc.backends.cuda.nvrtc import LOOPS, Compiled, Nvrtc, NvrtcError, Options
from graphc.backends.host import messages

_ROOT = str(Path(__file__).resolve().parents[3])
# The packages without what their __init__ imports (NumPy, all of graphc).
_START = f"""\
import os, sys, types
for name in ("graphc", "graphc.backends", "graphc.backends.cuda", "graphc.backends.host"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [{_ROOT!r} + "/" + name.replace(".", "/")]
from graphc.backends.cuda.crew import serve
replies = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # what the library prints is no reply
serve(sys.argv[1], sys.stdin.buffer, replies)
"""
_READY, _CUBIN, _REFUSED = b"r", b"c", b"e"


class NoWorker(RuntimeError):
    """A process could not be started, or its library not loaded: what compiles in this process
    does it as well."""


class Worker:
    """One process, and one text at a time. Raises NoWorker."""

    def __init__(self, found: Found) -> None:
        self._version = found.version
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - end() closes it
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _START, found.path], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=self._log,
            )
        except (OSError, TypeError) as error:  # None: Python inside another program
            self._log.close()
            raise NoWorker(str(error)) from error

    def ready(self) -> None:
        """Waits until it is. Raises NoWorker."""
        if messages.read(self._pipe("stdout")) != _READY:
            raise NoWorker(self._last_words())

    def compile(self, text: str, architecture: str, options: Options) -> Compiled:
        """See Nvrtc.compile. Raises NvrtcError, also where the process dies."""
        request = json.dumps([text, architecture, options.contract, options.more]).encode()
        try:
            messages.write(self._pipe("stdin"), request)
            reply = messages.read(self._pipe("stdout"))
        except OSError:
            reply = None
        if reply is None:
            raise NvrtcError(self._obituary())
        if reply[:1] == _REFUSED:
            raise NvrtcError(reply[1:].decode())
        return Compiled.unpacked(reply[1:])

    def end(self) -> None:
        """At once, whatever it is about."""
        self._process.kill()
        self._process.wait()
        for name in ("stdin", "stdout"):
            try:
                self._pipe(name).close()
            except OSError:  # what was not sent yet
                continue
        self._log.close()

    def _pipe(self, name: str) -> IO[bytes]:
        pipe: IO[bytes] = getattr(self._process, name)
        return pipe

    def _obituary(self) -> str:
        code = self._process.wait()
        how = f"with status {code}"
        if code < 0:
            how = f"by {signal.Signals(-code).name}"
        said = self._last_words()
        return (
            f"NVRTC {dotted(self._version)} ended its process {how}{': ' * bool(said)}{said}. "
            "Cure: another release of it"
        )

    def _last_words(self) -> str:
        self._log.seek(0)
        return " ".join(self._log.read().decode(errors="replace").splitlines()[-3:])


def compile_all(
    found: Found, texts: Sequence[str], architecture: str, count: int, options: Options = LOOPS
) -> list[Compiled]:
    """The machine code of each text, by so many processes, the longest first. Raises NvrtcError of
    the first that is refused, and NoWorker."""
    left = deque(sorted(range(len(texts)), key=lambda number: -len(texts[number])))
    made: dict[int, Compiled] = {}
    failed: list[Exception] = []

    def work(worker: Worker) -> None:
        try:
            worker.ready()
            while left:
                number = left.popleft()  # atomic: another may have taken the last
                made[number] = worker.compile(texts[number], architecture, options)
        except IndexError:
            return
        except Exception as error:
            failed.append(error)
            left.clear()

    with ExitStack() as ends:
        threads = []
        for _ in range(min(count, len(texts))):
            worker = Worker(found)
            ends.callback(worker.end)
            threads.append(threading.Thread(target=work, args=(worker,), daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
    return [made[number] for number in range(len(texts))]


def serve(path: str, requests: IO[bytes], replies: IO[bytes]) -> None:
    """A worker's loop: answers until its input ends."""
    compiler = Nvrtc(libraries.loaded(libraries.NVRTC, path))
    messages.write(replies, _READY)
    while (request := messages.read(requests)) is not None:
        text, architecture, contract, more = json.loads(request)
        try:
            made = compiler.compile(text, architecture, Options(contract, tuple(more)))
        except Exception as error:
            reply = _REFUSED + str(error).encode()
        else:
            reply = _CUBIN + made.packed()
        messages.write(replies, reply)
