"""Text to object bytes."""

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from typing import Any, Literal

from graphc.backends.llvm.binding import LOCK, binding
from graphc.backends.llvm.direct import Generator, direct
from graphc.backends.llvm.library import LLVMError
from graphc.backends.llvm.target import Target
from graphc.backends.llvm.wasm import is_wasm, lowered

Passes = Literal["none", "light"]


class _Machines(threading.local):
    """A thread's code generators."""

    def __init__(self) -> None:
        self.made: dict[tuple[Target, int], Any] = {}


_machines = _Machines()
# Those that no thread uses now, of what goes without llvmlite's Python.
_idle: dict[tuple[Target, int], list[Generator]] = {}


def _target_machine(target: Target, opt_level: int) -> Any:
    """One code generator per thread, target and level; they are reusable and take 0.3 ms to make.

    Small PIC code reaches its constants by a 4-byte offset (LLVM's default for a JIT spends a
    10-byte movabs on each), and the same object can go into a shared library.
    """
    found = _machines.made.get((target, opt_level))
    if found is None:
        llvm = binding()
        if target.triple != llvm.get_process_triple():
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
        found = _machines.made[target, opt_level] = llvm.Target.from_triple(
            target.triple
        ).create_target_machine(
            cpu=target.cpu, features=target.features, opt=opt_level, codemodel="small",
            reloc=_relocation(target),
        )
    return found


def _relocation(target: Target) -> str:
    return "static" if is_wasm(target) else "pic"


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
    norm; "light" cleans up scalar code (SROA, CSE, instcombine, CFG). Raises LLVMError. Threads
    may compile side by side: each has contexts and code generators of its own. Where no function
    is to be optimised, nor are passes made ready that would leave each of them out.
    """
    if is_wasm(target):
        text = lowered(text)
    if all("optnone" in line for line in text.split("\n") if line.startswith("define ")):
        opt_level = 0
    if passes == "none" and (found := _directly(text, target, opt_level, verify)) is not None:
        return found
    with _parsed(text, verify) as module:
        machine = _target_machine(target, opt_level)
        module.triple = target.triple
        module.data_layout = str(machine.target_data)
        if passes == "light":
            with LOCK:
                _run_light_passes(module, machine)
        try:
            return bytes(machine.emit_object(module))
        except RuntimeError as error:
            raise LLVMError(f"LLVM cannot generate code: {error}") from None


def _directly(text: str, target: Target, opt_level: int, verify: bool) -> bytes | None:
    """An object, of a module without passes; None where llvmlite's own calls are to say why not."""
    llvm = direct()
    if llvm is None:
        return None
    idle = _idle.setdefault((target, opt_level), [])
    try:
        generator = idle.pop()
    except IndexError:
        made = llvm.generator(
            target.triple, target.cpu, target.features, opt_level, _relocation(target)
        )
        if made is None:
            return None
        generator = made
    problem = ctypes.c_char_p()
    context = llvm.ContextCreate()
    try:
        module = llvm.ParseAssembly(context, text.encode(), ctypes.byref(problem))
        if not module:
            return None
        try:
            if verify and llvm.VerifyModule(module, ctypes.byref(problem)):
                return None
            llvm.SetTarget(module, target.triple.encode())
            llvm.SetDataLayout(module, generator.layout)
            buffer = llvm.TargetMachineEmitToMemory(
                generator.machine, module, 1, ctypes.byref(problem)
            )
            if not buffer:
                return None
            found = ctypes.string_at(llvm.GetBufferStart(buffer), llvm.GetBufferSize(buffer))
            llvm.DisposeMemoryBuffer(buffer)
            return found
        finally:
            llvm.DisposeModule(module)
    finally:
        llvm.ContextDispose(context)
        llvm.DisposeString(problem)
        idle.append(generator)


def compile_assembly(text: str, target: Target, opt_level: int = 1) -> str:
    """The target's assembly of a module, for people and tests (never reuse the parsed module)."""
    with LOCK, _parsed(text, verify=True) as module:
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
