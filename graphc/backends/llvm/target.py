"""What the generated code may assume of the machine: a plain value, passed to every emitter."""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path
from typing import NamedTuple

from graphc.backends.host import matrix_unit
from graphc.backends.host.caches import third_cache
from graphc.backends.host.machine import cpu
from graphc.backends.host.store import Store
from graphc.backends.llvm.direct import host_words
from graphc.backends.llvm.identity import identity
from graphc.ir.kernel.steps import MATRIX_STEPS
from graphc.ir.machine import Machine

# The steps of k (ir/kernel/steps.py) that instructions multiply and add; of registers of 64 bytes.
_STEPS = {"avx512bf16": ("bf16",), "avx512vnni": ("i16", "u8i8", "i8u8", "i8i8")}
_PAIRS = "i16"  # by two instructions, of registers of 32 bytes and of 64
# CPUs, by LLVM's names, that compute registers of 64 bytes in two halves.
_SPLIT = {"znver4"}
# CPUs whose third cache is far away, behind a mesh (Emerald Rapids: 35 ns, 30 GB/s).
_FAR = {
    "skylake-avx512", "cascadelake", "cooperlake", "icelake-server", "sapphirerapids",
    "emeraldrapids", "graniterapids", "graniterapids-d", "diamondrapids",
}
# Those that take 4 times as long for a register of pairs of bfloat16 as for one of floats (Emerald
# Rapids: 2 cycles and 0.5; AMD takes as long): they have AMX, where a kernel lets it be used.
_SLOW_PAIRS = {"sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d"}
# Those, of which one was measured, where a result leaves what is computed with it too little room
# in the third cache from a fifth of it on (Emerald Rapids: 52 of 260 MB, which others share).
_FULL_BY_A_FIFTH = {"emeraldrapids"}

_UNIT = "amx-tile", "amx-bf16", "amx-int8"


class Target(NamedTuple):
    """Triple, CPU and features as LLVM spells them, and the facts that emitters ask for."""

    triple: str
    cpu: str
    features: str
    vector_bytes: int  # of the widest register worth using: 64 AVX-512, 32 AVX2, 16 SSE and NEON
    has_fma: bool
    matrix: str = ""  # its matrix unit, if code may use one: "amx", or "emulated" (matrix_unit.py)
    around: int = 0  # bytes of a result from which on stores go around the caches (around.py)

    @property
    def arch(self) -> str:
        """The first part of the triple: "x86_64", "aarch64" (also for arm64), ..."""
        arch = self.triple.split("-", 1)[0]
        return "aarch64" if arch == "arm64" else arch

    def lanes(self, elem_bytes: int) -> int:
        """Elements of one vector register."""
        return self.vector_bytes // elem_bytes

    @property
    def rounds_bf16(self) -> bool:
        """Whether it has an instruction that rounds two registers of floats into one."""
        return self.vector_bytes == 64 and "+avx512bf16" in self.features.split(",")

    @property
    def pairs_integers(self) -> bool:
        """Whether it has an instruction that adds products of neighbouring i16 (AVX2 has)."""
        return self.arch == "x86_64" and self.vector_bytes >= 32

    @property
    def adds_pairs(self) -> bool:
        """Whether that instruction adds them to sums, too."""
        return self.vector_bytes == 64 and "+avx512vnni" in self.features.split(",")

    @property
    def far(self) -> bool:
        """Whether its third cache is far away."""
        return self.vector_bytes == 64 and self.cpu in _FAR

    @property
    def machine(self) -> Machine:
        """What the shared passes may know of it."""
        return _machine(self)


@functools.cache
def _machine(target: Target) -> Machine:
    """Emitters ask for it at every instruction that hangs on its numbers."""
    wide, has = target.vector_bytes == 64, set(target.features.split(","))
    many = wide or target.arch == "aarch64"
    steps = [
        step for feature, steps in _STEPS.items() if wide and f"+{feature}" in has
        for step in steps
    ]
    if target.pairs_integers and _PAIRS not in steps:
        steps.append(_PAIRS)
    if target.matrix and wide:
        steps += MATRIX_STEPS
    split = wide and target.cpu in _SPLIT
    slow = tuple(s for s in steps if s in _STEPS["avx512bf16"] and target.cpu in _SLOW_PAIRS)
    return cpu(target.vector_bytes, 32 if many else 16, tuple(steps), split, target.far, slow)


def make_target(triple: str, cpu: str = "", features: str = "") -> Target:
    """A Target; features must spell out what the CPU name implies ("+avx2,+fma")."""
    arch = triple.split("-", 1)[0]
    has = {feature[1:] for feature in features.split(",") if feature.startswith("+")}
    vector_bytes, has_fma = 16, arch in ("aarch64", "arm64")
    if arch == "x86_64":
        has_fma = bool(has & {"fma", "avx512f"})
        if {"avx512f", "avx512dq", "avx512bw", "avx512vl"} <= has:
            vector_bytes = 64
            # LLVM prefers 256 bits on some CPUs; our vectors are explicit and must not be split.
            features += "" if "-prefer-256-bit" in features else ",-prefer-256-bit"
        elif "avx2" in has:
            vector_bytes = 32
    return Target(triple, cpu, features, vector_bytes, has_fma)


_host: Target | None = None


def host_target() -> Target:
    """The machine that runs this process."""
    global _host
    if _host is None:
        triple, cpu, features = host_words()
        # "+prefer-256-bit" is tuning, not an ability: make_target decides.
        names = sorted(name for name in features if name[1:] != "prefer-256-bit")
        _host = _asked(make_target(triple, cpu, ",".join(names)))
    return _host


def _asked(host: Target) -> Target:
    """With the matrix unit, if it has one that this process may use, and the share of the caches
    that it has: each has to ask."""
    has = host.features.split(",")
    has_unit = all(f"+{feature}" in has for feature in _UNIT) and matrix_unit.usable()
    around = third_cache() // 5 if host.cpu in _FULL_BY_A_FIFTH else 0
    return host._replace(matrix="amx" if has_unit else "", around=around)


def known_target(directory: Path) -> Target:
    """host_target(), told by what an earlier process has kept there, without LLVM."""
    global _host
    told = identity()
    if _host is not None or told is None:
        return host_target()
    store = Store(directory, b"graphc target 1\n", ".target")
    key = hashlib.sha256(b"target" + told).digest()
    found = store.read(key)
    if found is not None:
        _host = _asked(Target(*json.loads(found)))
    else:
        store.write(key, json.dumps(host_target()).encode())
    return host_target()


_V2 = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
# What the CPU names that are not a machine's own imply, in features.
LEVELS: dict[str, tuple[str, ...]] = {
    "": (), "generic": (), "x86-64": (), "x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4,
}


def require_runnable(target: Target) -> None:
    """Raises ValueError for a target whose code this process must not run."""
    host = host_target()
    if target == host:
        return
    where = f"code for {target.triple}, CPU {target.cpu or 'generic'!r} cannot run here"
    if target.arch != host.arch:
        raise ValueError(f"{where}: this machine is {host.arch}")
    if target.cpu != host.cpu and target.cpu not in LEVELS:
        raise ValueError(
            f"{where}: this machine is {host.cpu!r}, and what {target.cpu!r} implies is not known. "
            "Cure: name a level, such as x86-64-v3, and spell out the features"
        )
    if target.matrix == "amx" != host.matrix:
        raise ValueError(f"{where}: this process may not use a matrix unit (AMX)")
    wanted = {f[1:] for f in target.features.split(",") if f.startswith("+")}
    has = {f[1:] for f in host.features.split(",") if f.startswith("+")}
    missing = sorted((wanted | set(LEVELS.get(target.cpu, ()))) - has)
    if missing:
        raise ValueError(f"{where}: this machine lacks {', '.join(missing)}")
