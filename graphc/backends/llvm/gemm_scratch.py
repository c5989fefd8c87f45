"""Scratch memory for packed operands: blocks are kept and used again, across kernels and threads.

Fresh pages cost more than the packing (42 ms for 64 MB), so blocks go back to a table of slots,
not to the system. A slot is claimed by an atomic exchange: no locks, any thread.
"""

import threading
from collections.abc import Callable

from graphc.backends.llvm.jit import Library
from graphc.backends.llvm.text import Module

SLOTS = 32
_HEADER = 64  # bytes before the block: what malloc returned, and the block's size
_WASTE = 16  # a block this many times larger than asked for is left for others

TAKE = "@graphc_scratch_take"
GIVE = "@graphc_scratch_give"


_lock = threading.Lock()
_library: list[Library] = []


def scratch_symbols(compiled: Callable[[str], bytes]) -> dict[str, int]:
    """The addresses of take and give: one table for the process, made at the first call.

    `compiled` turns the module's text into an object for this machine.
    """
    with _lock:
        if not _library:
            module = Module()
            emit_scratch(module)
            _library.append(Library([compiled(module.text())]))
    return {name[1:]: _library[0].address(name[1:]) for name in (TAKE, GIVE)}


def declare_scratch(module: Module) -> None:
    """Declares take and give in a module that uses them."""
    module.declare(f"declare ptr {TAKE}(i64)")
    module.declare(f"declare void {GIVE}(ptr)")


def emit_scratch(module: Module) -> None:
    """Defines take(bytes) -> 64-byte aligned memory, contents arbitrary, and give(pointer).

    take never fails: out of memory ends the process through abort(), as a failed page fault does.
    """
    module.globals.append(
        f"@graphc_scratch_slots = internal global [{SLOTS} x ptr] zeroinitializer"
    )
    module.declare("declare ptr @malloc(i64)")
    module.declare("declare void @free(ptr)")
    module.declare("declare void @abort()")
    _emit_take(module)
    _emit_give(module)


def _emit_take(module: Module) -> None:
    f = module.function(f"ptr {TAKE}(i64 %bytes)")
    found = f.label("found")
    limit = f.mul("%bytes", _WASTE)
    limit = f.smax(limit, 1 << 20)
    with f.loop(0, SLOTS) as slot:
        place = f.gep("@graphc_scratch_slots", slot, "ptr")
        peek = f.let(f"load atomic ptr, ptr {place} monotonic, align 8")
        with f.when(f.let(f"icmp ne ptr {peek}, null")):
            block = f.let(f"atomicrmw xchg ptr {place}, ptr null acquire")
            with f.when(f.let(f"icmp ne ptr {block}, null")):
                size = f.load(f.gep(block, -1, "i64"), "i64", 8)
                enough = f.cmp("sge", size, "%bytes")
                modest = f.cmp("sle", size, limit)
                other = f.label("other")
                f.cond_br(f.let(f"and i1 {enough}, {modest}"), found, other)
                f.block(other)
                f.call("void", GIVE, f"ptr {block}")
    raw = f.call("ptr", "@malloc", f"i64 {f.add('%bytes', _HEADER + 64)}")
    with f.when(f.let(f"icmp eq ptr {raw}, null")):
        f.call("void", "@abort")
    address = f.let(f"ptrtoint ptr {raw} to i64")
    padding = f.sub(_HEADER + 64, f.let(f"and i64 {address}, 63"))
    fresh = f.gep(raw, padding, "i8")
    f.store("%bytes", "i64", f.gep(fresh, -1, "i64"), 8)
    f.store(raw, "ptr", f.gep(fresh, -2, "i64"), 8)
    f.ret(f"ptr {fresh}")
    f.block(found)
    f.ret(f"ptr {block}")


def _emit_give(module: Module) -> None:
    f = module.function(f"void {GIVE}(ptr %block)")
    done = f.label("done")
    with f.loop(0, SLOTS) as slot:
        place = f.gep("@graphc_scratch_slots", slot, "ptr")
        swap = f.let(f"cmpxchg ptr {place}, ptr null, ptr %block release monotonic")
        free = f.label("occupied")
        f.cond_br(f.let(f"extractvalue {{ ptr, i1 }} {swap}, 1"), done, free)
        f.block(free)
    f.call("void", "@free", f"ptr {f.load(f.gep('%block', -2, 'i64'), 'ptr', 8)}")
    f.ret()
    f.block(done)
    f.ret()
