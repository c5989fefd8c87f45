"""`library_objects(interface, levels, ...)`: all code of a freestanding library as relocatable
objects, whose global names are public ones, or begin with the library's prefix and are hidden."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphc.backends.host import elf, wasm
from graphc.backends.host.interface import Interface, Level, LibraryObjects
from graphc.backends.llvm import words
from graphc.backends.llvm.cache import ObjectCache
from graphc.backends.llvm.compile_program import program_objects
from graphc.backends.llvm.freestanding import renamed as elf_names
from graphc.backends.llvm.freestanding.cpu_level import cpu_level_text
from graphc.backends.llvm.freestanding.entry import Compiled, emit_entry, public
from graphc.backends.llvm.freestanding.levels import baseline, identifier, target_named
from graphc.backends.llvm.freestanding.wasm_maths import known, maths_text
from graphc.backends.llvm.freestanding.wasm_runtime import RUNTIME
from graphc.backends.llvm.freestanding.workers import workers_text
from graphc.backends.llvm.target import Target
from graphc.backends.llvm.wasm import is_wasm


def prefix(name: str) -> str:
    """What all hidden names of a library begin with."""
    return f"graphc.{name}."  # no C name is like that


def library_objects(
    interface: Interface, levels: Sequence[Level], cache: ObjectCache
) -> LibraryObjects:
    """See above; `levels` are the lowest first."""
    targets = [target_named(level.name) for level in levels]
    lowest = baseline(targets[0])
    compiled: list[tuple[Level, list[Compiled]]] = []
    groups: list[tuple[str, list[bytes]]] = []  # a prefix, and objects that know each other
    for level, target in zip(levels, targets, strict=True):
        own = f"{prefix(interface.name)}{identifier(target)}."
        kernels: dict[frozenset[str], bytes] = {}
        codes: list[Compiled] = []
        for k, code in enumerate(level.codes):
            frame, objects, _ = program_objects(code.program, target, cache, alone=True)
            *found, driver = objects
            kernels.update((_defined(each), each) for each in found)
            codes.append(Compiled(code, frame, f"{own}{k}.{words.RUN}"))
            groups.append((own, [renamed(driver, _prefixed(driver, f"{own}{k}."))]))
        groups.append((own, list(kernels.values())))
        compiled.append((level, codes))
    common = [
        cache.compile(emit_entry(interface, compiled, lowest), lowest, passes="light"),
        cache.compile(workers_text(lowest), lowest),
        cache.compile(RUNTIME if is_wasm(lowest) else cpu_level_text(targets), lowest),
    ]
    if is_wasm(lowest):
        common += _maths([*common, *(each for _, some in groups for each in some)], lowest, cache)
    shown = set(public(interface, lowest))
    every = prefix(interface.name)
    shared = {
        name: f"{every}{name}" for each in common for name in _defined(each)
       if name not in shown
    }
    shared["graphc_data"] = f"{every}graphc_data"
    result = [renamed(each, shared) for each in common]
    for own in dict.fromkeys(name for name, _ in groups):
        members = [each for name, some in groups if name == own for each in some]
        names = {
            name: f"{own}{name}" for each in members for name in _defined(each)
            if not name.startswith(every)
        }
        result += [renamed(each, {**shared, **names}) for each in members]
    return LibraryObjects(
        result, public(interface, lowest), shared["graphc_data"], lowest.triple, lowest.arch
    )


def _maths(objects: Sequence[bytes], target: Target, cache: ObjectCache) -> list[bytes]:
    """What of libm the objects want, as one."""
    wanted = {name for each in objects for name in (wasm.global_names(each) or ((), ()))[1]}
    found = sorted(name for name in wanted if known(name))
    return [cache.compile(maths_text(found, target), target)] if found else []


def _prefixed(data: bytes, own: str) -> dict[str, str]:
    return {name: f"{own}{name}" for name in _defined(data)}


def _defined(data: bytes) -> frozenset[str]:
    """The global names that an object defines."""
    found = elf.global_names(data) or wasm.global_names(data)
    assert found is not None, "neither an ELF object nor one of WebAssembly"
    return frozenset(found[0])


def renamed(data: bytes, names: Mapping[str, str]) -> bytes:
    """The object with these global names changed, and hidden."""
    change = wasm.renamed if data.startswith(wasm.MAGIC) else elf_names.renamed
    return change(data, names)
