"""The plainest epilogue, shared by all kernels that have no other: sums are stored as they are."""

from graphc.backends.llvm.epilogue import epilogue_symbol, shared_epilogue
from graphc.backends.llvm.gemm_arguments import Arguments
from graphc.backends.llvm.gemm_descriptor import Descriptor, Word
from graphc.backends.llvm.gemm_pack import Source, first_lanes, store_masked
from graphc.backends.llvm.gemm_plan import choose
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function, Module, Value
from graphc.ir import dtypes
from graphc.ir.dim import Size
from graphc.ir.kernel import Attention, Kernel, Store, SumTemplate, Var
from graphc.ir.kernel.templates.operand import strides_of

# The words that `arguments` of the epilogue points to: the address of element (0, 0, 0) and the
# strides of b and m in elements; n has stride 1.
ADDRESS, B_STRIDE, M_STRIDE = range(3)
STORE_WORDS = 3
STORE_TYPES = "ptr, i64, i64, i64, i64, i64, ptr, i64"


def store_symbol(tile: Tile) -> str:
    """The epilogue: void (words, b, m, rows, n, columns, tile, pitch)."""
    return f"@graphc_store_{tile.name}"


def sums_of(tile: Tile) -> Tile:
    """The tile whose values are another one's sums."""
    return Tile(tile.accumulator, tile.target)


def plain_store(kernel: Kernel, tile: Tile) -> tuple[str, Size, Size, Size] | None:
    """(buffer, offset, b stride, m stride) if the epilogue only stores the sums, else None."""
    c = kernel.template
    assert c is not None and not isinstance(c, Attention)
    if len(c.epilogue) != 1 or not isinstance(c.epilogue[0], Store):
        return None
    store = c.epilogue[0]
    if store.mask is not None or store.combine or not _is_sum(store, c):
        return None
    dtype = next(param.dtype for param in kernel.params if param.name == store.buffer)
    strides = strides_of(store.index, ("b", "m", "n"))
    if dtype is not dtypes.by_name(tile.accumulator) or strides is None or strides[3] != 1:
        return None
    return store.buffer, strides[0], strides[1], strides[2]


def _is_sum(store: Store, c: SumTemplate) -> bool:
    return isinstance(store.value, Var) and store.value == Var("acc", c.acc_dtype)


def emit_store(module: Module, tile: Tile) -> None:
    """Defines the epilogue."""
    f = module.function(
        f"void {store_symbol(tile)}(ptr %words, i64 %b, i64 %m, i64 %rows, i64 %n, i64 %columns, "
        "ptr %tile, i64 %pitch)"
    )
    source = Source(dtypes.by_name(tile.accumulator), sums_of(tile))
    b_stride, m_stride = (
        f.load(f.gep("%words", word, "i64"), "i64", 8) for word in (B_STRIDE, M_STRIDE)
    )
    start = f.add(f.add(f.mul("%b", b_stride), f.mul("%m", m_stride)), "%n")
    address = f.load(f.gep("%words", ADDRESS, "ptr"), "ptr", 8)
    base = f.gep(address, start, tile.element)
    whole = f.mul(f.floordiv("%columns", tile.lanes), tile.lanes)
    rest = f.sub("%columns", whole)
    mask, some = first_lanes(f, tile, rest), f.cmp("sgt", rest, 0)
    with f.loop(0, "%rows") as row:
        sums = f.gep("%tile", f.mul(row, "%pitch"), tile.element)
        to = f.gep(base, f.mul(row, m_stride), tile.element)
        with f.loop(0, whole, tile.lanes) as column:
            value = source.load_vector(f, f.gep(sums, column, tile.element))
            f.store(value, tile.vector, f.gep(to, column, tile.element), tile.bytes)
        with f.when(some):
            value = source.load_masked(f, f.gep(sums, whole, tile.element), mask)
            store_masked(f, tile, value, f.gep(to, whole, tile.element), mask)
    f.ret()


class Result:
    """Where tiles lie in the result if they are stored as they are: then they need no epilogue.

    Made in a function's entry; `offered` is an i1 that holds if the epilogue is the plainest.
    """

    def __init__(self, d: Descriptor, tile: Tile, batch: Value) -> None:
        f, self.tile = d.function, tile
        self.f, self.positions = f, d[Word.POSITIONS]
        nowhere = f"internal constant [{STORE_WORDS} x i64] zeroinitializer"
        f.module.globals.append(f"@graphc_nowhere = {nowhere}")
        f.module.declare(f"declare void {store_symbol(tile)}({STORE_TYPES})")
        self.offered = f.let(f"icmp eq ptr {d.pointer_at(Word.EPILOGUE)}, {store_symbol(tile)}")
        given = d.pointer_at(Word.ARGUMENTS)
        words = f.let(f"select i1 {self.offered}, ptr {given}, ptr @graphc_nowhere")
        address = f.load(f.gep(words, ADDRESS, "ptr"), "ptr", 8)
        self.b_stride, self.m_stride = (
            f.load(f.gep(words, word, "i64"), "i64", 8) for word in (B_STRIDE, M_STRIDE)
        )
        first_b = f.add(f.mul(batch, d[Word.EPILOGUE_B]), d[Word.FIRST_IMAGE])
        start = f.mul(first_b, self.b_stride)
        start = f.add(start, f.mul(f.mul(batch, d[Word.EPILOGUE_M]), self.m_stride))
        self.base = f.gep(address, start, tile.element)

    def goal(
        self, tile: tuple[Value, Value, Value], c: str, pitch: Value, stores: str
    ) -> tuple[str, str, str]:
        """(an i1: a tile of (m, n, columns) is stored in the result, where it is stored, its rows'
        distance): there if it has all its columns, else in c."""
        f = self.f
        before, there, after = f.current, f.label("there"), f.label("goal")
        f.cond_br(f.let(f"and i1 {stores}, {f.cmp('eq', tile[2], pitch)}"), there, after)
        f.block(there)
        place, inside = self._place(*tile)
        place = f.let(f"select i1 {inside}, ptr {place}, ptr {c}")
        apart, there = choose(f, inside, self.m_stride, pitch), f.current
        f.br(after)
        f.block(after)
        return (
            f.phi("i1", (("false", before), (inside, there))),
            f.phi("ptr", ((c, before), (place, there))),
            f.phi("i64", ((str(pitch), before), (str(apart), there))),
        )

    def _place(self, m: Value, n: Value, columns: Value) -> tuple[str, str]:
        """(where a tile begins, an i1: its columns are of one image)."""
        f = self.f
        end, begun, later, found = f.add(n, columns), f.current, f.label("later"), f.label("found")
        f.cond_br(f.cmp("sle", end, self.positions), found, later)
        f.block(later)  # a division takes as long as a few steps of a tile
        quotient = f.sdiv(n, self.positions)
        f.br(found)
        f.block(found)
        image = f.phi("i64", (("0", begun), (str(quotient), later)))
        before = f.mul(image, self.positions)
        inside = f.cmp("sle", end, f.add(before, self.positions))
        start = f.add(f.mul(image, self.b_stride), f.mul(m, self.m_stride))
        start = f.add(start, f.sub(n, before))
        return f.gep(self.base, start, self.tile.element), inside


def epilogue_pointers(
    f: Function, kernel: Kernel, tile: Tile, symbol: str, arguments: Arguments
) -> tuple[str, str]:
    """(epilogue, its arguments): a shared one, for a plain store that of all kernels, else the
    kernel's own."""
    plain = plain_store(kernel, tile)
    if plain is None:
        shared = shared_epilogue(kernel)
        if shared is None:
            return f"@{symbol}.epilogue", "%args"
        words = f.alloca("i64", len(shared.buffers) + len(shared.numbers))
        for word, name in enumerate(shared.buffers):
            f.store(arguments.buffer(name), "ptr", f.gep(words, word, "ptr"), 8)
        for word, number in enumerate(shared.numbers, len(shared.buffers)):
            f.store(number, "i64", f.gep(words, word, "i64"), 8)
        callee = epilogue_symbol(shared.text, tile)
        f.module.declare(f"declare void {callee}({STORE_TYPES})")
        return callee, words
    buffer, *sizes = plain
    offset, b_stride, m_stride = (arguments.size(size) for size in sizes)
    words = f.alloca("i64", STORE_WORDS)
    f.store(f.gep(arguments.buffer(buffer), offset, tile.element), "ptr", words, 8)
    f.store(b_stride, "i64", f.gep(words, B_STRIDE, "i64"), 8)
    f.store(m_stride, "i64", f.gep(words, M_STRIDE, "i64"), 8)
    f.module.declare(f"declare void {store_symbol(tile)}({STORE_TYPES})")
    return store_symbol(tile), words
