"""Words that describe a convolution to the shared code: three spatial dimensions, always.

Fewer dimensions are padded in front with size 1. Fields of three words are (depth, height, width).
"""

import enum

from graphc.backends.llvm.text import Function, Value

DEPTH, HEIGHT, WIDTH = range(3)


class Window(enum.IntEnum):
    """How rows (channel, tap) meet positions: the right operand as seen by a packer.

    Position p of the output grid and tap t read coordinate p * STEP - LOW + t * DILATION, zero
    outside 0..IN. Strides are in elements.
    """

    CHANNEL_STRIDE = 0
    IMAGE_STRIDE = 1
    TAPS = 2  # the product of WINDOW
    IN = 3
    WINDOW = 6
    OUT = 9
    STEP = 12
    LOW = 15
    DILATION = 18
    # where weights (row, channel, tap) lie, for packing a left operand by taps
    WEIGHT_START = 21
    WEIGHT_ROW = 22
    WEIGHT_CHANNEL = 23
    WEIGHT_TAP = 24


WINDOW_WORDS = 27


class Conv(enum.IntEnum):
    """The request of a convolution kernel."""

    ARGUMENTS = 0  # the kernel's argument block, for its epilogue
    EPILOGUE = 1
    PACK_LEFT = 2
    PACK_RIGHT = 3
    LEFT_SAME = 4  # 1: the left operand has the accumulator's type
    LEFT = 5  # pointers
    RIGHT = 6
    LEFT_BYTES = 7  # of one element
    RIGHT_BYTES = 8
    BATCH = 9
    CHANNELS = 10  # of one group
    OUTPUTS = 11  # of one group
    GROUPS = 12
    INPUT = 13
    WINDOW = 16
    OUTPUT = 19
    STRIDE = 22
    PAD = 25
    DILATION = 28
    PAD_COPY = 41  # copies the right operand with its padding (see conv_direct)
    RIGHT_SAME = 42  # 1: the right operand has the accumulator's type
    MEMORY = 43  # scratch, as much as plan_convolution says
    # added by the driver
    LEFT_GROUP = 31  # distance of groups in bytes
    RIGHT_GROUP = 32
    SCRATCH = 33  # an input gradient with a stride, before the epilogue
    PHASE = 34  # of the input positions: coordinate % stride
    GRID = 37  # positions of this phase
    ROWS = 40  # channels per chunk of the epilogue's own pass


CONV_WORDS = 44


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


def product(f: Function, values: list[str]) -> Value:
    """The product of three words."""
    return f.mul(f.mul(values[0], values[1]), values[2])
