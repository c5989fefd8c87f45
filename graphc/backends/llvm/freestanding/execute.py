"""A call of a library: the code for its sizes, its block of words, and what comes of a failure."""

from __future__ import annotations

from graphc.backends.host.interface import CODE, Interface, Result
from graphc.backends.llvm import words
from graphc.backends.llvm.freestanding.layout import (
    LEVEL,
    TENSOR,
    VARIANT,
    WHERE,
    Tensor,
    Variant,
    Word,
    encoded,
)
from graphc.backends.llvm.freestanding.messages import FAIL, A, B, Texts
from graphc.backends.llvm.freestanding.tables import Tables
from graphc.backends.llvm.freestanding.writer import Writer
from graphc.backends.llvm.text import Module, Value


def emit_execute(
    module: Module, texts: Texts, interface: Interface, tables: Tables, ones: tuple[str, ...]
) -> None:
    """Defines @graphc_execute, which runs what the checks have found right. `ones`: the named
    sizes that have code of their own where they are 1."""
    _emit_data(module, texts)
    _emit_find(module, texts, interface, ones)
    _emit_point(module, texts, interface)
    _emit_failed(module, texts)
    _emit_copies(module, texts, interface, tables)
    w = Writer(
        module, texts, "i32 @graphc_execute(ptr %ctx, ptr %variant, ptr %inputs, ptr %outputs, "
        "ptr %dims, ptr %computed, ptr %needs)",
    )
    f, variant = w.f, "%variant"
    arena = f.call("i64", w.field(variant, VARIANT, Variant.ARENA), "ptr %dims")
    room = w.get("%ctx", Word.ARENA_BYTES)
    w.refuse_if(
        f.cmp("sgt", arena, room), "%ctx", CODE["RANGE"],
        f"a call with these sizes needs {A} bytes, and the context has {B}: options.sizes says "
        "which sizes it is made for", numbers=(arena, room),
    )
    block = w.bytes_behind("%ctx", w.field(variant, VARIANT, Variant.BLOCK))
    f.call(
        "void", "@graphc_point", f"ptr {variant}", f"ptr {block}", "ptr %ctx", "ptr %inputs",
        "ptr %outputs", "ptr %dims",
    )
    pool = w.bytes_behind("%ctx", 256)
    f.call("void", "@graphc_pool_enter", f"ptr {pool}")
    answer = f.call("i64", w.field(variant, VARIANT, Variant.RUN), f"ptr {block}")
    f.call("void", "@graphc_pool_leave")
    bad, good = f.label("bad"), f.label("good")
    f.cond_br(f.cmp("ne", answer, 0), bad, good)
    f.block(bad)
    f.ret("i32 " + f.call(
        "i32", "@graphc_failed", "ptr %ctx", f"ptr {variant}", f"ptr {block}"
    ))
    f.block(good)
    if interface.step is not None:
        f.call("void", "@graphc_commit", "ptr %ctx")
    f.call(
        "void", "@graphc_copies", "ptr %ctx", "ptr %inputs", "ptr %outputs", "ptr %computed",
        "ptr %needs",
    )
    f.ret("i32 0")


def _emit_data(module: Module, texts: Texts) -> None:
    """Where data lies."""
    w = Writer(module, texts, "ptr @graphc_at(ptr %ctx, i64 %place)")
    f = w.f
    offset, kind = f.let("ashr i64 %place, 2"), f.let("and i64 %place, 3")
    starts = {
        "library": "@graphc_data", "file": w.pointer("%ctx", Word.BASE),
        "context": w.pointer("%ctx", Word.STATE),
    }
    start = "null"
    for number, where in enumerate(WHERE):
        same = f.cmp("eq", kind, number)
        start = f.let(f"select i1 {same}, ptr {starts[where]}, ptr {start}")
    f.ret(f"ptr {w.bytes_behind(start, offset)}")


def _emit_find(
    module: Module, texts: Texts, interface: Interface, ones: tuple[str, ...]
) -> None:
    """The variant for a call's sizes, or null."""
    w = Writer(module, texts, "ptr @graphc_find(ptr %ctx, ptr %dims)")
    f = w.f
    mask: Value = 0
    for bit, name in enumerate(ones):
        place = next(i for i, size in enumerate(interface.sizes) if size.name == name)
        one = f.cmp("eq", f.load(f.gep("%dims", place, "i64"), "i64", 8), 1)
        mask = f.add(mask, f.let(f"shl i64 {f.let(f'zext i1 {one} to i64')}, {bit}"))
    level = w.table("@levels", w.get("%ctx", Word.LEVEL), LEVEL)
    variants = f.load(f.let(f"getelementptr {LEVEL}, ptr {level}, i32 0, i32 1"), "ptr", 8)
    count = f.load(f.let(f"getelementptr {LEVEL}, ptr {level}, i32 0, i32 2"), "i64", 8)
    with f.loop(0, count) as i:
        variant = w.table(variants, i, VARIANT)
        has = w.field(variant, VARIANT, Variant.ONES)
        w.end_if(f.cmp("eq", has, mask), f"ptr {variant}")
    f.ret("ptr null")


def _emit_point(module: Module, texts: Texts, interface: Interface) -> None:
    """Fills in what differs from call to call."""
    w = Writer(
        module, texts, "void @graphc_point(ptr %variant, ptr %block, ptr %ctx, ptr %inputs, "
        "ptr %outputs, ptr %dims)",
    )
    f = w.f
    for word, held in (
        (words.ARENA, Word.ARENA), (words.SCRATCH, Word.SCRATCH), (words.WORKERS, Word.THREADS),
    ):
        f.store(w.get("%ctx", held), "i64", f.gep("%block", word, "i64"), 8)
    f.store(0, "i64", f.gep("%block", words.STATUS, "i64"), 8)
    for first, many, names, tensors in (
        (Variant.INPUTS, Variant.INPUTS_COUNT, Variant.INPUTS_FROM, "%inputs"),
        (Variant.OUTPUTS, Variant.OUTPUTS_COUNT, Variant.OUTPUTS_FROM, "%outputs"),
    ):
        start = w.field("%variant", VARIANT, first)
        table = w.field("%variant", VARIANT, names)
        with f.loop(0, w.field("%variant", VARIANT, many)) as i:
            source = f.load(f.gep(table, i, "i64"), "i64", 8)
            with f.when(f.cmp("sge", source, 0)):
                data = w.field(w.table(tensors, source, TENSOR), TENSOR, Tensor.DATA)
                f.store(w.address(data), "i64", f.gep("%block", f.add(start, i), "i64"), 8)
    start = w.field("%variant", VARIANT, Variant.DIMS)
    table = w.field("%variant", VARIANT, Variant.DIMS_FROM)
    with f.loop(0, w.field("%variant", VARIANT, Variant.DIMS_COUNT)) as i:
        which = f.load(f.gep(table, i, "i64"), "i64", 8)
        size = f.load(f.gep("%dims", which, "i64"), "i64", 8)
        f.store(size, "i64", f.gep("%block", f.add(start, i), "i64"), 8)
    f.ret()


def _emit_failed(module: Module, texts: Texts) -> None:
    """The text of the Check that stopped a call."""
    w = Writer(module, texts, "i32 @graphc_failed(ptr %ctx, ptr %variant, ptr %block)")
    f = w.f
    step, check, value = (
        f.load(f.gep("%block", words.STATUS + i, "i64"), "i64", 8) for i in (1, 2, 3)
    )
    checks = w.field("%variant", VARIANT, Variant.CHECKS)
    table = f.load(f.gep(checks, f.sub(step, 1), "ptr"), "ptr", 8)
    template = f.load(f.gep(table, check, "ptr"), "ptr", 8)
    f.ret("i32 " + f.call(
        "i32", FAIL, "ptr %ctx", f"i32 {CODE['VALUE']}", f"ptr {template}", "ptr null",
        "ptr null", f"i64 {value}", "i64 0", "i64 0",
    ))


def _emit_copies(
    module: Module, texts: Texts, interface: Interface, tables: Tables
) -> None:
    """Outputs that no program writes."""
    w = Writer(
        module, texts, "void @graphc_copies(ptr %ctx, ptr %inputs, ptr %outputs, "
        "ptr %computed, ptr %needs)",
    )
    f = w.f
    module.declare("declare ptr @memcpy(ptr, ptr, i64)")

    def data(tensors: str, number: int) -> str:
        return w.field(w.table(tensors, number, TENSOR), TENSOR, Tensor.DATA)

    def source(result: Result) -> str:
        if result.place is not None:
            place = encoded(result.place)
            return f.call("ptr", "@graphc_at", "ptr %ctx", f"i64 {place}")
        return data("%inputs" if result.kind == "input" else "%outputs", result.number)

    for i, result in enumerate(interface.results):
        if result.kind == "output":
            continue
        if result.kind == "size":
            word = f.gep("%computed", tables.size_results[i], "i64")
            f.store(f.load(word, "i64", 8), "i64", data("%outputs", i), 8)
            continue
        needed = f.gep("%needs", len(interface.inputs) + i, "i64")
        size = f.load(needed, "i64", 8)
        with f.when(f.cmp("sgt", size, 0)):
            f.call("ptr", "@memcpy", f"ptr {data('%outputs', i)}", f"ptr {source(result)}",
                   f"i64 {size}")
    f.ret()
