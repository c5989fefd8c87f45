"""What code may ask of a CPU's matrix unit (AMX), in two bodies: its instructions, and code that
means the same, for a Target whose unit is emulated.

A unit has eight tiles of up to 16 rows of 64 bytes. A configuration says how many rows and bytes
each has; what lies beyond is neither read nor written. Each thread has its own, from `configure`
to `release`. Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18.
"""

from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function, Module, Value
from graphc.ir import dtypes

UNIT_PARAMETER = ", ptr %unit"  # of functions that use a unit which their caller has configured

SUMS, LEFT, RIGHT = (0, 1, 2, 3), (4, 5), (6, 7)  # numbers of tiles; sums by (row, column)
ROWS, TILE_BYTES, CONFIG_BYTES = 16, 1024, 64
WORDS = 16  # of a row
# A configuration: a byte for the palette (1), and from these bytes on 16 bits for the bytes of a
# tile's rows, and 8 bits for how many there are.
_COLUMNS, _COUNTS = 16, 48
# An emulated unit's state: a configuration in the making, the one in force, the tiles.
_CURRENT, _TILES = CONFIG_BYTES, 2 * CONFIG_BYTES
_STATE_BYTES = _TILES + 8 * TILE_BYTES

_DOTS = {
    "bf16m": "tdpbf16ps", "i8i8m": "tdpbssd", "i8u8m": "tdpbsud", "u8i8m": "tdpbusd",
    "u8u8m": "tdpbuud",
}
_REGISTER = "<16 x i32>"


def allocate_unit(f: Function, tile: Tile) -> str:
    """The memory that a unit in use by one thread takes."""
    emulated = tile.target.matrix == "emulated"
    return f.alloca("i8", _STATE_BYTES if emulated else CONFIG_BYTES)


class MatrixUnit:
    """A function's unit, for the products of one Tile. `state`: what allocate_unit gave."""

    def __init__(self, f: Function, tile: Tile, state: str) -> None:
        self.f, self.tile, self.state = f, tile, state
        self.emulated = tile.target.matrix == "emulated"

    def configure(self, first: Value, second: Value, words: Value) -> None:
        """Tiles of sums and of the left operand get `first` rows above and `second` below, neither
        of them 0, of so many words of k. All tiles are 0 then."""
        f = self.f
        f.store("zeroinitializer", "<64 x i8>", self.state, CONFIG_BYTES)
        f.store(1, "i8", self.state, 1)
        for number in (*SUMS, *LEFT, *RIGHT):
            rows = words if number in RIGHT else (first, second)[_below(number)]
            columns = f.mul(words, 4) if number in LEFT else 4 * WORDS
            for value, kind, at in (
                (columns, "i16", _COLUMNS + 2 * number), (rows, "i8", _COUNTS + number),
            ):
                if not isinstance(value, int):
                    value = f.let(f"trunc i64 {value} to {kind}")
                f.store(value, kind, f.gep(self.state, at, "i8"), 1)
        self.use(self.state)

    def use(self, config: str) -> None:
        """Configures tiles by 64 bytes in memory."""
        self._ask("ldtilecfg", f"ptr {config}")

    def configure_whole(self) -> None:
        """All tiles are whole."""
        self.configure(ROWS, ROWS, WORDS)

    def release(self) -> None:
        """Ends the use of the unit by this thread."""
        self._ask("tilerelease")

    def zero(self, number: int) -> None:
        """A tile of zeros."""
        self._ask("tilezero", f"i8 {number}")

    def load(self, number: int, place: str, stride: Value) -> None:
        """A tile's rows, so many bytes apart in memory."""
        self._ask("tileloadd64", f"i8 {number}", f"ptr {place}", f"i64 {stride}")

    def store(self, number: int, place: str, stride: Value) -> None:
        """Stores a tile's rows, so many bytes apart."""
        self._ask("tilestored64", f"i8 {number}", f"ptr {place}", f"i64 {stride}")

    def multiply_add(self, sums: int, left: int, right: int) -> None:
        """Adds left times right, whose rows are words of k, to sums."""
        self._ask(_DOTS[self.tile.name], f"i8 {sums}", f"i8 {left}", f"i8 {right}")

    def _ask(self, name: str, *arguments: str) -> None:
        f = self.f
        if self.emulated:
            symbol = f"@graphc_emulated_{name}"
            if f.module.count_use(symbol) == 1:
                _EMULATED.get(name, _emit_dot)(f.module, self.tile, symbol)
            f.call("void", symbol, f"ptr {self.state}", *arguments)
            return
        callee = f"@llvm.x86.{name}"
        types = ", ".join(argument.split(" ")[0] for argument in arguments)
        f.module.declare(f"declare void {callee}({types})")
        f.call("void", callee, *arguments)


def _below(number: int) -> int:
    """Whether a tile of sums or of the left operand is one of the lower two."""
    return number // 2 if number in SUMS else LEFT.index(number)


# --- emulated -----------------------------------------------------------------------------------


def _rows_of(f: Function, number: str) -> str:
    """Rows of a tile in the configuration in force (0 without one)."""
    at = f.gep(f.gep("%state", _CURRENT + _COUNTS, "i8"), number, "i8")
    return f.let(f"zext i8 {f.load(at, 'i8', 1)} to i64")


def _words_of(f: Function, number: str) -> str:
    """Words of its rows."""
    at = f.gep(f.gep("%state", _CURRENT + _COLUMNS, "i8"), number, "i16")
    columns = f.load(at, "i16", 1)
    return f.let(f"lshr i64 {f.let(f'zext i16 {columns} to i64')}, 2")


def _row(f: Function, number: str, row: Value) -> str:
    """Where a row of a tile is."""
    start = f.gep("%state", f.add(f.mul(number, TILE_BYTES), _TILES), "i8")
    return f.gep(start, row, _REGISTER)


def _wide(f: Function, number: str) -> str:
    return f.let(f"zext i8 {number} to i64")


def _mask(f: Function, words: str) -> str:
    lanes = ", ".join(f"i64 {lane}" for lane in range(WORDS))
    first = f.let(f"insertelement <16 x i64> poison, i64 {words}, i64 0")
    every = f.let(f"shufflevector <16 x i64> {first}, <16 x i64> poison, <16 x i32> splat (i32 0)")
    return f.let(f"icmp slt <16 x i64> <{lanes}>, {every}")


def _emit_configure(module: Module, tile: Tile, symbol: str) -> None:
    f = module.function(f"void {symbol}(ptr %state, ptr %config)", "internal")
    config = f.load("%config", "<64 x i8>", 1)
    f.store(config, "<64 x i8>", f.gep("%state", _CURRENT, "i8"), 1)
    with f.loop(0, 8 * ROWS) as row:
        f.store("zeroinitializer", _REGISTER, _row(f, "0", row), 64)
    f.ret()


def _emit_release(module: Module, tile: Tile, symbol: str) -> None:
    """Tiles have no rows then: what is asked of them does nothing."""
    f = module.function(f"void {symbol}(ptr %state)", "internal")
    f.store("zeroinitializer", "<64 x i8>", f.gep("%state", _CURRENT, "i8"), 1)
    f.ret()


def _emit_zero(module: Module, tile: Tile, symbol: str) -> None:
    f = module.function(f"void {symbol}(ptr %state, i8 %tile)", "internal")
    with f.loop(0, ROWS) as row:
        f.store("zeroinitializer", _REGISTER, _row(f, _wide(f, "%tile"), row), 64)
    f.ret()


def _emit_load(module: Module, tile: Tile, symbol: str) -> None:
    f = module.function(f"void {symbol}(ptr %state, i8 %tile, ptr %place, i64 %stride)", "internal")
    number = _wide(f, "%tile")
    rows, mask = _rows_of(f, number), _mask(f, _words_of(f, number))
    callee = "@llvm.masked.load.v16i32.p0"
    module.declare(f"declare {_REGISTER} {callee}(ptr, i32, <16 x i1>, {_REGISTER})")
    with f.loop(0, ROWS) as row:
        f.store("zeroinitializer", _REGISTER, _row(f, number, row), 64)
    with f.loop(0, rows) as row:
        place = f.gep("%place", f.mul(row, "%stride"), "i8")
        arguments = f"ptr {place}", "i32 1", f"<16 x i1> {mask}", f"{_REGISTER} zeroinitializer"
        f.store(f.call(_REGISTER, callee, *arguments), _REGISTER, _row(f, number, row), 64)
    f.ret()


def _emit_store(module: Module, tile: Tile, symbol: str) -> None:
    f = module.function(f"void {symbol}(ptr %state, i8 %tile, ptr %place, i64 %stride)", "internal")
    number = _wide(f, "%tile")
    mask, callee = _mask(f, _words_of(f, number)), "@llvm.masked.store.v16i32.p0"
    module.declare(f"declare void {callee}({_REGISTER}, ptr, i32, <16 x i1>)")
    with f.loop(0, _rows_of(f, number)) as row:
        value = f.load(_row(f, number, row), _REGISTER, 64)
        place = f.gep("%place", f.mul(row, "%stride"), "i8")
        f.call("void", callee, f"{_REGISTER} {value}", f"ptr {place}", "i32 1", f"<16 x i1> {mask}")
    f.ret()


def _emit_dot(module: Module, tile: Tile, symbol: str) -> None:
    """Nothing where the shapes do not fit, which the instruction refuses."""
    signature = f"void {symbol}(ptr %state, i8 %sums, i8 %left, i8 %right)"
    f = module.function(signature, "internal")
    sums, left, right = (_wide(f, name) for name in ("%sums", "%left", "%right"))
    rows, words = _rows_of(f, sums), _words_of(f, left)
    fits = [f.cmp("eq", rows, _rows_of(f, left)), f.cmp("eq", words, _rows_of(f, right)),
            f.cmp("eq", _words_of(f, sums), _words_of(f, right))]
    for fit in fits:
        rows = f.let(f"select i1 {fit}, i64 {rows}, i64 0")
    parts = _halves_product if tile.step.left is dtypes.bf16 else _bytes_product
    with f.loop(0, rows) as row:
        at = _row(f, sums, row)
        start = [(_REGISTER, "zeroinitializer")] * tile.group
        loop = f.carry_loop(0, words, 1, start)
        word = f.load(f.gep(_row(f, left, row), loop.index, "i32"), "i32", 4)
        first = f.let(f"insertelement {_REGISTER} poison, i32 {word}, i64 0")
        mask = "<16 x i32> splat (i32 0)"
        every = f.let(f"shufflevector {_REGISTER} {first}, {_REGISTER} poison, {mask}")
        others = f.load(_row(f, right, loop.index), _REGISTER, 64)
        totals = loop.close(
            [parts(f, tile, index, every, others, total) for index, total in
             enumerate(loop.values)]
        )
        old, total = f.load(at, _REGISTER, 64), totals[0]
        for other in totals[1:]:
            total = _add(f, tile, total, other)
        f.store(_add(f, tile, old, total), _REGISTER, at, 64)
    f.ret()


def _halves_product(
    f: Function, tile: Tile, index: int, left: str, right: str, total: str
) -> str:
    """Each value of a word has a sum of its own."""
    values = []
    for words in (left, right):
        wide = f.let(f"shl {_REGISTER} {words}, splat (i32 16)") if index == 0 else f.let(
            f"and {_REGISTER} {words}, splat (i32 {-1 << 16})"
        )
        values.append(f.let(f"bitcast {_REGISTER} {wide} to {tile.vector}"))
    f.module.declare(
        f"declare {tile.vector} @llvm.fma.v16f32({tile.vector}, {tile.vector}, {tile.vector})"
    )
    values.append(f.let(f"bitcast {_REGISTER} {total} to {tile.vector}"))
    sums = f.call(tile.vector, "@llvm.fma.v16f32", *(f"{tile.vector} {x}" for x in values))
    return f.let(f"bitcast {tile.vector} {sums} to {_REGISTER}")


def _bytes_product(
    f: Function, tile: Tile, index: int, left: str, right: str, total: str
) -> str:
    values = []
    for words, dtype in ((left, tile.step.left), (right, tile.step.right)):
        top = f.let(f"shl {_REGISTER} {words}, splat (i32 {24 - 8 * index})")
        shift = "ashr" if dtype.is_signed else "lshr"
        values.append(f.let(f"{shift} {_REGISTER} {top}, splat (i32 24)"))
    product = f.let(f"mul {_REGISTER} {values[0]}, {values[1]}")
    return f.let(f"add {_REGISTER} {total}, {product}")


def _add(f: Function, tile: Tile, a: str, b: str) -> str:
    if tile.step.left is not dtypes.bf16:
        return f.let(f"add {_REGISTER} {a}, {b}")
    a, b = (f.let(f"bitcast {_REGISTER} {x} to {tile.vector}") for x in (a, b))
    return f.let(f"bitcast {tile.vector} {tile.add(f, a, b)} to {_REGISTER}")


_EMULATED = {
    "ldtilecfg": _emit_configure, "tilerelease": _emit_release, "tilezero": _emit_zero,
    "tileloadd64": _emit_load, "tilestored64": _emit_store,
}
