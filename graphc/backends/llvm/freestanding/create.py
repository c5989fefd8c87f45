"""The memory of a context: how much it is, where it comes from, how it is laid out.

    words | pool | text | blocks, one for each variant | a step's state | arena | room

A room is scratch, and the pool's threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc.backends.host.interface import ABI, CODE, MOST_THREADS, Interface
from graphc.backends.llvm.freestanding.layout import (
    ALIGN,
    HEAD,
    LEVEL,
    OPTIONS,
    POOL_BYTES,
    SIZE,
    SLOTS,
    TEXT_BYTES,
    THREAD_BYTES,
    VARIANT,
    Option,
    Variant,
    Word,
)
from graphc.backends.llvm.freestanding.messages import STRING, A, B, C, Texts
from graphc.backends.llvm.freestanding.writer import Writer
from graphc.backends.llvm.text import Module, Value

POOL, TEXT = HEAD, HEAD + POOL_BYTES
FIRST_BLOCK = TEXT + TEXT_BYTES
_READ, _PRIVATE, _END, _CLOSE_ON_EXEC = 1, 2, 2, 0x80000  # of mmap, lseek and open, on Linux
# words of a plan: what create and bytes find out of options
THREADS, LEVEL_NUMBER, ARENA, ROOM, TOTAL, PLAN_WORDS = range(6)

_SAME = """
define internal i1 @graphc_same(ptr %a, ptr %b) nounwind {
entry:
  br label %head
head:
  %n = phi i64 [ 0, %entry ], [ %more, %equal ]
  %pa = getelementptr i8, ptr %a, i64 %n
  %pb = getelementptr i8, ptr %b, i64 %n
  %x = load i8, ptr %pa, align 1
  %y = load i8, ptr %pb, align 1
  %more = add i64 %n, 1
  %same = icmp eq i8 %x, %y
  br i1 %same, label %equal, label %differ
equal:
  %end = icmp eq i8 %x, 0
  br i1 %end, label %all, label %head
all:
  ret i1 true
differ:
  ret i1 false
}
define internal i1 @graphc_equal(ptr %a, ptr %b, i64 %bytes) nounwind {
entry:
  br label %head
head:
  %n = phi i64 [ 0, %entry ], [ %more, %body ]
  %again = icmp slt i64 %n, %bytes
  br i1 %again, label %body, label %all
body:
  %pa = getelementptr i8, ptr %a, i64 %n
  %pb = getelementptr i8, ptr %b, i64 %n
  %x = load i8, ptr %pa, align 1
  %y = load i8, ptr %pb, align 1
  %more = add i64 %n, 1
  %same = icmp eq i8 %x, %y
  br i1 %same, label %head, label %differ
all:
  ret i1 true
differ:
  ret i1 false
}
"""


def emit_create(
    module: Module, texts: Texts, interface: Interface, levels: Sequence[str], blocks: int,
    files: bool,
) -> None:
    """Defines what the entries for options, memory and threads call. `blocks`: bytes of a level's
    blocks, at most; `files`: whether the system has any."""
    module.globals.append(_SAME)
    for text in (
        "declare ptr @malloc(i64)", "declare void @free(ptr)", "declare ptr @memset(ptr, i32, i64)",
        "declare i32 @graphc_cpu_level()",
    ):
        module.declare(text)
    state = -(-(FIRST_BLOCK + blocks) // ALIGN) * ALIGN
    head = state
    if interface.step is not None:  # with a line behind it that wide loads may touch
        head += -(-interface.step.memory // ALIGN) * ALIGN + ALIGN
    _emit_pick(module, texts, levels)
    _emit_room(module, texts)
    _emit_plan(module, texts, interface, head)
    _emit_place(module, texts)
    _emit_fill(module, texts, interface)
    if interface.file_bytes:
        _emit_weights(module, texts, interface, files)
    _emit_made(module, texts, interface, state, head)
    _emit_gone(module, texts, files)


def _option(w: Writer, field: Option) -> str:
    return w.field("%options", OPTIONS, field)


def _emit_pick(module: Module, texts: Texts, levels: Sequence[str]) -> None:
    """The number of the level to run: the best, or the one that has a name; below 0: a code."""
    w = Writer(module, texts, "i32 @graphc_pick(ptr %m, ptr %cpu, ptr %level)")
    f = w.f
    best = f.let(f"sext i32 {f.call('i32', '@graphc_cpu_level')} to i64")
    w.refuse_if(
        f.cmp("slt", best, 0), "%m", CODE["CPU"], "the library has no code that this CPU can run"
    )
    f.store(best, "i64", "%level", 8)
    w.end_if(w.is_null("%cpu"), "i32 0")
    with f.loop(0, len(levels)) as i:
        name = f.load(w.table("@levels", i, LEVEL), "ptr", 8)
        with f.when(f.call("i1", "@graphc_same", "ptr %cpu", f"ptr {name}")):
            w.refuse_if(
                f.cmp("sgt", i, best), "%m", CODE["CPU"], f"this CPU cannot run code for {STRING}",
                "%cpu",
            )
            f.store(i, "i64", "%level", 8)
            f.ret("i32 0")
            f.block(f.label("never"))
    w.refuse_if(
        "true", "%m", CODE["CPU"],
        f"the library has no code for {STRING}, but for {', '.join(levels)}", "%cpu",
    )
    f.ret("i32 0")


def _emit_room(module: Module, texts: Texts) -> None:
    """Bytes of scratch, and of all of the room, for so many threads."""
    w = Writer(module, texts, "i64 @graphc_scratch(i64 %level, i64 %threads)")
    f = w.f
    level = w.table("@levels", "%level", LEVEL)
    table = f.load(f.let(f"getelementptr {LEVEL}, ptr {level}, i32 0, i32 3"), "ptr", 8)
    at = f.sub(f.smin("%threads", SLOTS), 1)
    f.ret(f"i64 {f.load(f.gep(table, at, 'i64'), 'i64', 8)}")
    w = Writer(module, texts, "i64 @graphc_room(i64 %level, i64 %threads)")
    f = w.f
    scratch = f.call("i64", "@graphc_scratch", "i64 %level", "i64 %threads")
    room = f.add(f.mul("%threads", THREAD_BYTES), _up(w, scratch))
    f.ret(f"i64 {f.add(room, 2 * ALIGN)}")


def _up(w: Writer, size: Value) -> Value:
    """The next multiple of ALIGN."""
    return w.f.let(f"and i64 {w.f.add(size, ALIGN - 1)}, {-ALIGN}")


def _emit_plan(module: Module, texts: Texts, interface: Interface, head: int) -> None:
    """What options, which may be null, come to."""
    w = Writer(module, texts, "i32 @graphc_plan(ptr %m, ptr %options, ptr %plan)")
    f, sizes = w.f, interface.sizes
    dims = f.alloca("i64", max(len(sizes), 1), 8)
    level = f.alloca("i64", 1, 8)
    threads, cpu = f.alloca("i64", 1, 8), f.alloca("ptr", 1, 8)
    f.store(1, "i64", threads, 8)
    f.store("null", "ptr", cpu, 8)
    for i, each in enumerate(sizes):
        f.store(each.most, "i64", f.gep(dims, i, "i64"), 8)
    with f.when(f.let("icmp ne ptr %options, null")):
        abi = _option(w, Option.ABI)
        w.refuse_if(
            f.cmp("ne", abi, ABI), "%m", CODE["ARGUMENT"],
            f"options.abi is {A}, and the library's {B}", numbers=(abi, ABI),
        )
        wanted = _option(w, Option.THREADS)
        w.refuse_if(
            w.either(f.cmp("slt", wanted, 0), f.cmp("sgt", wanted, MOST_THREADS)), "%m",
            CODE["THREADS"], f"threads is {A}: at most {B}", numbers=(wanted, MOST_THREADS),
        )
        f.store(f.smax(wanted, 1), "i64", threads, 8)
        f.store(_option(w, Option.CPU), "ptr", cpu, 8)
        given = _option(w, Option.SIZES)
        with f.when(f.let(f"icmp ne ptr {given}, null")):
            _limits(w, interface, given, dims)
    w.end_unless_well(f.call(
        "i32", "@graphc_pick", "ptr %m", f"ptr {f.load(cpu, 'ptr', 8)}", f"ptr {level}"
    ))
    found, count = f.load(level, "i64", 8), f.load(threads, "i64", 8)
    arena = f.call("i64", "@graphc_arena", f"i64 {found}", f"ptr {dims}")
    room = f.call("i64", "@graphc_room", f"i64 {found}", f"i64 {count}")
    total = f.add(f.add(_up(w, arena), head + ALIGN), room)
    for word, value in enumerate((count, found, arena, room, total)):
        f.store(value, "i64", f.gep("%plan", word, "i64"), 8)
    f.ret("i32 0")
    w = Writer(module, texts, "i64 @graphc_arena(i64 %level, ptr %dims)")
    f = w.f
    variants, count = _variants(w, "%level")
    loop = f.carry_loop(0, count, 1, [("i64", "0")])
    variant = w.table(variants, loop.index, VARIANT)
    size = f.call("i64", w.field(variant, VARIANT, Variant.ARENA), "ptr %dims")
    (most,) = loop.close([str(f.smax(loop.values[0], size))])
    f.ret(f"i64 {most}")


def _variants(w: Writer, level: Value) -> tuple[str, str]:
    """A level's table, and how many are in it."""
    f, record = w.f, w.table("@levels", level, LEVEL)
    return (
        f.load(f.let(f"getelementptr {LEVEL}, ptr {record}, i32 0, i32 1"), "ptr", 8),
        f.load(f.let(f"getelementptr {LEVEL}, ptr {record}, i32 0, i32 2"), "i64", 8),
    )


def _limits(w: Writer, interface: Interface, given: str, dims: str) -> None:
    """The largest sizes that a context is made for."""
    f = w.f
    with f.loop(0, len(interface.sizes)) as i:
        value = f.load(f.gep(given, i, "i64"), "i64", 8)
        name = f.load(w.table("@sizes", i, SIZE), "ptr", 8)
        record = w.table("@sizes", i, SIZE)
        least, most = (
            f.load(f.let(f"getelementptr {SIZE}, ptr {record}, i32 0, i32 {n}"), "i64", 8)
            for n in (1, 2)
        )
        w.refuse_if(
            w.either(f.cmp("slt", value, least), f.cmp("sgt", value, most)), "%m", CODE["RANGE"],
            f"options.sizes has {A} for {STRING}, which may be {B} to {C}", name,
            numbers=(value, least, most),
        )
        f.store(value, "i64", f.gep(dims, i, "i64"), 8)


def _emit_place(module: Module, texts: Texts) -> None:
    """Has scratch and the pool's memory for so many threads lie in a room."""
    w = Writer(module, texts, "void @graphc_place(ptr %ctx, ptr %room, i64 %threads)")
    f = w.f
    scratch = f.call(
        "i64", "@graphc_scratch", f"i64 {w.get('%ctx', Word.LEVEL)}", "i64 %threads"
    )
    start = f.let(f"and i64 {f.add(w.address('%room'), ALIGN - 1)}, {-ALIGN}")
    w.set("%ctx", Word.SCRATCH, start)
    counters = f.let(f"inttoptr i64 {f.add(start, _up(w, scratch))} to ptr")
    records = w.bytes_behind(counters, f.mul("%threads", 128))
    pool = w.bytes_behind("%ctx", POOL)
    f.call("void", "@graphc_pool_place", f"ptr {pool}", f"ptr {counters}", f"ptr {records}")
    f.ret()


def _emit_fill(module: Module, texts: Texts, interface: Interface) -> None:
    """Puts into every block where constants and weights lie; a step's state begins."""
    w = Writer(module, texts, "void @graphc_fill(ptr %ctx)")
    f = w.f
    if interface.step is not None:
        f.call("void", "@graphc_begin", "ptr %ctx")
    variants, count = _variants(w, w.get("%ctx", Word.LEVEL))
    with f.loop(0, count) as i:
        variant = w.table(variants, i, VARIANT)
        block = w.bytes_behind("%ctx", w.field(variant, VARIANT, Variant.BLOCK))
        table = w.field(variant, VARIANT, Variant.DATA)
        with f.loop(0, w.field(variant, VARIANT, Variant.DATA_COUNT)) as j:
            pair = w.table(table, j, "{ i64, i64 }")
            word = f.load(pair, "i64", 8)
            place = f.load(f.gep(pair, 1, "i64"), "i64", 8)
            data = f.call("ptr", "@graphc_at", "ptr %ctx", f"i64 {place}")
            f.store(w.address(data), "i64", f.gep(block, word, "i64"), 8)
    f.ret()


def _emit_weights(module: Module, texts: Texts, interface: Interface, files: bool) -> None:
    """Finds the weights' file in memory, or maps it: the words BASE, MAPPED, MAPPED_BYTES."""
    bytes_ = interface.file_bytes
    w = Writer(module, texts, "i32 @graphc_weights(ptr %m, ptr %options, ptr %ctx)")
    f, code = w.f, CODE["FILE"]
    w.refuse_if(
        w.is_null("%options"), "%m", code,
        "the weights of this library are in a file: options.weights_path says where",
    )
    given = _option(w, Option.WEIGHTS)
    with f.when(f.let(f"icmp ne ptr {given}, null")):
        _weights_in_memory(w, given, bytes_)
    if files:
        _map_weights(w, bytes_)
    else:
        w.refuse_if("true", "%m", code, "the weights are in a file, and it was not given")
    f.ret("i32 0")
    w = Writer(module, texts, "i32 @graphc_belongs(ptr %m, ptr %file)")
    f = w.f
    same = f.call(
        "i1", "@graphc_equal", "ptr %file", "ptr @graphc_file", f"i64 {len(interface.file)}"
    )
    w.refuse_if(
        f.let(f"xor i1 {same}, true"), "%m", code,
        "the weights' file is another than the one that was made with this library",
    )
    f.ret("i32 0")


def _weights_in_memory(w: Writer, given: str, bytes_: int) -> None:
    """The caller has them: ends the function."""
    f, code = w.f, CODE["FILE"]
    size = _option(w, Option.WEIGHTS_BYTES)
    w.refuse_if(
        f.cmp("ne", size, bytes_), "%m", code,
        f"options.weights_bytes is {A}, and the file has {B}", numbers=(size, bytes_),
    )
    off = f.let(f"and i64 {w.address(given)}, {ALIGN - 1}")
    w.refuse_if(
        f.cmp("ne", off, 0), "%m", CODE["ARGUMENT"],
        f"options.weights is not aligned to {A} bytes", numbers=(ALIGN,),
    )
    w.end_unless_well(f.call("i32", "@graphc_belongs", "ptr %m", f"ptr {given}"))
    w.set("%ctx", Word.BASE, w.address(given))
    f.ret("i32 0")
    f.block(f.label("never"))


def _map_weights(w: Writer, bytes_: int) -> None:
    """Opens and maps the file."""
    for text in (
        "declare i32 @open(ptr, i32, ...)", "declare i64 @lseek(i32, i64, i32)",
        "declare i32 @close(i32)", "declare ptr @mmap(ptr, i64, i32, i32, i32, i64)",
        "declare i32 @munmap(ptr, i64)",
    ):
        w.f.module.declare(text)
    f, code = w.f, CODE["FILE"]
    path = _option(w, Option.WEIGHTS_PATH)
    w.refuse_if(
        w.is_null(path), "%m", code,
        "the weights of this library are in a file: options.weights_path says where",
    )
    file = f.let(f"call i32 (ptr, i32, ...) @open(ptr {path}, i32 {_CLOSE_ON_EXEC})")
    w.refuse_if(
        f.let(f"icmp slt i32 {file}, 0"), "%m", code, f"{STRING} cannot be opened", path
    )
    size = f.call("i64", "@lseek", f"i32 {file}", "i64 0", f"i32 {_END}")
    other = f.cmp("ne", size, bytes_)
    mapped = f.alloca("ptr", 1, 8)
    f.store("null", "ptr", mapped, 8)
    with f.when(f.let(f"xor i1 {other}, true")):
        found = f.call(
            "ptr", "@mmap", "ptr null", f"i64 {bytes_}", f"i32 {_READ}", f"i32 {_PRIVATE}",
            f"i32 {file}", "i64 0",
        )
        f.store(found, "ptr", mapped, 8)
    f.call("i32", "@close", f"i32 {file}")
    w.refuse_if(
        other, "%m", code, f"{STRING} has {A} bytes, and the weights of this library {B}", path,
        numbers=(size, bytes_),
    )
    base = f.load(mapped, "ptr", 8)
    w.refuse_if(
        f.cmp("eq", w.address(base), -1), "%m", code, f"{STRING} cannot be mapped", path
    )
    belongs = f.call("i32", "@graphc_belongs", "ptr %m", f"ptr {base}")
    with f.when(f.let(f"icmp ne i32 {belongs}, 0")):
        f.call("i32", "@munmap", f"ptr {base}", f"i64 {bytes_}")
        f.ret(f"i32 {belongs}")
        f.block(f.label("never"))
    w.set("%ctx", Word.BASE, w.address(base))
    w.set("%ctx", Word.MAPPED, w.address(base))
    w.set("%ctx", Word.MAPPED_BYTES, bytes_)


def _emit_made(
    module: Module, texts: Texts, interface: Interface, state: int, head: int
) -> None:
    """A context in memory that is its own, by a plan."""
    w = Writer(
        module, texts,
        "i32 @graphc_made(ptr %m, ptr %options, ptr %plan, ptr %memory, ptr %own)",
    )
    f = w.f
    threads, level, arena, room, _ = (
        f.load(f.gep("%plan", i, "i64"), "i64", 8) for i in range(PLAN_WORDS)
    )
    ctx = "%memory"
    f.call("ptr", "@memset", f"ptr {ctx}", "i32 0", f"i64 {head}")
    start = w.bytes_behind(ctx, head)
    behind = w.bytes_behind(start, f.add(_up(w, arena), ALIGN))
    for word, value in (
        (Word.MESSAGE, w.address(w.bytes_behind(ctx, TEXT))), (Word.MESSAGE_BYTES, TEXT_BYTES),
        (Word.THREADS, 1), (Word.LEVEL, level), (Word.MEMORY, w.address("%own")),
        (Word.ARENA, w.address(start)), (Word.ARENA_BYTES, arena),
        (Word.ROOM, w.address(behind)), (Word.ROOM_BYTES, room),
        (Word.STATE, w.address(w.bytes_behind(ctx, state))),
    ):
        w.set(ctx, word, value)
    if interface.file_bytes:
        w.end_unless_well(f.call(
            "i32", "@graphc_weights", "ptr %m", "ptr %options", f"ptr {ctx}"
        ))
    f.call("void", "@graphc_fill", f"ptr {ctx}")
    pool = w.bytes_behind(ctx, POOL)
    f.call("void", "@graphc_pool_list", f"ptr {pool}")
    found = f.call("i32", "@graphc_threads", "ptr %m", f"ptr {ctx}", f"i64 {threads}")
    with f.when(f.let(f"icmp ne i32 {found}, 0")):
        f.call("void", "@graphc_gone", f"ptr {ctx}")
        f.ret(f"i32 {found}")
        f.block(f.label("never"))
    w.set(ctx, Word.MAGIC, w.address("@levels"))
    f.ret("i32 0")
    _emit_threads(module, texts)


def _emit_threads(module: Module, texts: Texts) -> None:
    """Room for so many threads, and the threads."""
    w = Writer(module, texts, "i32 @graphc_threads(ptr %m, ptr %ctx, i64 %threads)")
    f = w.f
    pool = w.bytes_behind("%ctx", POOL)
    f.call("i32", "@graphc_pool_resize", f"ptr {pool}", "i32 1")
    w.set("%ctx", Word.THREADS, 1)
    level = w.get("%ctx", Word.LEVEL)
    needed = f.call("i64", "@graphc_room", f"i64 {level}", "i64 %threads")
    with f.when(f.cmp("sgt", needed, w.get("%ctx", Word.ROOM_BYTES))):
        w.refuse_if(
            f.cmp("eq", w.get("%ctx", Word.MEMORY), 0), "%m", CODE["MEMORY"],
            f"{A} threads need more memory than the context was given", numbers=("%threads",),
        )
        larger = f.call("ptr", "@malloc", f"i64 {needed}")
        w.refuse_if(
            w.is_null(larger), "%m", CODE["MEMORY"], f"no memory for {A} bytes", numbers=(needed,)
        )
        f.call("void", "@free", f"ptr {w.pointer('%ctx', Word.LARGER)}")
        for word in (Word.LARGER, Word.ROOM):
            w.set("%ctx", word, w.address(larger))
        w.set("%ctx", Word.ROOM_BYTES, needed)
    f.call(
        "void", "@graphc_place", "ptr %ctx", f"ptr {w.pointer('%ctx', Word.ROOM)}", "i64 %threads"
    )
    narrow = f.let("trunc i64 %threads to i32")
    started = f.call("i32", "@graphc_pool_resize", f"ptr {pool}", f"i32 {narrow}")
    wide = f.let(f"sext i32 {started} to i64")
    w.set("%ctx", Word.THREADS, wide)
    w.refuse_if(
        f.cmp("slt", wide, "%threads"), "%m", CODE["THREADS"],
        f"the system gives {A} of {B} threads", numbers=(wide, "%threads"),
    )
    f.ret("i32 0")


def _emit_gone(module: Module, texts: Texts, files: bool) -> None:
    """Ends a context, whose memory is its own no more."""
    w = Writer(module, texts, "void @graphc_gone(ptr %ctx)")
    f = w.f
    w.set("%ctx", Word.MAGIC, 0)
    f.call("void", "@graphc_pool_forget", f"ptr {w.bytes_behind('%ctx', POOL)}")
    f.call("void", "@free", f"ptr {w.pointer('%ctx', Word.LARGER)}")
    if not files:
        f.ret()
        return
    mapped = w.get("%ctx", Word.MAPPED)
    with f.when(f.cmp("ne", mapped, 0)):
        module.declare("declare i32 @munmap(ptr, i64)")
        f.call(
            "i32", "@munmap", f"ptr {w.pointer('%ctx', Word.MAPPED)}",
            f"i64 {w.get('%ctx', Word.MAPPED_BYTES)}",
        )
    f.ret()


