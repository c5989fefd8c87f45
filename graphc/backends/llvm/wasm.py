"""LLVM assembly for wasm32, of that for CPUs whose addresses have 8 bytes.

All that emitters keep in memory lies in words of 8 bytes, addresses too, and one who writes an
address need not know whether it is read as such or as a number. So here an address in memory still
takes 8 bytes, of which the upper four are zero: tables of addresses are as long, and who stores one
stores a whole word. Fields of records that only code of one module knows are as LLVM lays them out.
"""

from __future__ import annotations

import re

from graphc.backends.llvm.target import Target

TRIPLE = "wasm32-unknown-unknown"
# What all browsers since 2023 have (Chromium 91, Firefox 89, Safari 16.4), and Node since 16.4.
FEATURES = "+simd128,+bulk-memory,+nontrapping-fptoint,+sign-ext,+mutable-globals"
# of the C library, with sizes of 64 bits: LLVM's own calls of these have 32
_OWN = {"memcpy": "graphc_copy", "memset": "graphc_set"}

_TABLE = re.compile(r"\[(\d+) x ptr\] \[([^\]]*)\]")
_ARRAY = re.compile(r"\[(\d+) x ptr\]")
_STORE = re.compile(r"^(\s*)store (?:atomic )?ptr ([^,]+), ptr ([^, ]+).*$", re.MULTILINE)
_STEP = re.compile(r"\b(getelementptr(?: inbounds)?) ptr,")
_ALLOCA = re.compile(r"\balloca ptr\b")
_OPAQUE = re.compile(r'call (i64|ptr) asm "", "=r,0"\((?:i64|ptr) ([^)]+)\)')
_NAMED = re.compile(rf"@({'|'.join(_OWN)})\(")


def is_wasm(target: Target) -> bool:
    """Whether a target is WebAssembly."""
    return target.arch == "wasm32"


def lowered(text: str) -> str:
    """The module for wasm32."""
    count = 0

    def store(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        space, value, place = match.groups()
        word = f"%word.of.address.{count}"
        return (
            f"{space}{word} = ptrtoint ptr {value} to i64\n{space}store i64 {word}, ptr {place}, "
            "align 8"
        )

    text = _TABLE.sub(_table, text)
    text = _ARRAY.sub(r"[\1 x { ptr, i32 }]", text)
    text = _STORE.sub(store, text)
    text = _STEP.sub(r"\1 i64,", text)
    text = _ALLOCA.sub("alloca i64", text)
    # what hides a value from LLVM's optimizers has no register to name here
    text = _OPAQUE.sub(r"freeze \1 \2", text)
    return _NAMED.sub(lambda match: f"@{_OWN[match[1]]}(", text)


def _table(match: re.Match[str]) -> str:
    records = [f"{{ ptr, i32 }} {{ {each.strip()}, i32 0 }}" for each in match[2].split(",")]
    return f"[{match[1]} x {{ ptr, i32 }}] [{', '.join(records)}]"
