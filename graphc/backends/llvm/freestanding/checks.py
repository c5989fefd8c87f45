"""What a library looks at before it computes: inputs, which say what the named sizes are, and the
outputs' memory. Each function is i32: 0, or the code of what is wrong, whose text is written."""

from __future__ import annotations

from graphc.backends.host.interface import CODE, Interface
from graphc.backends.llvm.freestanding.layout import ENTRY, SIZE, TENSOR, Tensor
from graphc.backends.llvm.freestanding.messages import OTHER, STRING, A, B, C, Texts
from graphc.backends.llvm.freestanding.tables import TERM
from graphc.backends.llvm.freestanding.writer import Writer
from graphc.backends.llvm.text import Module, Value

_NAME, _DTYPE, _RANK = range(3)  # of an ENTRY


def emit_checks(module: Module, texts: Texts, interface: Interface) -> None:
    """Defines @graphc_bind, @graphc_take (outputs) and @graphc_tell (their shapes)."""
    _emit_bind(module, texts, interface)
    _emit_take(module, texts, interface)
    _emit_tell(module, texts, interface)


def _emit_bind(module: Module, texts: Texts, interface: Interface) -> None:
    """Inputs' dtypes and shapes give `dims`; with `needs` their memory is looked at, whose bytes
    are left there."""
    w = Writer(module, texts, "i32 @graphc_bind(ptr %m, ptr %inputs, ptr %dims, ptr %needs)")
    f, count = w.f, len(interface.inputs)
    if count:
        w.refuse_if(w.is_null("%inputs"), "%m", CODE["ARGUMENT"], "inputs is NULL")
    for place in range(len(interface.sizes)):
        f.store(-1, "i64", f.gep("%dims", place, "i64"), 8)
    elements = f.alloca("i64", 1, 8)
    with f.loop(0, count) as i:
        tensor, name, dtype, rank = _same_kind(w, "inputs", i)
        shape = w.field(tensor, TENSOR, Tensor.SHAPE)
        some = f.cmp("sgt", rank, 0)
        w.refuse_if(
            w.both(some, w.is_null(shape)), "%m", CODE["ARGUMENT"], f"{STRING}: shape is NULL",
            name,
        )
        f.store(1, "i64", elements, 8)
        first = f.load(f.gep("@first_terms", i, "i64"), "i64", 8)
        with f.loop(0, rank) as d:
            size = f.load(f.gep(shape, d, "i64"), "i64", 8)
            _bind_size(w, name, d, size, w.table("@terms", f.add(first, d), TERM))
            f.store(f.mul(f.load(elements, "i64", 8), size), "i64", elements, 8)
        with f.when(f.let("icmp ne ptr %needs, null")):
            itemsize = f.load(f.gep("@itemsizes", dtype, "i64"), "i64", 8)
            needed = f.mul(f.load(elements, "i64", 8), itemsize)
            _has_memory(w, "%m", tensor, name, needed, itemsize)
            f.store(needed, "i64", f.gep("%needs", i, "i64"), 8)
    f.ret("i32 0")


def _same_kind(w: Writer, what: str, i: Value) -> tuple[str, str, str, str]:
    """A tensor that has the dtype and the rank of its entry; the entry's name, and those."""
    f = w.f
    tensor, entry = w.table(f"%{what}", i, TENSOR), w.table(f"@{what}", i, ENTRY)
    name, rank = w.field(entry, ENTRY, _NAME), w.field(entry, ENTRY, _RANK)
    dtype = w.field(entry, ENTRY, _DTYPE)
    given = w.field(tensor, TENSOR, Tensor.DTYPE)
    wanted = f.load(f.gep("@dtypes", dtype, "ptr"), "ptr", 8)
    w.refuse_if(
        f.cmp("ne", given, dtype), "%m", CODE["DTYPE"],
        f"{STRING} must be of dtype {OTHER} (number {A}), is of number {B}", name, wanted,
        (dtype, given),
    )
    found = w.field(tensor, TENSOR, Tensor.RANK)
    w.refuse_if(
        f.cmp("ne", found, rank), "%m", CODE["RANK"],
        f"{STRING} must have {A} dims, has {B}", name, numbers=(rank, found),
    )
    return tensor, name, dtype, rank


def _bind_size(w: Writer, name: str, d: Value, size: str, term: str) -> None:
    f = w.f
    which, times, plus = (
        f.load(f.let(f"getelementptr {TERM}, ptr {term}, i32 0, i32 {n}"), "i64", 8)
        for n in range(3)
    )
    fixed = f.cmp("slt", which, 0)
    w.refuse_if(
        w.both(fixed, f.cmp("ne", size, plus)), "%m", CODE["SHAPE"],
        f"dim {A} of {STRING} must be {B}, is {C}", name, numbers=(d, plus, size),
    )
    with f.when(f.let(f"xor i1 {fixed}, true")):
        named = w.table("@sizes", which, SIZE)
        other = f.load(named, "ptr", 8)
        value = f.let(f"sdiv i64 {f.let(f'sub i64 {size}, {plus}')}, {times}")
        again = f.let(f"add i64 {f.let(f'mul i64 {value}, {times}')}, {plus}")
        w.refuse_if(
            f.cmp("ne", again, size), "%m", CODE["SHAPE"],
            f"dim {A} of {STRING} is {B}, which no value of {OTHER} gives", name, other, (d, size),
        )
        place = f.gep("%dims", which, "i64")
        known = f.load(place, "i64", 8)
        differs = w.both(f.cmp("sge", known, 0), f.cmp("ne", known, value))
        w.refuse_if(
            differs, "%m", CODE["SHAPE"],
            f"dim {A} of {STRING} gives {B} for {OTHER}, which is {C} elsewhere", name, other,
            (d, value, known),
        )
        least, most = (
            f.load(f.let(f"getelementptr {SIZE}, ptr {named}, i32 0, i32 {n}"), "i64", 8)
            for n in (1, 2)
        )
        told = f.load(f.gep("@ranges", which, "ptr"), "ptr", 8)
        w.refuse_if(
            w.either(f.cmp("slt", value, least), f.cmp("sgt", value, most)), "%m", CODE["RANGE"],
            f"dim {A} of {STRING} gives {B} for {OTHER}", name, told, (d, value),
        )
        f.store(value, "i64", place, 8)


def _has_memory(w: Writer, m: str, tensor: str, name: str, needed: Value, itemsize: str) -> None:
    """A tensor's memory is there, and lies as elements do."""
    f = w.f
    given = w.field(tensor, TENSOR, Tensor.BYTES)
    w.refuse_if(
        f.cmp("slt", given, needed), m, CODE["BYTES"],
        f"{STRING} needs {A} bytes, has {B}", name, numbers=(needed, given),
    )
    data, some = w.field(tensor, TENSOR, Tensor.DATA), f.cmp("sgt", needed, 0)
    w.refuse_if(
        w.both(some, w.is_null(data)), m, CODE["ARGUMENT"], f"{STRING}: data is NULL", name
    )
    mask = f.let(f"sub i64 {itemsize}, 1")
    off = f.let(f"and i64 {w.address(data)}, {mask}")
    w.refuse_if(
        w.both(some, f.cmp("ne", off, 0)), m, CODE["ARGUMENT"],
        f"{STRING}: data is not aligned to {A} bytes", name, numbers=(itemsize,),
    )


def _emit_take(module: Module, texts: Texts, interface: Interface) -> None:
    """Outputs are what they have to be, and lie apart from each other and from inputs."""
    w = Writer(
        module, texts,
        "i32 @graphc_take(ptr %m, ptr %inputs, ptr %outputs, ptr %computed, ptr %needs)",
    )
    f, inputs, count = w.f, len(interface.inputs), len(interface.outputs)
    if count:
        w.refuse_if(w.is_null("%outputs"), "%m", CODE["ARGUMENT"], "outputs is NULL")
    elements = f.alloca("i64", 1, 8)
    with f.loop(0, count) as i:
        tensor, name, dtype, rank = _same_kind(w, "outputs", i)
        _count(w, i, rank, elements)
        itemsize = f.load(f.gep("@itemsizes", dtype, "i64"), "i64", 8)
        needed = f.mul(f.load(elements, "i64", 8), itemsize)
        _has_memory(w, "%m", tensor, name, needed, itemsize)
        f.store(needed, "i64", f.gep("%needs", f.add(i, inputs), "i64"), 8)
        with f.loop(0, inputs) as j:
            other = f.load(w.table("@inputs", j, ENTRY), "ptr", 8)
            _apart(w, tensor, needed, name, w.table("%inputs", j, TENSOR), j, other)
        with f.loop(0, i) as j:
            other = f.load(w.table("@outputs", j, ENTRY), "ptr", 8)
            needs = f.add(j, inputs)
            _apart(w, tensor, needed, name, w.table("%outputs", j, TENSOR), needs, other)
        _tell_shape(w, tensor, i, rank)
    f.ret("i32 0")


def _apart(
    w: Writer, tensor: str, needed: Value, name: str, second: str, needs: Value, other: str
) -> None:
    f = w.f
    begin = w.address(w.field(tensor, TENSOR, Tensor.DATA))
    start = w.address(w.field(second, TENSOR, Tensor.DATA))
    size = f.load(f.gep("%needs", needs, "i64"), "i64", 8)
    end, stop = f.let(f"add i64 {begin}, {needed}"), f.let(f"add i64 {start}, {size}")
    meet = w.both(
        f.cmp("ult", begin, stop), f.cmp("ult", start, end), f.cmp("sgt", needed, 0),
        f.cmp("sgt", size, 0),
    )
    w.refuse_if(
        meet, "%m", CODE["OVERLAP"], f"the memory of {STRING} is also that of {OTHER}", name, other
    )


def _count(w: Writer, i: Value, rank: str, elements: str) -> None:
    """How many elements an output has."""
    f = w.f
    f.store(1, "i64", elements, 8)
    first = f.load(f.gep("@first_computed", i, "i64"), "i64", 8)
    with f.loop(0, rank) as d:
        size = f.load(f.gep("%computed", f.add(first, d), "i64"), "i64", 8)
        f.store(f.mul(f.load(elements, "i64", 8), size), "i64", elements, 8)


def _tell_shape(w: Writer, tensor: str, i: Value, rank: str) -> None:
    """An output's shape, where somebody wants it."""
    f = w.f
    shape = w.field(tensor, TENSOR, Tensor.SHAPE)
    with f.when(f.let(f"icmp ne ptr {shape}, null")):
        first = f.load(f.gep("@first_computed", i, "i64"), "i64", 8)
        with f.loop(0, rank) as d:
            size = f.load(f.gep("%computed", f.add(first, d), "i64"), "i64", 8)
            f.store(size, "i64", f.gep(shape, d, "i64"), 8)


def _emit_tell(module: Module, texts: Texts, interface: Interface) -> None:
    """Outputs' dtypes, ranks, bytes and shapes, of computed sizes."""
    w = Writer(module, texts, "i32 @graphc_tell(ptr %m, ptr %outputs, ptr %computed)")
    f, count = w.f, len(interface.outputs)
    if count:
        w.refuse_if(w.is_null("%outputs"), "%m", CODE["ARGUMENT"], "outputs is NULL")
    elements = f.alloca("i64", 1, 8)
    with f.loop(0, count) as i:
        tensor, entry = w.table("%outputs", i, TENSOR), w.table("@outputs", i, ENTRY)
        dtype, rank = w.field(entry, ENTRY, _DTYPE), w.field(entry, ENTRY, _RANK)
        _count(w, i, rank, elements)
        itemsize = f.load(f.gep("@itemsizes", dtype, "i64"), "i64", 8)
        needed = f.mul(f.load(elements, "i64", 8), itemsize)
        f.store(needed, "i64", w.place(tensor, TENSOR, Tensor.BYTES), 8)
        for field, value in ((Tensor.DTYPE, dtype), (Tensor.RANK, rank)):
            narrow = f.let(f"trunc i64 {value} to i32")
            f.store(narrow, "i32", w.place(tensor, TENSOR, field), 4)
        _tell_shape(w, tensor, i, rank)
    f.ret("i32 0")
