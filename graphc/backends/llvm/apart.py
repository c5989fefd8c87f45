"""Code for another machine than this one is generated in a process of its own.

LLVM answers what a CPU cannot do (64-bit code for an i386, a register class that is missing) by
aborting the process. On targets other than the host's that is one helper process, which is started
when first needed and again after it has died; the caller gets an LLVMError with LLVM's words.

Requests are JSON; the first byte of a reply says whether an object follows or an error's text.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
import threading
import weakref
from pathlib import Path
from typing import IO, Any

from graphc.backends.host import messages
from graphc.backends.llvm.jit import Passes, compile_object
from graphc.backends.llvm.library import LLVMError
from graphc.backends.llvm.target import Target

_ROOT = str(Path(__file__).resolve().parents[3])
_START = (
    f"import sys; sys.path.insert(0, {_ROOT!r}); "
    "from graphc.backends.llvm.apart import serve; serve(sys.stdin.buffer, sys.stdout.buffer)"
)
_OBJECT, _ERROR = b"o", b"e"
_PATIENCE = 10.0  # seconds for a process to end once its input has


class Helper:
    """The process, and one request to it at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None

    def compile(
        self, text: str, target: Target, opt_level: int, passes: Passes, verify: bool
    ) -> bytes:
        """compile_object in the helper process. Raises LLVMError, also when the process dies."""
        request = json.dumps([text, list(target), opt_level, passes, verify]).encode()
        with self._lock:
            process = self._started()
            assert process.stdin is not None and process.stdout is not None
            try:
                messages.write(process.stdin, request)
                reply = messages.read(process.stdout)
            except OSError:
                reply = None
            if reply is None:
                raise LLVMError(self._obituary(target))
        if reply[:1] == _ERROR:
            raise LLVMError(reply[1:].decode())
        return reply[1:]

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None:
            return self._process
        _follow_forks()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - _end closes it
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self._finalizer = weakref.finalize(self, _end, self._process, self._log, os.getpid())
        return self._process

    def forget(self) -> None:
        """In a forked child: it has its parent's pipes, on which it must not speak."""
        self._lock = threading.Lock()
        self._process = None

    def _obituary(self, target: Target) -> str:
        """Why the process died, for which the next request starts another."""
        assert self._process is not None and self._log is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE)
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()
        fatal = [line for line in lines if "LLVM ERROR" in line] or lines[-3:] or ["no message"]
        assert self._finalizer is not None
        self._finalizer()
        self._process = None
        cpu = f"{target.triple}, CPU {target.cpu or 'generic'!r}"
        return f"LLVM gave up on code for {cpu}: {' '.join(fatal)}"


def _end(process: subprocess.Popen[bytes], log: IO[bytes], owner: int) -> None:
    if owner != os.getpid():
        return
    assert process.stdin is not None and process.stdout is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
    log.close()


_helper = Helper()


@functools.cache
def _follow_forks() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_helper.forget)


def compile_apart(
    text: str, target: Target, opt_level: int, passes: Passes, verify: bool
) -> bytes:
    """compile_object in the process's helper."""
    return _helper.compile(text, target, opt_level, passes, verify)


def serve(requests: IO[bytes], replies: IO[bytes]) -> None:
    """The helper's loop: answers until its input ends."""
    while (request := messages.read(requests)) is not None:
        text, target, opt_level, passes, verify = json.loads(request)
        try:
            made = compile_object(text, Target(*target), opt_level, passes, verify)
        except Exception as error:
            reply = _ERROR + str(error).encode()
        else:
            reply = _OBJECT + made
        messages.write(replies, reply)
