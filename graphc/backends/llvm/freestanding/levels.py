"""What CPUs a library is made for: levels of instructions by name, and which of them this machine
runs.

A level is more than a CPU's features: it is what many CPUs have in common, so that a library for
few levels runs everywhere, and quickly. Source of the levels of x86-64: the System V ABI, AMD64
supplement, "Micro-Architecture Levels"; what stands behind a plus is ours.

There is none with a matrix unit (AMX). A process has to ask for its tiles (arch_prctl), once for
all its threads: signals then save 8 KiB more, alternative stacks for them that are too small are
refused from then on, and asking fails where there is one already. That is the program's to decide,
not a library's that it loads. graphc's own process uses the unit only after it has computed right
(backends/host/matrix_unit.py), and no machine of ours has one to test a library on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphc.backends.llvm import wasm
from graphc.backends.llvm.target import LEVELS, Target, host_target, make_target

_LINUX = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}
_TRIPLES = {**_LINUX, "wasm32": wasm.TRIPLE}
NATIVE = "native"
# name: architecture, CPU as LLVM spells it, features beside those that the CPU implies; of each
# architecture the lowest first, each with all that those before it have
_NAMED: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "x86-64": ("x86_64", "x86-64", ()),
    "x86-64-v2": ("x86_64", "x86-64-v2", ()),
    "x86-64-v3": ("x86_64", "x86-64-v3", ()),
    "x86-64-v4": ("x86_64", "x86-64-v4", ()),
    # products of bytes (Cascade Lake, Zen 4), and of bfloat16 (Cooper Lake, Sapphire Rapids, Zen 4)
    "x86-64-v4+vnni": ("x86_64", "x86-64-v4", ("avx512vnni",)),
    "x86-64-v4+bf16": ("x86_64", "x86-64-v4", ("avx512vnni", "avx512bf16")),
    # every 64-bit ARM has NEON; servers since 2018 have these, too
    "aarch64": ("aarch64", "generic", ("neon",)),
    "aarch64+dotprod": ("aarch64", "generic", ("neon", "lse", "fullfp16", "dotprod")),
    # any browser of today, and Node: vectors of 16 bytes, one thread
    "wasm32": ("wasm32", "generic", tuple(each[1:] for each in wasm.FEATURES.split(","))),
}


def target_named(name: str) -> Target:
    """The Target of a level, for Linux or a browser; "native": the highest that this machine runs.

    Raises ValueError, naming those there are.
    """
    if name == NATIVE:
        return _native()
    if name not in _NAMED:
        unit = ": libraries do not use matrix units" if "amx" in name.lower() else ""
        raise ValueError(
            f"there is no target {name!r}{unit}. Cure: one of {', '.join(_NAMED)}, or {NATIVE}"
        )
    arch, cpu, more = _NAMED[name]
    features = (*LEVELS.get(cpu, ()), *more)
    return make_target(_TRIPLES[arch], cpu, ",".join(f"+{each}" for each in features))


def level_name(target: Target) -> str:
    """The name that target_named knows it by."""
    return next(name for name in _NAMED if target_named(name) == target)


def identifier(target: Target) -> str:
    """Its name, as a part of a symbol."""
    return "".join(each if each.isalnum() else "_" for each in level_name(target))


def baseline(target: Target) -> Target:
    """The lowest level of its architecture: for code that runs before a level is chosen."""
    return target_named(next(name for name, found in _NAMED.items() if found[0] == target.arch))


def ordered(names: Iterable[str]) -> tuple[Target, ...]:
    """The Targets of one library, without doubles, the lowest first.

    Raises ValueError for unknown names, none at all, and CPUs of two architectures.
    """
    asked = {level_name(target_named(name)) for name in names}
    if not asked:
        raise ValueError(f"a library is for at least one target: {', '.join(_NAMED)}, or {NATIVE}")
    archs = sorted({_NAMED[name][0] for name in asked})
    if len(archs) > 1:
        raise ValueError(
            f"a library is for one architecture, and targets are of {' and '.join(archs)}. "
            "Cure: a library for each"
        )
    return tuple(target_named(name) for name in _NAMED if name in asked)


def machines(names: Iterable[str]) -> dict[str, list[str]]:
    """Names by the machines that they are for ("x86_64-linux"). Raises ValueError for unknown ones,
    and for none at all."""
    found: dict[str, list[str]] = {}
    for name in names:
        target = target_named(name)
        if wasm.is_wasm(target):
            raise ValueError(f"Python does not run {name}. Cure: aot(..., targets=[{name!r}])")
        system = "linux" if "linux" in target.triple else target.triple.rsplit("-", 1)[-1]
        found.setdefault(f"{target.arch}-{system}", []).append(name)
    if not found:
        known = ", ".join(_NAMED)
        raise ValueError(f"native code is for at least one target: {known}, or {NATIVE}")
    return found


def needs(target: Target) -> frozenset[str]:
    """The features that a CPU must have to run its code, beside those of the baseline."""
    has = {each[1:] for each in target.features.split(",") if each.startswith("+")}
    return frozenset(has - {"neon"})


def _native() -> Target:
    host = host_target()
    levels: Sequence[str] = [name for name, found in _NAMED.items() if found[0] == host.arch]
    for name in reversed(levels):
        target = target_named(name)
        if needs(target) <= needs(host):
            return target
    raise ValueError(f"libraries are made for {', '.join(_LINUX)}, and this machine is {host.arch}")
