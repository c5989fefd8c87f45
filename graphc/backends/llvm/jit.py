"""Text to object bytes, and object bytes to addresses."""

import contextlib
import ctypes
import functools
import itertools
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from graphc.backends.llvm.binding import binding
from graphc.backends.llvm.target import Target

Passes = Literal["none", "light"]

_lock = threading.RLock()


class LLVMError(RuntimeError):
    """LLVM refused a module or an object; the message shows the offending line."""


@functools.cache
def _target_machine(target: Target, opt_level: int) -> Any:
    """One code generator per target and level; they are reusable and take 0.3 ms to make.

    Small PIC code reaches its constants by a 4-byte offset (LLVM's default for a JIT spends a
    10-byte movabs on each), and the same object can go into a shared library.
    """
    llvm = binding()
    if target.triple != llvm.get_process_triple():
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=opt_level, reloc="pic", codemodel="small"
    )


@contextlib.contextmanager
def _parsed(text: str, verify: bool) -> Iterator[Any]:
    """A module, freed when the block ends, and its context after it. Left to a collection, say of
    an exception that has this frame in its traceback, the context may go first: it frees the
    module with it, which is then freed twice."""
    llvm = binding()
    # A context of its own: the global one keeps every type and constant for ever.
    with llvm.create_context() as context, contextlib.ExitStack() as owned:
        try:
            module = owned.enter_context(llvm.parse_assembly(text, context))
            if verify:
                module.verify()
        except RuntimeError as error:
            raise LLVMError(_explain(text, str(error))) from None
        yield module


def _explain(text: str, message: str) -> str:
    """LLVM's message plus the lines around the one it names."""
    for part in message.split("\n"):
        place = part.split(":")
        if len(place) > 3 and place[1].isdigit():
            number, lines = int(place[1]), text.split("\n")
            shown = range(max(number - 3, 0), min(number + 1, len(lines)))
            context = "\n".join(
                f"{'>' if i + 1 == number else ' '} {i + 1:5} {lines[i]}" for i in shown
            )
            return f"LLVM rejects generated code, {':'.join(place[3:]).strip()}:\n{context}"
    return f"LLVM rejects generated code: {message.strip()}"


def compile_object(
    text: str,
    target: Target,
    opt_level: int = 1,
    passes: Passes = "none",
    verify: bool = True,
) -> bytes:
    """Compiles LLVM assembly to a relocatable object of the target's format.

    opt_level is the code generator's (0-3). Emitters write explicit vector code, so "none" is the
    norm; "light" cleans up scalar code (SROA, CSE, instcombine, CFG). Raises LLVMError.
    """
    with _lock, _parsed(text, verify) as module:
        machine = _target_machine(target, opt_level)
        module.triple = target.triple
        module.data_layout = str(machine.target_data)
        if passes == "light":
            _run_light_passes(module, machine)
        try:
            return bytes(machine.emit_object(module))
        except RuntimeError as error:
            raise LLVMError(f"LLVM cannot generate code: {error}") from None


def compile_assembly(text: str, target: Target, opt_level: int = 1) -> str:
    """The target's assembly of a module, for people and tests (never reuse the parsed module)."""
    with _lock, _parsed(text, verify=True) as module:
        machine = _target_machine(target, opt_level)
        module.triple = target.triple
        module.data_layout = str(machine.target_data)
        return str(machine.emit_assembly(module))


def _run_light_passes(module: Any, machine: Any) -> None:
    llvm = binding()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(1))
    manager = llvm.create_new_function_pass_manager()
    manager.add_sroa_pass()
    manager.add_instruction_combine_pass()
    manager.add_new_gvn_pass()
    manager.add_simplify_cfg_pass()
    for function in module.functions:
        if not function.is_declaration:
            manager.run(function, builder)


@functools.cache
def _linker() -> Any:
    """The process's one in-memory linker (JITLink: small code, any distance between objects)."""
    llvm = binding()
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        reloc="pic", codemodel="small", jit=True
    )
    return llvm.create_lljit_compiler(machine, use_jit_link=True, suppress_errors=True)


class Library:
    """Objects linked together in this process; addresses stay valid as long as the Library lives.

    A name that no object defines is looked up in `symbols`, then among the process's own (libc,
    libm, CPython). Raises LLVMError for a missing or doubled name.
    """

    _serial = itertools.count()

    def __init__(self, objects: Iterable[bytes], symbols: Mapping[str, int] | None = None) -> None:
        objects, symbols = list(objects), symbols or {}
        with _lock:
            names = _check_symbols(objects, symbols)
            builder = binding().JITLibraryBuilder().add_current_process()
            for data in objects:
                builder.add_object_img(data)
            for name, address in symbols.items():
                builder.import_symbol(name, address)
            for name in names or ():
                builder.export_symbol(name)
            self._name = f"graphc.{next(self._serial)}"
            try:
                self._tracker = builder.link(_linker(), self._name)
            except RuntimeError as error:
                raise LLVMError(f"cannot link generated code: {error}") from None
        self._addresses = {name: int(self._tracker[name]) for name in names or ()}

    def address(self, name: str) -> int:
        """The address of a function or global defined by one of the objects."""
        if name not in self._addresses:
            with _lock:
                try:
                    found = _linker().lookup(self._name, name)
                except RuntimeError:
                    raise KeyError(f"no object of this library defines {name!r}") from None
                self._addresses[name] = int(found[name])
        return self._addresses[name]


def _check_symbols(objects: list[bytes], symbols: Mapping[str, int]) -> set[str] | None:
    """The defined names; None where the object format is not ELF and the linker must judge."""
    defined: set[str] = set()
    wanted: set[str] = set()
    for data in objects:
        table = elf_symbols(data)
        if table is None:
            return None
        doubled = defined & table[0]
        if doubled:
            raise LLVMError(f"two objects define {sorted(doubled)[0]!r}")
        defined |= table[0]
        wanted |= table[1]
    process = ctypes.CDLL(None)
    outside = sorted(wanted - defined - symbols.keys())
    missing = [name for name in outside if not hasattr(process, name)]
    if missing:
        raise LLVMError(f"undefined symbols: {', '.join(missing)}")
    return defined


def elf_symbols(data: bytes) -> tuple[set[str], set[str]] | None:
    """The global names that an ELF64 object defines and wants; None if it is something else.

    Source: the System V ABI's object files chapter (section header 64 bytes, symbol 24 bytes).
    """
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    (table_offset,) = struct.unpack_from("<Q", data, 40)
    (count,) = struct.unpack_from("<H", data, 60)
    sections = [
        struct.unpack_from("<IIQQQQII", data, table_offset + 64 * index) for index in range(count)
    ]
    defined: set[str] = set()
    wanted: set[str] = set()
    for _, kind, _, _, offset, size, link, first_global in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        strings = sections[link][4]
        start, stop = offset + 24 * first_global, offset + size
        for name_at, _, _, section, _, _ in struct.iter_unpack("<IBBHQQ", data[start:stop]):
            begin = strings + name_at
            name = data[begin : data.index(b"\0", begin)].decode()
            (defined if section else wanted).add(name)
    wanted.discard("_GLOBAL_OFFSET_TABLE_")
    return defined, wanted
