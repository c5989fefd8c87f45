"""A training step's state as a file of the system's: written beside the old one, which it then
replaces, and read whole before anything is changed."""

from __future__ import annotations

from graphc.backends.host.interface import CODE, Step
from graphc.backends.llvm.freestanding.messages import STRING, A, B, Texts, fail
from graphc.backends.llvm.freestanding.state import each_saved, file_bytes
from graphc.backends.llvm.freestanding.writer import Writer
from graphc.backends.llvm.text import Module

FUNCTIONS = ("state_save_file", "state_load_file")
_WRITE, _CREATE, _EMPTY, _CLOSE_ON_EXEC = 1, 0x40, 0x200, 0x80000  # of open, on Linux
_MODE = 0o666
_END, _BEGIN = 2, 0  # of lseek
_INTERRUPTED = 4
_MOST_HEADER = 100_000_000  # what the format allows
_SUFFIX = 64  # bytes behind a path: ".", a process, ".", a context, ".part"
FILE = CODE["FILE"]


def emit_state_files(module: Module, texts: Texts, step: Step) -> None:
    """Defines @graphc_state_save_file and @graphc_state_load_file: i32 (ptr ctx, ptr path)."""
    for text in (
        "declare i32 @open(ptr, i32, ...)", "declare i64 @lseek(i32, i64, i32)",
        "declare i32 @close(i32)", "declare i64 @read(i32, ptr, i64)",
        "declare i64 @write(i32, ptr, i64)", "declare i32 @fsync(i32)",
        "declare i32 @rename(ptr, ptr)", "declare i32 @unlink(ptr)", "declare i32 @getpid()",
        "declare ptr @malloc(i64)", "declare void @free(ptr)", "declare i64 @strlen(ptr)",
        "declare ptr @__errno_location()",
    ):
        module.declare(text)
    for name in ("read", "write"):
        _emit_all(module, texts, name)
    _emit_put(module, texts, step)
    _emit_save(module, texts)
    _emit_get(module, texts)
    _emit_load(module, texts, step)


def _emit_all(module: Module, texts: Texts, name: str) -> None:
    """read or write, again and again until all is done: an i1."""
    w = Writer(module, texts, f"i1 @graphc_{name}_all(i32 %file, ptr %data, i64 %bytes)")
    f = w.f
    done = f.alloca("i64", 1, 8)
    f.store(0, "i64", done, 8)
    head, body, end = f.label("head"), f.label("body"), f.label("end")
    stopped, some, nothing = f.label("stopped"), f.label("some"), f.label("nothing")
    f.br(head)
    f.block(head)
    here = f.load(done, "i64", 8)
    f.cond_br(f.cmp("slt", here, "%bytes"), body, end)
    f.block(body)
    place = w.bytes_behind("%data", here)
    count = f.call("i64", f"@{name}", "i32 %file", f"ptr {place}", f"i64 {f.sub('%bytes', here)}")
    f.cond_br(f.cmp("sgt", count, 0), some, stopped)
    f.block(some)
    f.store(f.add(here, count), "i64", done, 8)
    f.br(head)
    f.block(stopped)
    with f.when(f.cmp("slt", count, 0)):
        error = f.load(f.call("ptr", "@__errno_location"), "i32", 4)
        f.cond_br(f.let(f"icmp eq i32 {error}, {_INTERRUPTED}"), head, nothing)
        f.block(f.label("never"))
    f.br(nothing)
    f.block(nothing)
    f.ret("i1 false")
    f.block(end)
    f.ret("i1 true")


def _emit_put(module: Module, texts: Texts, step: Step) -> None:
    """The state into an open file, and out to the disk: an i1."""
    w = Writer(module, texts, "i1 @graphc_state_put(ptr %ctx, i32 %file)")
    f = w.f

    def write(data: str, size: object) -> None:
        well = f.call("i1", "@graphc_write_all", "i32 %file", f"ptr {data}", f"i64 {size}")
        w.end_if(f.let(f"xor i1 {well}, true"), "i1 false")

    write("@state_head", len(step.head))
    with f.loop(0, len(step.order)) as i:
        write(*each_saved(w, i))
    kept = f.call("i32", "@fsync", "i32 %file")
    f.ret(f"i1 {f.let(f'icmp eq i32 {kept}, 0')}")


def _emit_save(module: Module, texts: Texts) -> None:
    """Under another name first, of this context alone: what stops in the middle leaves the old
    file, and of threads that save at the same time one is the last."""
    w = Writer(module, texts, "i32 @graphc_state_save_file(ptr %ctx, ptr %path)")
    f = w.f
    w.refuse_if(w.is_null("%path"), "%ctx", CODE["ARGUMENT"], "path is NULL")
    room = f.add(f.call("i64", "@strlen", "ptr %path"), _SUFFIX)
    part = f.call("ptr", "@malloc", f"i64 {room}")
    w.refuse_if(
        w.is_null(part), "%ctx", CODE["MEMORY"], f"no memory for {A} bytes", numbers=(room,)
    )
    messenger = f.alloca("i64", 2, 8)
    f.store(w.address(part), "i64", messenger, 8)
    f.store(room, "i64", f.gep(messenger, 1, "i64"), 8)
    process = f.let(f"sext i32 {f.call('i32', '@getpid')} to i64")
    fail(f, messenger, 0, texts(f"{STRING}.{A}.{B}.part"), "%path", a=process, b=w.address("%ctx"))
    code = f.call("i32", "@graphc_state_write", "ptr %ctx", "ptr %path", f"ptr {part}")
    f.call("void", "@free", f"ptr {part}")
    f.ret(f"i32 {code}")
    w = Writer(module, texts, "i32 @graphc_state_write(ptr %ctx, ptr %path, ptr %part)")
    f = w.f
    flags = _WRITE | _CREATE | _EMPTY | _CLOSE_ON_EXEC
    file = f.let(f"call i32 (ptr, i32, ...) @open(ptr %part, i32 {flags}, i32 {_MODE})")
    w.refuse_if(
        f.let(f"icmp slt i32 {file}, 0"), "%ctx", FILE, f"{STRING} cannot be opened to be written",
        "%part",
    )
    written = f.call("i1", "@graphc_state_put", "ptr %ctx", f"i32 {file}")
    closed = f.call("i32", "@close", f"i32 {file}")
    closed = f.let(f"icmp eq i32 {closed}, 0")
    well = f.let(f"and i1 {written}, {closed}")
    with f.when(well):
        moved = f.call("i32", "@rename", "ptr %part", "ptr %path")
        w.end_if(f.let(f"icmp eq i32 {moved}, 0"), "i32 0")
    f.call("i32", "@unlink", "ptr %part")
    w.refuse_if("true", "%ctx", FILE, f"{STRING} cannot be written", "%path")
    f.ret("i32 0")


def _emit_get(module: Module, texts: Texts) -> None:
    """All of an open file, into memory, and what comes of it."""
    w = Writer(
        module, texts, "i32 @graphc_state_get(ptr %ctx, ptr %path, i32 %file, ptr %data, i64 %size)"
    )
    f = w.f
    well = f.call("i1", "@graphc_read_all", "i32 %file", "ptr %data", "i64 %size")
    w.refuse_if(
        f.let(f"xor i1 {well}, true"), "%ctx", FILE, f"{STRING} cannot be read", "%path"
    )
    f.ret("i32 " + f.call(
        "i32", "@graphc_state_load", "ptr %ctx", "ptr %data", "i64 %size"
    ))


def _emit_load(module: Module, texts: Texts, step: Step) -> None:
    """Reads, and does not map: what others do to the file meanwhile changes nothing here."""
    w = Writer(module, texts, "i32 @graphc_state_load_file(ptr %ctx, ptr %path)")
    f = w.f
    w.refuse_if(w.is_null("%path"), "%ctx", CODE["ARGUMENT"], "path is NULL")
    file = f.let(f"call i32 (ptr, i32, ...) @open(ptr %path, i32 {_CLOSE_ON_EXEC})")
    w.refuse_if(
        f.let(f"icmp slt i32 {file}, 0"), "%ctx", FILE, f"{STRING} cannot be opened", "%path"
    )
    size = f.call("i64", "@lseek", f"i32 {file}", "i64 0", f"i32 {_END}")
    f.call("i64", "@lseek", f"i32 {file}", "i64 0", f"i32 {_BEGIN}")
    code = f.call(
        "i32", "@graphc_state_sized", "ptr %ctx", "ptr %path", f"i32 {file}", f"i64 {size}"
    )
    f.call("i32", "@close", f"i32 {file}")
    f.ret(f"i32 {code}")
    w = Writer(
        module, texts, "i32 @graphc_state_sized(ptr %ctx, ptr %path, i32 %file, i64 %size)"
    )
    f = w.f
    data = file_bytes(step) - len(step.head)
    w.refuse_if(
        w.either(f.cmp("slt", "%size", data), f.cmp("sgt", "%size", data + _MOST_HEADER)), "%ctx",
        FILE, f"{STRING} has {A} bytes, and the step's state alone {B}", "%path",
        numbers=("%size", data),
    )
    memory = f.call("ptr", "@malloc", f"i64 {f.add('%size', 1)}")
    w.refuse_if(
        w.is_null(memory), "%ctx", CODE["MEMORY"], f"no memory for {A} bytes", numbers=("%size",)
    )
    code = f.call(
        "i32", "@graphc_state_get", "ptr %ctx", "ptr %path", "i32 %file", f"ptr {memory}",
        "i64 %size",
    )
    f.call("void", "@free", f"ptr {memory}")
    f.ret(f"i32 {code}")
