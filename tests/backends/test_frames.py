"""The native code that is told of starting functions on Python 3.11 (backends/host/frames.py)."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Iterator

import pytest

from graphc.backends.host import frames
from graphc.backends.llvm.jit import compile_object
from graphc.backends.llvm.target import make_target

ONLY_311 = pytest.mark.skipif(sys.version_info >= (3, 12), reason="sys.monitoring tells of them")
# Evaluation marks what it calls
USE = """
from graphc import backends
from graphc.backends.host import frames
if {linked}:
    frames._mapped = lambda: None

def asked(function):
    seen.append(function.__name__)
    if function.__name__ == "refused":
        raise KeyError("refused")
    return function.__name__ == "settled"

def settled(): return 1
def again(): return settled()
def refused(): return 3
def numbers(): yield again()

seen = []
evaluation = frames.Evaluation(asked, backends.get("llvm").link)
evaluation.mark(asked.__code__)
evaluation.begin()
again(), settled(), again(), list(numbers())
try:
    refused()
except KeyError as error:
    seen.append(str(error))
ended = evaluation.end()
settled(), again()
import sys
print(seen, ended, "llvmlite" in sys.modules)
"""


def _executable_sections(data: bytes) -> Iterator[tuple[bytes, int]]:
    """The code of an ELF64 object, and how many sections of relocations there are for it."""
    (start,) = struct.unpack_from("<Q", data, 40)
    (count,) = struct.unpack_from("<H", data, 60)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, start + 64 * i) for i in range(count)]
    for i, (_, kind, flags, _, offset, size, *_) in enumerate(sections):
        if kind == 1 and flags & 4 and size:  # SHT_PROGBITS, SHF_EXECINSTR
            yield data[offset : offset + size], sum(s[1] == 4 and s[7] == i for s in sections)


def test_the_kept_code_is_what_llvm_makes_of_the_text() -> None:
    target = make_target("x86_64-unknown-linux-gnu")
    ((code, relocations),) = _executable_sections(compile_object(frames.text_to_keep(), target))
    assert relocations == 0, "the code has to run wherever it is"
    lines = "\n".join(code.hex()[i : i + 96] for i in range(0, 2 * len(code), 96))
    assert code == frames.KEPT, f"put this into frames.py:\n{lines}"


@ONLY_311
@pytest.mark.parametrize("linked", [False, True])
def test_functions_that_start_are_told_of(linked: bool) -> None:
    found = subprocess.run(
        [sys.executable, "-c", USE.format(linked=linked)], capture_output=True, text=True,
        check=True,
    ).stdout
    seen = ["again", "settled", "again", "numbers", "again", "refused", "'refused'", "end"]
    assert found == f"{seen} True {linked or frames._mapped() is None}\n"
