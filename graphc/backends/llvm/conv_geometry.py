"""Words that describe a convolution to the shared code: three spatial dimensions, always.

Fewer dimensions are padded in front with size 1. Three words are (depth, height, width).
"""

import enum

from graphc.backends.llvm.text import Function, Value
from graphc.ir.dim import Size

DEPTH, HEIGHT, WIDTH = range(3)


class _Fields(enum.IntEnum):
    """Fields of three words each, in order; most use the first one alone."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last: list[int]) -> int:
        return 3 * count


class Window(_Fields):
    """How rows (channel, tap) meet positions: the right operand as seen by a packer.

    Position p of the output grid and tap t read coordinate p * STEP - LOW + t * DILATION, zero
    outside 0..IN. Strides are in elements.
    """

    CHANNEL_STRIDE = enum.auto()
    IMAGE_STRIDE = enum.auto()
    TAPS = enum.auto()  # the product of WINDOW
    IN = enum.auto()
    WINDOW = enum.auto()
    OUT = enum.auto()
    STEP = enum.auto()
    LOW = enum.auto()
    DILATION = enum.auto()
    # where weights (row, channel, tap) lie, for packing a left operand by taps
    WEIGHT_START = enum.auto()
    WEIGHT_ROW = enum.auto()
    WEIGHT_CHANNEL = enum.auto()
    WEIGHT_TAP = enum.auto()


WINDOW_WORDS = 3 * len(Window)


class Conv(_Fields):
    """The request of a convolution kernel."""

    ARGUMENTS = enum.auto()  # the kernel's argument block, for its epilogue
    EPILOGUE = enum.auto()
    PACK_LEFT = enum.auto()
    PACK_RIGHT = enum.auto()
    PAD_COPY = enum.auto()  # copies the right operand with its padding (see conv_direct)
    TILES = enum.auto()  # tables of kernels; not of words of several values, but for the last
    WINDOWS = enum.auto()
    DOTS = enum.auto()
    LEFT_SAME = enum.auto()  # 1: the left operand has the accumulator's type
    RIGHT_SAME = enum.auto()
    LEFT = enum.auto()  # pointers
    RIGHT = enum.auto()
    LEFT_BYTES = enum.auto()  # of one element
    RIGHT_BYTES = enum.auto()
    BATCH = enum.auto()
    CHANNELS = enum.auto()  # of one group
    OUTPUTS = enum.auto()  # of one group
    GROUPS = enum.auto()
    INPUT = enum.auto()
    WINDOW = enum.auto()
    OUTPUT = enum.auto()
    STRIDE = enum.auto()
    PAD = enum.auto()
    DILATION = enum.auto()
    MEMORY = enum.auto()  # scratch, as much as plan_convolution says,
    WORKERS = enum.auto()  # for so many chunks at a time
    # added by the driver
    LEFT_GROUP = enum.auto()  # distance of groups in bytes
    RIGHT_GROUP = enum.auto()
    SCRATCH = enum.auto()  # an input gradient with a stride, before the epilogue
    PHASE = enum.auto()  # of the input positions: coordinate % stride
    GRID = enum.auto()  # positions of this phase
    ROWS = enum.auto()  # channels per chunk of the epilogue's own pass


CONV_WORDS = 3 * len(Conv)


class Words:
    """Reads and writes a block of words by field and dimension."""

    def __init__(self, function: Function, pointer: str) -> None:
        self.function, self.pointer = function, pointer

    def place(self, field: int, dim: int = 0) -> str:
        """The address of a word."""
        return self.function.gep(self.pointer, int(field) + dim, "i64")

    def read(self, field: int, dim: int = 0) -> str:
        """Loads a word, here."""
        return self.function.load(self.place(field, dim), "i64", 8)

    def read3(self, field: int) -> list[str]:
        """Loads the three words of a field."""
        return [self.read(field, dim) for dim in range(3)]

    def read_pointer(self, field: int) -> str:
        """Loads a word as a pointer."""
        return self.function.load(self.place(field), "ptr", 8)

    def write(self, field: int, value: Value, dim: int = 0) -> None:
        """Stores a word."""
        self.function.store(value, "i64", self.place(field, dim), 8)

    def write_pointer(self, field: int, value: str) -> None:
        """Stores a pointer."""
        self.function.store(value, "ptr", self.place(field), 8)


def in_three(sizes: tuple[Size, ...], missing: int) -> tuple[Size, ...]:
    """Sizes of all three dimensions."""
    return (missing,) * (3 - len(sizes)) + sizes


def product(f: Function, values: list[str]) -> Value:
    """The product of three words."""
    return f.mul(f.mul(values[0], values[1]), values[2])
