"""Reading a training step's state from the bytes of a safetensors file: all of it is looked at
before anything is changed."""

from __future__ import annotations

from collections.abc import Callable

from graphc.backends.host.interface import CODE, DTYPES, Step
from graphc.backends.llvm.freestanding.json_text import emit_json
from graphc.backends.llvm.freestanding.layout import ENTRY, Word
from graphc.backends.llvm.freestanding.messages import OTHER, STRING, A, B, C, Texts
from graphc.backends.llvm.freestanding.tables import array
from graphc.backends.llvm.freestanding.writer import Writer
from graphc.backends.llvm.text import Module

_NAME, _DTYPE, _RANK, _SHAPE = range(4)  # of an ENTRY
_AT, _END, _BODY, _CURSOR_WORDS = range(4)  # a cursor of json_text.py, and the bytes of the data
_KEYS = ("dtype", "shape", "data_offsets")
_METADATA = "__metadata__"
_SHORT = 32  # bytes that a key, or a dtype, may have here
FILE = CODE["FILE"]


def emit_reader(module: Module, texts: Texts, step: Step) -> None:
    """Defines i32 @graphc_state_load(ptr ctx, ptr file, i64 bytes)."""
    emit_json(module)
    array(module, "@state_dtypes", "ptr", [texts(name.upper()) for name in DTYPES])
    _emit_bad(module, texts)
    _emit_find(module, texts, step)
    _emit_shape(module, texts)
    _emit_offsets(module, texts)
    _emit_entry(module, texts)
    _emit_metadata(module, texts)
    _emit_header(module, texts, step)
    _emit_whole(module, texts, step)
    _emit_load(module, texts, step)


def _emit_bad(module: Module, texts: Texts) -> None:
    """What is said of a header that is none."""
    w = Writer(module, texts, "i32 @graphc_state_bad(ptr %ctx, ptr %c)")
    left = w.f.sub(w.f.load(w.f.gep("%c", _END, "i64"), "i64", 8), w.f.load("%c", "i64", 8))
    w.refuse_if(
        "true", "%ctx", FILE,
        f"the file is damaged, or no safetensors file: {A} bytes before its header's end",
        numbers=(left,),
    )
    w.f.ret("i32 0")


class _Reading:
    """Of JSON, in a function of a context and a cursor: what is not there ends the function."""

    def __init__(self, w: Writer) -> None:
        self.w, self.f = w, w.f

    def bad_if(self, condition: str) -> None:
        """Ends the function where an i1 holds."""
        f = self.f
        with f.when(condition):
            f.ret(f"i32 {f.call('i32', '@graphc_state_bad', 'ptr %ctx', 'ptr %c')}")
            f.block(f.label("never"))

    def take(self, mark: str) -> str:
        """An i1: the mark was next, and is taken."""
        return self.f.call("i1", "@graphc_json_take", "ptr %c", f"i64 {ord(mark)}")

    def need(self, mark: str) -> None:
        """The mark has to be next."""
        self.bad_if(self.f.let(f"xor i1 {self.take(mark)}, true"))

    def text(self, messenger: str) -> None:
        """A string has to be next."""
        found = self.f.call("i1", "@graphc_json_string", "ptr %c", f"ptr {messenger}")
        self.bad_if(self.f.let(f"xor i1 {found}, true"))

    def number(self) -> str:
        """A number has to be next."""
        found = self.f.call("i64", "@graphc_json_number", "ptr %c")
        self.bad_if(self.f.cmp("slt", found, 0))
        return found

    def room(self, size: int) -> tuple[str, str]:
        """Memory for a text, and its messenger."""
        f = self.f
        memory, messenger = f.alloca("i8", size, 8), f.alloca("i64", 2, 8)
        f.store(self.w.address(memory), "i64", messenger, 8)
        f.store(size, "i64", f.gep(messenger, 1, "i64"), 8)
        return memory, messenger

    def each(self, opening: str, closing: str, item: Callable[[], None]) -> None:
        """A list or an object: what `item` reads, with commas between."""
        f = self.f
        head, rest, end = f.label("item"), f.label("rest"), f.label("last")
        self.need(opening)
        f.cond_br(self.take(closing), end, head)
        f.block(head)
        item()
        f.cond_br(self.take(","), head, rest)
        f.block(rest)
        self.need(closing)
        f.br(end)
        f.block(end)


def _emit_find(module: Module, texts: Texts, step: Step) -> None:
    """The number of the state of a name; -1: none. Looks at `from` first: files have some order."""
    w = Writer(module, texts, "i64 @graphc_state_find(ptr %name, i64 %from)")
    f, count = w.f, len(step.states)
    with f.loop(0, count) as i:
        at = f.let(f"urem i64 {f.add('%from', i)}, {count}")
        name = w.field(w.table("@states", at, ENTRY), ENTRY, _NAME)
        w.end_if(f.call("i1", "@graphc_same", "ptr %name", f"ptr {name}"), f"i64 {at}")
    f.ret("i64 -1")


def _emit_shape(module: Module, texts: Texts) -> None:
    """The sizes of a tensor have to be those of a state."""
    w = Writer(module, texts, "i32 @graphc_state_shape(ptr %ctx, ptr %c, ptr %state)")
    f, reading = w.f, _Reading(w)
    name, rank, shape = (w.field("%state", ENTRY, each) for each in (_NAME, _RANK, _SHAPE))
    dims = f.alloca("i64", 1, 8)
    f.store(0, "i64", dims, 8)

    def size() -> None:
        found, d = reading.number(), f.load(dims, "i64", 8)
        with f.when(f.cmp("slt", d, rank)):
            wanted = f.load(f.gep(shape, d, "i64"), "i64", 8)
            w.refuse_if(
                f.cmp("ne", found, wanted), "%ctx", FILE,
                f"dim {A} of {STRING} must be {B}, and is {C} in the file", name,
                numbers=(d, wanted, found),
            )
        f.store(f.add(d, 1), "i64", dims, 8)

    reading.each("[", "]", size)
    found = f.load(dims, "i64", 8)
    w.refuse_if(
        f.cmp("ne", found, rank), "%ctx", FILE,
        f"{STRING} must have {A} dims, and has {B} in the file", name, numbers=(rank, found),
    )
    f.ret("i32 0")


def _emit_offsets(module: Module, texts: Texts) -> None:
    """Where a tensor lies: %place is told, and it has %size bytes, all of them in the file."""
    w = Writer(
        module, texts,
        "i32 @graphc_state_lies(ptr %ctx, ptr %c, ptr %state, i64 %size, ptr %place)",
    )
    f, reading = w.f, _Reading(w)
    name = w.field("%state", ENTRY, _NAME)
    reading.need("[")
    begin = reading.number()
    reading.need(",")
    end = reading.number()
    reading.need("]")
    body = f.load(f.gep("%c", _BODY, "i64"), "i64", 8)
    w.refuse_if(
        f.cmp("sgt", end, body), "%ctx", FILE,
        f"{STRING} ends at byte {A} of the data, and the file ends at {B}", name,
        numbers=(end, body),
    )
    length = f.sub(end, begin)
    w.refuse_if(
        f.cmp("ne", length, "%size"), "%ctx", FILE,
        f"{STRING} has {A} bytes in the file, and not {B}", name, numbers=(length, "%size"),
    )
    f.store(begin, "i64", "%place", 8)
    f.ret("i32 0")


def _emit_entry(module: Module, texts: Texts) -> None:
    """What a header says of state %i: has to be what it is."""
    w = Writer(
        module, texts, "i32 @graphc_state_entry(ptr %ctx, ptr %c, i64 %i, ptr %place)"
    )
    f, reading = w.f, _Reading(w)
    entry = w.table("@states", "%i", ENTRY)
    name, dtype = w.field(entry, ENTRY, _NAME), w.field(entry, ENTRY, _DTYPE)
    wanted = f.load(f.gep("@state_dtypes", dtype, "ptr"), "ptr", 8)
    size = f.load(f.gep("@state_sizes", "%i", "i64"), "i64", 8)
    key, key_messenger = reading.room(_SHORT)
    kind, kind_messenger = reading.room(_SHORT)
    seen = f.alloca("i64", 1, 8)
    f.store(0, "i64", seen, 8)

    def its_dtype() -> None:
        reading.text(kind_messenger)
        same = f.call("i1", "@graphc_same", f"ptr {kind}", f"ptr {wanted}")
        w.refuse_if(
            f.let(f"xor i1 {same}, true"), "%ctx", FILE,
            f"{STRING} is of another dtype in the file: {OTHER}", name, kind,
        )

    def its_shape() -> None:
        w.end_unless_well(f.call(
            "i32", "@graphc_state_shape", "ptr %ctx", "ptr %c", f"ptr {entry}"
        ))

    def its_offsets() -> None:
        w.end_unless_well(f.call(
            "i32", "@graphc_state_lies", "ptr %ctx", "ptr %c", f"ptr {entry}", f"i64 {size}",
            "ptr %place",
        ))

    def member() -> None:
        reading.text(key_messenger)
        reading.need(":")
        found, done = f.load(seen, "i64", 8), f.label("done")
        for bit, (known, read) in enumerate(
            zip(_KEYS, (its_dtype, its_shape, its_offsets), strict=True)
        ):
            is_it, other = f.label("key"), f.label("other")
            f.cond_br(
                f.call("i1", "@graphc_same", f"ptr {key}", f"ptr {texts(known)}"), is_it, other
            )
            f.block(is_it)
            reading.bad_if(f.cmp("ne", f.let(f"and i64 {found}, {1 << bit}"), 0))
            read()
            f.store(f.let(f"or i64 {found}, {1 << bit}"), "i64", seen, 8)
            f.br(done)
            f.block(other)
        reading.bad_if("true")
        f.br(done)
        f.block(done)

    reading.each("{", "}", member)
    reading.bad_if(f.cmp("ne", f.load(seen, "i64", 8), (1 << len(_KEYS)) - 1))
    f.ret("i32 0")


def _emit_metadata(module: Module, texts: Texts) -> None:
    """Texts by name, of which nobody wants anything."""
    w = Writer(module, texts, "i32 @graphc_state_metadata(ptr %ctx, ptr %c)")
    reading = _Reading(w)
    _, messenger = reading.room(_SHORT)

    def member() -> None:
        reading.text(messenger)
        reading.need(":")
        reading.text(messenger)

    reading.each("{", "}", member)
    w.f.ret("i32 0")


def _emit_header(module: Module, texts: Texts, step: Step) -> None:
    """Where each state lies in the data, into a word for each; -1: it is not there."""
    w = Writer(module, texts, "i32 @graphc_state_header(ptr %ctx, ptr %c, ptr %places)")
    f, reading, count = w.f, _Reading(w), len(step.states)
    longest = max((len(each.entry.name.encode()) for each in step.states), default=0)
    # a name that is longer is cut to what is none of them
    name, messenger = reading.room(max(longest, len(_METADATA), 64) + 2)
    after = f.alloca("i64", 1, 8)
    f.store(0, "i64", after, 8)
    with f.loop(0, count) as i:
        f.store(-1, "i64", f.gep("%places", i, "i64"), 8)

    def member() -> None:
        reading.text(messenger)
        reading.need(":")
        meta, other, done = f.label("metadata"), f.label("tensor"), f.label("done")
        f.cond_br(
            f.call("i1", "@graphc_same", f"ptr {name}", f"ptr {texts(_METADATA)}"), meta, other
        )
        f.block(meta)
        w.end_unless_well(f.call("i32", "@graphc_state_metadata", "ptr %ctx", "ptr %c"))
        f.br(done)
        f.block(other)
        number = f.call(
            "i64", "@graphc_state_find", f"ptr {name}", f"i64 {f.load(after, 'i64', 8)}"
        )
        w.refuse_if(
            f.cmp("slt", number, 0), "%ctx", FILE,
            f"the file has {STRING}, which is no part of the step's state", name,
        )
        place = f.gep("%places", number, "i64")
        w.refuse_if(
            f.cmp("sge", f.load(place, "i64", 8), 0), "%ctx", FILE, f"the file has {STRING} twice",
            name,
        )
        w.end_unless_well(f.call(
            "i32", "@graphc_state_entry", "ptr %ctx", "ptr %c", f"i64 {number}", f"ptr {place}"
        ))
        f.store(f.add(number, 1), "i64", after, 8)
        f.br(done)
        f.block(done)

    reading.each("{", "}", member)
    reading.bad_if(f.cmp("sge", f.call("i64", "@graphc_json_peek", "ptr %c"), 0))
    f.ret("i32 0")


def _emit_whole(module: Module, texts: Texts, step: Step) -> None:
    """All states are there, apart from each other, and nothing else."""
    w = Writer(module, texts, "i32 @graphc_state_whole(ptr %ctx, ptr %c, ptr %places)")
    f, count = w.f, len(step.states)
    total = f.alloca("i64", 1, 8)
    f.store(0, "i64", total, 8)
    with f.loop(0, count) as i:
        name = w.field(w.table("@states", i, ENTRY), ENTRY, _NAME)
        begin = f.load(f.gep("%places", i, "i64"), "i64", 8)
        w.refuse_if(f.cmp("slt", begin, 0), "%ctx", FILE, f"the file lacks {STRING}", name)
        size = f.load(f.gep("@state_sizes", i, "i64"), "i64", 8)
        end = f.add(begin, size)
        f.store(f.add(f.load(total, "i64", 8), size), "i64", total, 8)
        with f.loop(0, i) as j:
            other = f.load(f.gep("%places", j, "i64"), "i64", 8)
            stop = f.add(other, f.load(f.gep("@state_sizes", j, "i64"), "i64", 8))
            meet = f.cmp("slt", f.smax(begin, other), f.smin(end, stop))
            second = w.field(w.table("@states", j, ENTRY), ENTRY, _NAME)
            w.refuse_if(
                meet, "%ctx", FILE, f"{STRING} and {OTHER} lie in the same bytes of the file", name,
                second,
            )
    body, found = f.load(f.gep("%c", _BODY, "i64"), "i64", 8), f.load(total, "i64", 8)
    w.refuse_if(
        f.cmp("ne", found, body), "%ctx", FILE,
        f"the file has {A} bytes of data, and its tensors have {B}", numbers=(body, found),
    )
    f.ret("i32 0")


def _emit_load(module: Module, texts: Texts, step: Step) -> None:
    """Looks at all of a file, and then takes it."""
    w = Writer(module, texts, "i32 @graphc_state_load(ptr %ctx, ptr %file, i64 %bytes)")
    f = w.f
    w.refuse_if(w.is_null("%file"), "%ctx", CODE["ARGUMENT"], "file is NULL")
    w.refuse_if(
        f.cmp("slt", "%bytes", 8), "%ctx", FILE, f"{A} bytes are no safetensors file",
        numbers=("%bytes",),
    )
    length, rest = f.load("%file", "i64", 1), f.sub("%bytes", 8)
    w.refuse_if(
        f.let(f"icmp ugt i64 {length}, {rest}"), "%ctx", FILE,
        f"the file is damaged, or no safetensors file: a header of {A} bytes in {B}",
        numbers=(length, "%bytes"),
    )
    cursor = f.alloca("i64", _CURSOR_WORDS, 8)
    header = w.bytes_behind("%file", 8)
    data = w.bytes_behind(header, length)
    for word, value in (
        (_AT, w.address(header)), (_END, w.address(data)), (_BODY, f.sub(rest, length)),
    ):
        f.store(value, "i64", f.gep(cursor, word, "i64"), 8)
    state = w.pointer("%ctx", Word.STATE)
    places = w.bytes_behind(state, step.found)
    for name in ("header", "whole"):
        w.end_unless_well(f.call(
            "i32", f"@graphc_state_{name}", "ptr %ctx", f"ptr {cursor}", f"ptr {places}"
        ))
    with f.loop(0, len(step.states)) as i:
        offset = f.load(f.gep("@state_offsets", i, "i64"), "i64", 8)
        size = f.load(f.gep("@state_sizes", i, "i64"), "i64", 8)
        begin = f.load(f.gep(places, i, "i64"), "i64", 8)
        f.call(
            "ptr", "@memcpy", f"ptr {w.bytes_behind(state, offset)}",
            f"ptr {w.bytes_behind(data, begin)}", f"i64 {size}",
        )
    f.ret("i32 0")
