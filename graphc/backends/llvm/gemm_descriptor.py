"""The block of words that a contraction kernel hands to the shared contraction code.

A kernel fills the request; `gemm_plan` adds the plan; packers and tiles read both. Every word
has 8 bytes. Strides and sizes are in elements, scratch sizes and offsets in bytes.
"""

import enum

from graphc.backends.llvm.text import Function, Value
from graphc.ir.kernel.blocking import Blocking


class Word(enum.IntEnum):
    """Places in the descriptor. Pointers to functions have the signatures below."""

    # The request
    ARGUMENTS = 0  # passed through to EPILOGUE
    OPERANDS = enum.auto()  # passed through to BASES
    BATCH = enum.auto()  # independent products (the groups of a convolution)
    M = enum.auto()
    N = enum.auto()
    K = enum.auto()  # steps
    BASES = enum.auto()
    PACK_LEFT = enum.auto()
    PACK_RIGHT = enum.auto()
    EPILOGUE = enum.auto()
    LEFT_DIRECT = enum.auto()  # 1: the left operand may be read in place
    LEFT_M = enum.auto()  # strides of the left operand
    LEFT_K = enum.auto()
    LEFT_STEP = enum.auto()  # bytes from one step of k to the next where it is read in place
    # values of k = (segment, place in it); all of them if there is one segment
    SEGMENT = enum.auto()
    LEFT_SEGMENT = enum.auto()  # stride of a segment in the left operand
    RIGHT_DIRECT = enum.auto()  # 1: n has stride 1 and the right operand may be read in place
    RIGHT_K = enum.auto()
    RIGHT_N = enum.auto()
    K_QUANTUM = enum.auto()  # blocks of k are multiples of this (the taps of a window)
    PACK_SCRATCH = enum.auto()  # bytes that PACK_RIGHT wants to work in,
    PACK_SCRATCH_COLUMN = enum.auto()  # and bytes per column on top
    POSITIONS = enum.auto()  # n = (image, position); N if n is not flattened
    EPILOGUE_B = enum.auto()  # the epilogue's b is batch * this + image,
    FIRST_IMAGE = enum.auto()  # counted from this one on
    EPILOGUE_M = enum.auto()  # the epilogue's m is batch * this + m
    VALUES = enum.auto()  # of k in all: K, or what its pairs are made of
    TERMS = enum.auto()  # multiplications per sum (K, unless a step of k is more than one)
    MOST_STEPS = enum.auto()  # of k in a block
    MOST_COLUMNS = enum.auto()  # of the right operand that are pointed to at a time
    TILES = enum.auto()  # a table of tile kernels; of words of several values, 0 for all there are
    RUNS = enum.auto()  # a table of kernels "run", where a step of k is one value
    # 0: panels of B are dense. Else PACK_RIGHT stores pointers, one for so many columns, and tile
    # kernels get B_STEP and A_STEP in place of their steps.
    POINTER_COLUMNS = enum.auto()
    B_STEP = enum.auto()  # plus B_STEP_K for every step of k before the block
    B_STEP_K = enum.auto()
    A_STEP = enum.auto()
    COPY = enum.auto()  # of a convolution's input: see conv_direct
    GEOMETRY = enum.auto()  # of a convolution's right operand (see conv_geometry), or 0
    # 0, or how far apart panels of the right operand lie: columns of a tile, all of k
    PANEL = enum.auto()
    MEMORY = enum.auto()  # scratch, as much as the plan says
    WORKERS = enum.auto()  # for so many chunks at a time

    # The plan: the fields of a Blocking, by name
    BLOCK_SEGMENT = enum.auto()
    BLOCK_K = enum.auto()
    BLOCKS_PER_SEGMENT = enum.auto()
    BLOCKS = enum.auto()
    BLOCK_N = enum.auto()
    CHUNK_BATCH = enum.auto()
    CHUNK_M = enum.auto()
    CHUNK_N = enum.auto()
    CHUNK_BLOCKS = enum.auto()
    SPLIT_M = enum.auto()
    SPLIT_N = enum.auto()
    SPLIT_K = enum.auto()
    CHUNKS = enum.auto()
    LEFT_PACKED = enum.auto()  # 1 asks for packing; the driver replaces it by the pointer
    RIGHT_PACKED = enum.auto()  # likewise
    RIGHT_IN_PLACE = enum.auto()
    AREA = enum.auto()
    PACK_AT = enum.auto()
    PACK_SCRATCH_AT = enum.auto()
    CHUNK_SCRATCH = enum.auto()
    RIGHT_AT = enum.auto()
    PARTIAL_AT = enum.auto()
    CHUNKS_AT = enum.auto()
    SLOTS = enum.auto()

    # While it runs
    PARTIAL = enum.auto()  # sums of a split k: [chunk of (m, n)][part of k][AREA]
    BUSY = enum.auto()  # a bit for each slot whose scratch a chunk has


WORDS = len(Word)
# The words of a plan by the names of a Blocking's fields; pack_scratch is both asked and planned.
PLAN = {name: Word[name.upper()] for name in Blocking.__match_args__}

# bases(operands, b, out): out[0], out[1] = where batch b of left and right begins
BASES = "void (ptr, i64, ptr)"
# pack_left(descriptor, base, m, rows, k, steps, destination): tiles of [steps][MR], missing rows
# of the last tile arbitrary; for a matrix unit [rows][steps]
PACK_LEFT = "void (ptr, ptr, i64, i64, i64, i64, ptr)"
# pack_right(descriptor, base, n, columns, k, steps, destination, scratch): panels of
# [steps][width * lanes], one after the other, columns beyond the last arbitrary
PACK_RIGHT = "void (ptr, ptr, i64, i64, i64, i64, ptr, ptr)"
# epilogue(arguments, b, m, rows, n, columns, tile, pitch): tile[row * pitch + column] are the sums
EPILOGUE = "void (ptr, i64, i64, i64, i64, i64, ptr, i64)"


# Of functions that run once a launch, as those that fill a request, or hardly ever: optimising one
# would take as long as compiling the epilogue.
ENTRY = "nounwind noinline optnone"


class Descriptor:
    """Access to a descriptor in memory from a function under construction; loads are cached.

    Only for loads that dominate the rest of the function: make it in the entry block and `read`
    there what later blocks need.
    """

    def __init__(self, function: Function, pointer: str) -> None:
        self.function, self.pointer = function, pointer
        self._cache: dict[Word, str] = {}

    def place(self, word: Word) -> str:
        """The address of a word."""
        return self.function.gep(self.pointer, int(word), "i64")

    def read(self, *words: Word) -> list[str]:
        """Loads words (i64) and remembers them."""
        for word in words:
            if word not in self._cache:
                self._cache[word] = self.function.load(self.place(word), "i64", 8)
        return [self._cache[word] for word in words]

    def __getitem__(self, word: Word) -> str:
        return self.read(word)[0]

    def pointer_at(self, word: Word) -> str:
        """Loads a word as a pointer, here."""
        return self.function.load(self.place(word), "ptr", 8)

    def __setitem__(self, word: Word, value: Value) -> None:
        self.function.store(value, "i64", self.place(word), 8)
        self._cache[word] = str(value)

    def set_pointer(self, word: Word, value: str) -> None:
        """Stores a pointer (null is "null")."""
        self.function.store(value, "ptr", self.place(word), 8)


def begin_request(f: Function, words: dict[Word, Value], pointers: dict[Word, str]) -> Descriptor:
    """A descriptor on the stack with the given words of the request; the others are 0."""
    d = Descriptor(f, f.alloca("i64", WORDS))
    request = [word for word in Word if word < Word.BLOCK_SEGMENT]
    for word in request:
        if word in pointers:
            d.set_pointer(word, pointers[word])
        else:
            f.store(words.get(word, 0), "i64", d.place(word), 8)
    return d
