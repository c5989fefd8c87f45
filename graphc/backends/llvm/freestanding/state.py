"""The state of a training step in a context: how it begins, what a call changes, and the functions
that give it out, as bytes of a safetensors file."""

from __future__ import annotations

from graphc.backends.host.interface import CODE, Interface, Step
from graphc.backends.llvm.freestanding.layout import ENTRY, TENSOR, Tensor, Word, encoded
from graphc.backends.llvm.freestanding.messages import STRING, A, B, Texts, escaped
from graphc.backends.llvm.freestanding.state_reader import emit_reader
from graphc.backends.llvm.freestanding.tables import array
from graphc.backends.llvm.freestanding.writer import Writer
from graphc.backends.llvm.text import Module

# what callers see of a step besides its call
FUNCTIONS = ("state_data", "state_bytes", "state_save", "state_load", "seed")
_TRIPLE = "{ i64, i64, i64 }"
_WORDS = 624  # of a generator's state; behind them the place of the next, and a spare number
_MULTIPLIER = 1812433253


def emit_state(module: Module, texts: Texts, interface: Interface) -> None:
    """Defines @graphc_outside, @graphc_begin, @graphc_commit, and what FUNCTIONS do inside."""
    step = interface.step
    assert step is not None
    module.declare("declare ptr @memcpy(ptr, ptr, i64)")
    array(module, "@state_offsets", "i64", (each.offset for each in step.states))
    array(module, "@state_sizes", "i64", (state_bytes(step, i) for i in range(len(step.states))))
    array(module, "@state_order", "i64", step.order)
    module.globals.append(
        f'@state_head = internal constant [{len(step.head)} x i8] c"{escaped(step.head)}", align 8'
    )
    _emit_outside(module, texts, interface)
    _emit_begin(module, texts, step)
    _emit_commit(module, texts, step)
    _emit_save(module, texts, step)
    emit_reader(module, texts, step)
    _emit_seed(module, texts, step)


def state_bytes(step: Step, number: int) -> int:
    """Of one state."""
    entry = step.states[number].entry
    total = entry.dtype.itemsize
    for size in entry.shape:
        assert isinstance(size, int)
        total *= size
    return total


def file_bytes(step: Step) -> int:
    """Of all states as a file."""
    return len(step.head) + sum(state_bytes(step, i) for i in step.order)


def _emit_outside(module: Module, texts: Texts, interface: Interface) -> None:
    """A call's tensors are no part of the state, which changes under them."""
    step = interface.step
    assert step is not None
    w = Writer(
        module, texts, "i32 @graphc_outside(ptr %ctx, ptr %inputs, ptr %outputs, ptr %needs)"
    )
    f, start = w.f, w.get("%ctx", Word.STATE)
    end, first = f.add(start, step.memory), 0
    for kind, entries in (("inputs", interface.inputs), ("outputs", interface.outputs)):
        with f.loop(0, len(entries)) as i:
            tensor = w.table(f"%{kind}", i, TENSOR)
            begin = w.address(w.field(tensor, TENSOR, Tensor.DATA))
            size = f.load(f.gep("%needs", f.add(i, first), "i64"), "i64", 8)
            stop = f.let(f"add i64 {begin}, {size}")
            meet = w.both(
                f.let(f"icmp ult i64 {begin}, {end}"), f.let(f"icmp ult i64 {start}, {stop}"),
                f.cmp("sgt", size, 0),
            )
            name = f.load(w.table(f"@{kind}", i, ENTRY), "ptr", 8)
            w.refuse_if(
                meet, "%ctx", CODE["OVERLAP"], f"the memory of {STRING} is also the state's", name
            )
        first = len(entries)
    f.ret("i32 0")


def _emit_begin(module: Module, texts: Texts, step: Step) -> None:
    """The state as it was exported; all else is zero already."""
    table = array(module, "@state_first", _TRIPLE, (
        f"{{ i64 {to}, i64 {encoded(place)}, i64 {size} }}" for to, place, size in step.first
    ))
    w = Writer(module, texts, "void @graphc_begin(ptr %ctx)")
    f, state = w.f, w.pointer("%ctx", Word.STATE)
    with f.loop(0, len(step.first)) as i:
        to, place, size = _fields(w, table, _TRIPLE, i, 3)
        source = f.call("ptr", "@graphc_at", "ptr %ctx", f"i64 {place}")
        f.call("ptr", "@memcpy", f"ptr {w.bytes_behind(state, to)}", f"ptr {source}", f"i64 {size}")
    f.ret()


def _emit_commit(module: Module, texts: Texts, step: Step) -> None:
    """What a call that went well leaves."""
    table = array(module, "@state_after", _TRIPLE, (
        f"{{ i64 {to}, i64 {source}, i64 {size} }}" for to, source, size in step.after
    ))
    w = Writer(module, texts, "void @graphc_commit(ptr %ctx)")
    f, state = w.f, w.pointer("%ctx", Word.STATE)
    with f.loop(0, len(step.after)) as i:
        to, source, size = _fields(w, table, _TRIPLE, i, 3)
        f.call(
            "ptr", "@memcpy", f"ptr {w.bytes_behind(state, to)}",
            f"ptr {w.bytes_behind(state, source)}", f"i64 {size}",
        )
    f.ret()


def _fields(w: Writer, table: str, kind: str, number: object, count: int) -> list[str]:
    record = w.table(table, str(number), kind)
    return [w.f.load(w.f.gep(record, i, "i64"), "i64", 8) for i in range(count)]


def _emit_save(module: Module, texts: Texts, step: Step) -> None:
    """Header and data, into the caller's memory."""
    w = Writer(module, texts, "i32 @graphc_state_save(ptr %ctx, ptr %file, i64 %bytes)")
    f, total, head = w.f, file_bytes(step), len(step.head)
    w.refuse_if(w.is_null("%file"), "%ctx", CODE["ARGUMENT"], "file is NULL")
    w.refuse_if(
        f.cmp("slt", "%bytes", total), "%ctx", CODE["BYTES"],
        f"the state is a file of {A} bytes, and there is room for {B}", numbers=(total, "%bytes"),
    )
    f.call("ptr", "@memcpy", "ptr %file", "ptr @state_head", f"i64 {head}")
    loop = f.carry_loop(0, len(step.order), 1, [("i64", str(head))])
    data, size = each_saved(w, loop.index)
    place = w.bytes_behind("%file", loop.values[0])
    f.call("ptr", "@memcpy", f"ptr {place}", f"ptr {data}", f"i64 {size}")
    loop.close([str(f.add(loop.values[0], size))])
    f.ret("i32 0")


def each_saved(w: Writer, place: object) -> tuple[str, str]:
    """Where the data of a state lies that has this place in files, and its bytes."""
    f, state = w.f, w.pointer("%ctx", Word.STATE)
    number = f.load(f.gep("@state_order", str(place), "i64"), "i64", 8)
    offset = f.load(f.gep("@state_offsets", number, "i64"), "i64", 8)
    size = f.load(f.gep("@state_sizes", number, "i64"), "i64", 8)
    return w.bytes_behind(state, offset), size


def _emit_seed(module: Module, texts: Texts, step: Step) -> None:
    """In each generator the words of mt19937 for the last 32 bits of a seed, none of them used yet.
    Source: Knuth, The Art of Computer Programming 2, 3.2.1, with the constant of Matsumoto and
    Nishimura."""
    w = Writer(module, texts, "i32 @graphc_seed(ptr %ctx, i64 %seed)")
    f = w.f
    if not step.generators:
        w.refuse_if("true", "%ctx", CODE["ARGUMENT"], "the step draws no random numbers")
        f.ret("i32 0")
        return
    memory = w.pointer("%ctx", Word.STATE)
    state, *others = (w.bytes_behind(memory, place) for place in step.generators)
    mask = 0xFFFFFFFF
    first = f.let(f"and i64 %seed, {mask}")
    loop = f.carry_loop(0, _WORDS, 1, [("i64", first)])
    word = loop.values[0]
    f.store(word, "i64", f.gep(state, loop.index, "i64"), 8)
    mixed = f.let(f"xor i64 {word}, {f.let(f'lshr i64 {word}, 30')}")
    grown = f.let(f"mul i64 {mixed}, {_MULTIPLIER}")
    counted = f.let(f"add i64 {grown}, {f.add(loop.index, 1)}")
    loop.close([f.let(f"and i64 {counted}, {mask}")])
    f.store(_WORDS, "i64", f.gep(state, _WORDS, "i64"), 8)
    f.store(-1, "i64", f.gep(state, _WORDS + 1, "i64"), 8)
    for other in others:
        f.call("ptr", "@memcpy", f"ptr {other}", f"ptr {state}", f"i64 {8 * (_WORDS + 2)}")
    f.ret("i32 0")
