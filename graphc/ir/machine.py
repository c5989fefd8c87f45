"""What the shared passes may know of a machine: one value, made by a backend.

A backend passes its Machine through fusion, lowering and planning; it is part of the key of
everything that is kept. Real cores are not in it: the order of arithmetic, and so every bit of a
result, follows shapes and these numbers alone.
"""

from __future__ import annotations

from .record import record


@record
class Far:
    """What a third cache that is far away (a mesh: it gives a core a fifth of what the second one
    does) asks of tiling: what is met again and again is packed into a nearer cache, and what comes
    from there is asked for before its turn (`gemm_ahead.py`, `conv_ask.py`).

    A right operand that at most `shared_rows` rows meet is not packed once for all chunks, but by
    each chunk, which then has all rows; a Tiling's `near_steps` at a time where at most `near_rows`
    meet it. Chunks that split the rows of what is packed are at least `shared_tiles` tiles high, so
    that they have as many rows as columns. `weight_cost` are the cycles in which a register of
    weights comes that the second cache does not hold, as each strip of a convolution has all of
    them come (`plan_strips.py`).
    """

    shared_rows: int
    near_rows: int
    shared_tiles: int
    weight_cost: int


@record
class ChannelTiles:
    """How convolutions go whose tiles are positions by channels: those by strips, and those whose
    channels are last (`plan_last.py`, `plan_last_lines.py`, `conv_steps.py`).

    Of fewer than `sums` registers of sums, steps wait for each other. A loop goes `unrolled` steps
    a trip, where it does not wait. `even`: an image's tiles are as equally high as can be, so that
    the last one is not low. `in_turn`: of a large image with many weights, all panels meet a part
    of it before others come. `asks`: tiles ask the memory for what they multiply next.
    """

    sums: int
    unrolled: int = 1
    even: bool = False
    in_turn: bool = False
    asks: bool = False


@record
class Tiling:
    """What limits how a contraction is tiled (`kernel/blocking.py`), acc[m, n] summed over k.

    **Tiles.** A register has `vector_bytes`; the innermost tile is `rows` high and `vectors`
    registers wide. A block has at most `block_k` steps of k: a panel of the right operand then fits
    half of the second cache. A block of a product has `row_bytes` of a row of the left operand, if
    that is more than block_k steps. `channels`: of convolutions whose tiles are positions by
    channels.

    **The right operand.** One that at most `in_place_rows` rows meet is read where it lies; so is
    one of up to `kept_bytes`, and of up to `unpacked_bytes` one that at most `unpacked_rows` rows
    meet. Else at most `pack_bytes` of it are packed at a time, `pointed_columns` columns where
    tiles go through pointers. One of more than `in_place_bytes` that few rows meet is a stream,
    which memory gives fastest in long runs: `stream_steps` rows of it at a time, in chunks of
    `stream_columns` columns. But where the caches hold it (`unpacked_bytes`), and more rows than a
    tile's meet it, a panel of `near_steps` steps at a time stays in the first cache while they do.
    `far` says what a third cache that is far away asks for (None: it is near).

    **The left operand.** One of more than `unpacked_bytes` that is contiguous along m is packed
    where it meets at least `turned_columns` columns (0: it never is). `asks_left`: each tile has
    the rows that the next one reads come meanwhile.

    **Chunks.** A right operand of up to `shared_bytes` may be packed once for all chunks, which
    then have `chunk_columns` columns at least, or as many as are packed at a time, and share out
    the rows; `packs_alone`: one thread packs it block by block as it comes to them. Where it is not
    packed first, chunks have `least_columns` at least: a tile's rows, which lie further away, meet
    several panels. Chunks that split the rows are at least `row_tiles` tiles high. Reading the
    right operand takes as long as what `read_rows` rows do with it.

    **Other ways.** Where k is contiguous in both operands, up to `dot_rows` rows or `dot_columns`
    columns are computed as dot products. What a loop of at least `pack_steps` steps reads in each
    is packed before it; a product over all steps joins the loop's own where a step has `joint_rows`
    rows. A constant that at most `packed_rows` rows meet in each call is packed before the first
    one; where all of those together have more than `packed_bytes`, at most half as many rows.

    **Instructions.** `steps` names what there are some for that multiply and add several neighbours
    along k at a time (`kernel/steps.py`). Those of `slow` take longer than a multiply-add of each
    of the values: only products that wait for the memory are made of them. `split`: registers are
    computed in two halves, beside which one that is read under a mask costs more. A convolution's
    step whose registers lie across the caches' lines takes `across` fifths longer than one that
    reads packed ones. Of operands that are dense along k, a tile goes `unrolled` steps, a power of
    two, an iteration, if a multiply-add is one instruction.
    """

    vector_bytes: int
    rows: int
    vectors: int
    block_k: int
    pack_bytes: int
    pointed_columns: int
    in_place_bytes: int
    kept_bytes: int
    unpacked_bytes: int
    unpacked_rows: int
    in_place_rows: int
    turned_columns: int
    stream_steps: int
    stream_columns: int
    near_steps: int
    shared_bytes: int
    chunk_columns: int
    row_tiles: int
    read_rows: int
    dot_rows: int
    dot_columns: int
    pack_steps: int
    joint_rows: int
    packed_rows: int
    packed_bytes: int
    row_bytes: int
    least_columns: int
    channels: ChannelTiles
    steps: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()
    across: int = 0
    split: bool = False
    asks_left: bool = False
    unrolled: int = 1
    packs_alone: bool = False
    far: Far | None = None

    def lanes(self, itemsize: int) -> int:
        """Elements of one register."""
        return self.vector_bytes // itemsize

    def columns(self, itemsize: int) -> int:
        """Columns of the innermost tile."""
        return self.lanes(itemsize) * self.vectors

    def product_steps(self, itemsize: int) -> int:
        """The most steps of k in a block of a product."""
        return max(self.block_k, self.row_bytes // itemsize)


@record
class Sorting:
    """How much of a sort, of a running sum and of a scatter is done side by side
    (`passes/lower/radix.py`, `scan.py`, `segments.py`, `merge_sort.py`).

    `lanes` of a parallel iteration work together, a power of two. In a sort of positions each
    counts, and then places, `each` neighbouring keys by a digit of at most `digit` bits; in a
    running sum each adds `scanned` neighbours. Other sorts compare all pairs of a tile of `ranked`.
    Updates of `in_turn` places of one row, or less, are made one after another where they fall; so
    is what has `beside` rows to be done side by side.
    """

    lanes: int
    each: int
    digit: int
    scanned: int
    in_turn: int
    beside: int
    ranked: int


@record
class Transform:
    """What Winograd's transforms take (`passes/winograd.py`).

    A number of a transformed tile, which is computed, written and read again, takes as long as
    `number` multiplications of a product; besides, a tile takes as long as `beside` numbers in each
    of its places. An element of an image that gets its channels last, or first again, takes as long
    as `turned` numbers.
    """

    number: int
    beside: int
    turned: int


@record
class Machine:
    """Numbers of one kind of machine. Work is counted in elements of light work (about 8
    additions each), costs in additions per element.

    `small` elements are done by one worker alone (0: nothing is). A larger space is cut in about
    `parallelism` chunks of `chunk_least` to `chunk_most` elements. One parallel iteration takes
    at most `block` lanes where every lane is done by itself, `columns` lanes where each has a
    column of its own to go along, `column_rows` where rows are the lanes of a running sum. It is
    given rows, in a serial loop, until it has `iteration_least` elements, as long as
    `least_parallel` iterations are left. What differs along an axis by stretches of at least
    `stretch` elements gets a loop for each; along one of `stretched` at least, shorter ones, too;
    where it has `outer_stretches`, along an outer axis any, each iteration going along its part.

    A reduction over less than `alone` elements joins the kernel of its readers even if that has
    fewer than `least_parallel` iterations. One over `split_least` elements that keeps few places
    is cut in pieces of `split_piece` elements (of rows of `split_row` at least), whose results
    are combined by a second stage. Up to `lanes_outside` lanes, the vector loop of a row goes
    around the serial ones. A row of at most `tile` elements may be kept in a Local tile; rows of
    what is read again are, too, as long as all tiles have at most `rereads` elements.

    A lane goes along at most `lane_steps` elements by itself (0: as many as there are): longer
    reductions are cut, in pieces of at least `piece_steps` of them where blocks are few, and done
    in stages. Of at most `across` elements, which are in a cache that all share, lanes share out
    the rows of each column, wherever these lie: then there is one stage. One that goes along rows
    and adds up columns beside them takes at least `rows_least` rows. Where it `hoists`,
    what is the same for all parallel iterations stands before them.

    A template's work is cut in pieces of at least `template_flops` floating-point operations, in
    at most `template_chunks` pieces; `tiling` says how a piece is computed (None: no template is
    rendered).

    What costs `dear` or more is kept rather than computed again in another pass; what costs at
    most `cheap` is computed again in each kernel that reads it.

    A buffer in the arena begins at a multiple of `alignment` bytes. A value of at most `lasting`
    bytes keeps its place there to the end, so that steps wait for no others than whose results
    they read (`plan/together.py`).

    A value of at least `pitched` bytes has rows that wide accesses fit, where the planner is free
    to say so (`plan/pitch.py`; 0: none has).

    Long sums over rows go along rows, in runs of at most `column_run` columns (0: each lane goes
    along its own column).

    `sorting` says how what has an order is done in parallel (None: one after another). Where it
    `sorts`, sorts are kernels; elsewhere a routine does them, but for the first of up to
    `few_sorted` numbers, and for those that are found by `few_compared` comparisons at most, of
    each number with each of them: a kernel has found them before a routine has begun.

    `by_counter`: unless somebody asks otherwise, random numbers are made of a counter where they
    are used; not of a stream, in which each follows from the one before.

    From `unrolled_steps` equal steps on, unrolled code becomes a loop. Steps of elementwise work
    alone, of which few kernels are made, do so if they are `unrolled_light` operators together.

    `tf32`: float32 products that may round what they multiply to TF32 gain from it.

    What convolutions read and write has its channels last in memory, where it has at least
    `channels_last` of them (0: nothing has).

    Sums over the rows of what a template makes are begun in its epilogue, `partial_rows` at a time
    (0: nowhere).

    Where it has units for products of `halves`, one of floats that are widened halves (a linear
    layer under autocast adds its bias before the sum is rounded) reads the halves.

    `transform` says what convolutions by tiles take (None: they are not known to be faster).

    Where products of `integers` are rendered, they are templates, and one of int32 that are widened
    bytes reads the bytes.
    """

    kind: str  # "cpu" or "gpu": what a person calls it
    small: int
    parallelism: int
    chunk_least: int
    chunk_most: int
    block: int
    copy_block: int
    columns: int
    column_rows: int
    iteration_least: int
    stretch: int
    stretched: int
    least_parallel: int
    alone: int
    split_least: int
    split_piece: int
    split_row: int
    lanes_outside: int
    tile: int
    rereads: int
    lane_steps: int
    piece_steps: int
    rows_least: int
    hoists: bool
    template_flops: int
    template_chunks: int
    dear: int
    cheap: int
    alignment: int
    unrolled_steps: int
    unrolled_light: int
    outer_stretches: bool = False
    tiling: Tiling | None = None
    sorting: Sorting | None = None
    sorts: bool = False
    few_sorted: int = 0
    few_compared: int = 0
    lasting: int = 0
    column_run: int = 0
    channels_last: int = 0
    pitched: int = 0
    by_counter: bool = False
    tf32: bool = False
    halves: bool = False
    integers: bool = False
    partial_rows: int = 0
    across: int = 0
    transform: Transform | None = None

    def chunk(self, total: int, cost: int) -> int:
        """Elements per chunk of a space of `total` elements of `cost` additions each."""
        scale = max(1, cost // LIGHT)
        least, most = self.chunk_least // scale, self.chunk_most // scale
        return max(1, least, min(most, total // self.parallelism))

    def pieces(self, flops: int) -> int:
        """How many workers may share a template's work."""
        return min(max(flops // self.template_flops, 1), self.template_chunks)

    def one_worker(self, total: int, cost: int) -> bool:
        """Whether `total` elements of `cost` additions each are too few to share."""
        return total * max(1, cost // LIGHT) < self.small

    def iterations(self, kept: int, vector_kept: bool) -> int:
        """Parallel iterations of a reduction that keeps `kept` places, the vector along them."""
        return max(1, kept // self.columns) if vector_kept else kept


LIGHT = 8  # additions per element that count as light work
