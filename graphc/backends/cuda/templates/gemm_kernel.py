"""The frame of a product's kernels: tiles shared out to blocks, sums, then the epilogue.

What is between two operands (gemm_operand.TileSource) and the epilogue is the same for a product
and for a convolution: `multiply` of an engine leaves a tile of sums in shared memory, from where
threads take them in the order of memory, 16 bytes at a time, so that the epilogue is one text, and
what it reads and writes is coalesced. Where k is summed in pieces, these go to scratch, and a
second stage adds them in order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from graphc.backends.cuda.instructions import INSTRUCTIONS
from graphc.backends.cuda.prelude import PRELUDE
from graphc.backends.cuda.scalar import c_type
from graphc.backends.cuda.source import Source, Stage, Target
from graphc.backends.cuda.statements.pieces import LANE
from graphc.backends.cuda.templates import (
    gemm_dots,
    gemm_loader,
    gemm_mma,
    gemm_simt,
    gemm_wgmma,
)
from graphc.backends.cuda.templates.epilogue import epilogue, lanes_of
from graphc.backends.cuda.templates.gemm_operand import LINES, TileSource
from graphc.backends.cuda.templates.gemm_plan import Plan, Tile
from graphc.backends.cuda.templates.gemm_sizes import Sizes
from graphc.backends.cuda.templates.tallies import FUNCTIONS, WIDE, Tallies, Walk
from graphc.ir.dim import Size, ceil_div, product, unwrap
from graphc.ir.dtypes import DType
from graphc.ir.kernel import Kernel, Product, Stmt

_COMBINE_THREADS = 256
_GROUP = 8  # rows of tiles that are walked together: what they share stays in the second cache

_SUM = """
extern "C" __global__ void __launch_bounds__(THREADS, 1) NAME_sum(PARAMETERS) {
  using namespace NAME_parts;
  DYNAMIC_SHARED(shared);
  const i64 tiles_m = (TOTAL_M + TALL - 1) / TALL, tiles_n = (TOTAL_N + BROAD - 1) / BROAD;
  const i64 tiles = tiles_m * tiles_n;
  for (i64 number = blockIdx.x; number < tiles * TOTAL_B * PIECES; number += gridDim.x) {
    const i64 t = number % tiles, b = number / tiles % TOTAL_B, piece = number / tiles / TOTAL_B;
    const i64 group = t / (GROUP * tiles_n) * GROUP, high = take_min<i64>(tiles_m - group, GROUP);
    const i64 in_group = t % (GROUP * tiles_n);
    const i64 m0 = (group + in_group % high) * TALL, n0 = in_group / high * BROAD;
    const i64 first = take_min<i64>(piece * PIECE_STEPS, TOTAL_K);
    const i64 end = take_min<i64>(first + PIECE_STEPS, TOTAL_K);
    MAKE_LEFT
    MAKE_RIGHT
    ACC* const sums = (ACC*)shared;
    multiply(shared, left, right, m0, n0, first, end, sums);
    __syncthreads();
    WALK
    __syncthreads();
  }
}
"""
_WALK = """for (int i = threadIdx.x * LANES; i < TALL * BROAD; i += THREADS * LANES) {
      const i64 m = m0 + i / BROAD, n = n0 + i % BROAD;
      if (m < TOTAL_M && n < TOTAL_N) {
        ACC* const own = sums + i / BROAD * PITCH + i % BROAD;
        TAKE
        FINISH
      }
    }"""
_OWN = "sums + (top + line_) * PITCH + column_"
_TAKE = """Pack<ACC, LANES> found = *(const Pack<ACC, LANES>*)own;
        MEND"""
# What an operand has no place for was multiplied as 0, which makes NaN of an infinite factor. So a
# sum that is NaN is added up again from those terms alone that are there, until it is NaN again.
_FACTOR = """
template <class T> __device__ inline T factor(T x) { return x; }
"""
_FACTOR_TF32 = """
__device__ inline float factor(float x) { return float_bits(tf32_round(__float_as_uint(x))); }
"""
_MEND = """
template <int LANES, class A> __device__ inline bool has_nan(const Pack<A, LANES>& pack) {
  bool found = false;
  #pragma unroll
  for (int lane = 0; lane < LANES; lane++) found = found || pack.x[lane] != pack.x[lane];
  return found;
}
template <int LANES, class A, class Left, class Right> __device__ inline void mend(
    A* own, const Left& left, const Right& right, i64 m, i64 n, i64 first, i64 end) {
  const typename Left::Line line = left.line(m);
  #pragma unroll 1
  for (int lane = 0; lane < LANES; lane++) {
    if (own[lane] == own[lane]) continue;
    const typename Right::Along column = right.along(n + lane);
    A sum = 0;
    #pragma unroll 1
    for (i64 k = first; k < end && sum == sum; k += PIECE) {
      int count, there;
      const auto* const x = left.at(line, left.along(k), &count);
      #pragma unroll 1
      for (int e = 0; e < count; e++)
        sum += (A)factor(x[e * left.step]) *
               (A)factor(*right.at(right.line(k + e), column, &there));
    }
    own[lane] = sum;
  }
}
"""
_MENDED = """if (has_nan(found)) {
          mend<LANES>(own, left, right, m, n, first, end);
          found = *(const Pack<ACC, LANES>*)own;
        }"""
_PART = """store_pack(
            (ACC*)scratch + ((piece * TOTAL_B + b) * TOTAL_M + m) * ROW + n, found, true);"""
# What goes through sums that are in scratch: in the order of memory, or tile by tile (tallies).
_ALL = """
extern "C" __global__ void __launch_bounds__(THREADS_OF_COMBINE, 1) NAME_STAGE(PARAMETERS) {
  const i64 all = TOTAL_B * TOTAL_M * ROW;
  for (i64 i = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * LANES; i < all;
       i += (i64)gridDim.x * blockDim.x * LANES) {
    const i64 at_ = i;
    const i64 row = i / ROW, b = row / TOTAL_M, m = row % TOTAL_M, n = i % ROW;
    TAKE
    FINISH
  }
}
"""
_ALL_TILES = """
extern "C" __global__ void __launch_bounds__(THREADS_OF_COMBINE, 1) NAME_STAGE(PARAMETERS) {
  using namespace NAME_parts;
  DYNAMIC_SHARED(shared);
  const i64 all = TOTAL_B * TOTAL_M * ROW;
  const i64 wide = (TOTAL_N + BROAD - 1) / BROAD, high = (TOTAL_M + TALL - 1) / TALL;
  for (i64 number = blockIdx.x; number < wide * high * TOTAL_B; number += gridDim.x) {
    const i64 n0 = number % wide * BROAD, m0 = number / wide % high * TALL;
    const i64 b = number / wide / high;
    WALK
  }
}
"""
_PLACE = "const i64 row = b * TOTAL_M + m, at_ = row * ROW + n;\n    "
_COMBINE = """const ACC* const parts = (const ACC*)scratch + at_;
    Pack<ACC, LANES> found = load_pack<LANES>(parts, true);
    for (i64 piece = 1; piece < PIECES; piece++) {
      const Pack<ACC, LANES> more = load_pack<LANES>(parts + piece * all, true);
      #pragma unroll
      for (int lane = 0; lane < LANES; lane++) found.x[lane] += more.x[lane];
    }"""
_FINISH = """const Pack<STORED, LANES> found = load_pack<LANES>(
        (const STORED*)scratch + row * PITCH + n, WHOLE);"""


@dataclass(frozen=True, slots=True)
class Contraction:
    """What is summed. Sizes are as the sums are laid out; `arguments` has all that the text leaves
    open, also what made the operands. `place`: CUDA C that makes the epilogue's variables of b, m
    and n, where these are not its own; it may `continue` with the next sum. `along`: the one that
    grows with n, step by step; "" where there is none. `padded`: whether what the left operand has
    no place for is a 0 that counts; else it is no term at all (only for lines of it along k, and of
    the right one along n). `column`: CUDA C of the number of column n among the `columns` of all
    products of the batch, for Partials."""

    batch: Size
    m: Size
    n: Size
    k: Size
    left: TileSource
    right: TileSource
    acc: DType
    epilogue: tuple[Stmt, ...]
    arguments: Sizes
    place: str = ""
    along: str = "n"
    padded: bool = True
    column: str = "n"
    columns: Size = 0


def source(kernel: Kernel, c: Contraction, plan: Plan) -> Source:
    """The code of a contraction. The epilogue's indices are over b, m and n."""
    tile, split, sizes, tallies = plan.tile, plan.pieces > 1, c.arguments, Tallies(c.epilogue)
    lanes = _lanes(c, tile, split)
    total, row, left = _row(sizes, c.n, lanes)
    finish = epilogue(c.epilogue, sizes, _acc(c.acc), c.along, lanes, left)
    words = {
        "LANES": str(lanes), "ACC": c_type(c.acc), "ROW": row,
        "MAKE_LEFT": c.left.make, "MAKE_RIGHT": c.right.make,
        "TOTAL_B": _argument(sizes, c.batch), "TOTAL_M": _argument(sizes, c.m),
        "TOTAL_N": total, "TOTAL_K": _argument(sizes, c.k),
        "PIECES": _argument(sizes, plan.pieces) if split else "1",
        "PIECE_STEPS": _argument(sizes, plan.piece), "GROUP": str(_GROUP),
        "COLUMNS": _argument(sizes, c.columns) if tallies else "", "COLUMN": c.column,
        **{name: str(value) for name, value in _constants(tile).items()},
    }
    walk = _WALK.replace("TAKE", _TAKE)
    if tallies and not split:
        free = tile.m * tile.pitch * c.acc.itemsize
        walk = tallies.walk(Walk(tile.m, tile.n, tile.threads, free, _OWN))
        walk = walk.replace("TAKE", f"ACC* const own = {_OWN};\n{_TAKE}")
    walk = walk.replace("MEND", "" if c.padded else _MENDED)
    text = _declarations(c, tile) + _filled(_SUM.replace("WALK", walk), words)
    if split:
        text = text.replace("FINISH", _filled(_PART, words), 1)
        text += _all(tallies, "combine", _COMBINE, c.acc, words)
    sums = product((c.batch, c.m, _whole(c.n, lanes)))
    bytes_of_parts = product((plan.pieces, sums, c.acc.itemsize)) if split else 0
    return _source(
        kernel, sizes, text.replace("FINISH", f"{c.place}\n{finish}"),
        lambda name: _stages(name, c, plan, lanes), unwrap(bytes_of_parts),
    )


def _lanes(c: Contraction, tile: Tile, split: bool) -> int:
    """Neighbours that a thread takes in the epilogue."""
    threads, wide = (_COMBINE_THREADS, WIDE) if split else (tile.threads, tile.n)
    return _even(Tallies(c.epilogue), lanes_of(c.epilogue, c.along, c.n), c.n, threads, wide)


def _even(tallies: Tallies, lanes: int, n: Size, threads: int, wide: int) -> int:
    """Of tallies' rows none ends within a thread's lanes."""
    lanes = tallies.lanes(lanes, threads, wide)
    return 1 if tallies and _whole(n, lanes) != n else lanes


def finish(kernel: Kernel, t: Product, stored: DType, pitch: Size) -> Source:
    """The code of a product's epilogue alone, on sums that something else has left in scratch."""
    sizes, tallies = Sizes(kernel.dims), Tallies(t.epilogue)
    lanes = _even(tallies, lanes_of(t.epilogue, "n", t.n), t.n, _COMBINE_THREADS, WIDE)
    total, row, left = _row(sizes, t.n, lanes)
    finish = epilogue(t.epilogue, sizes, _acc(t.acc_dtype), "n", lanes, left)
    words = {
        "LANES": str(lanes), "ROW": row, "ACC": c_type(t.acc_dtype), "STORED": c_type(stored),
        "PITCH": _argument(sizes, pitch), "WHOLE": f"{left} >= {lanes}, {left}" if left else "true",
        "TOTAL_B": _argument(sizes, t.batch), "TOTAL_M": _argument(sizes, t.m),
        "TOTAL_N": total, "COLUMN": "n",
    }
    words["COLUMNS"] = words["TOTAL_N"]
    text = _all(tallies, "finish", _FINISH, t.acc_dtype, words)
    if tallies:
        text = f"namespace NAME_parts {{{FUNCTIONS}}}\n{text}"
    return _source(
        kernel, sizes, text.replace("FINISH", finish),
        lambda name: (_all_stage(f"{name}_finish", tallies, t.acc_dtype, t, lanes),),
        unwrap(product((t.batch, t.m, pitch, stored.itemsize))),
    )


def _all(tallies: Tallies, stage: str, take: str, acc: DType, words: dict[str, str]) -> str:
    """The text of a stage that goes through sums in scratch. FINISH stays."""
    text = _ALL
    words = {**words, "STAGE": stage, "THREADS_OF_COMBINE": str(_COMBINE_THREADS)}
    if tallies:
        tall = tallies.rows
        kept = f"(({c_type(acc)}*)shared + line_ * {WIDE} + column_)"
        walk = tallies.walk(Walk(tall, WIDE, _COMBINE_THREADS, _kept_bytes(tallies, acc), kept))
        text, take = _ALL_TILES.replace("WALK", walk), _PLACE + take
        words |= {"TALL": str(tall), "BROAD": str(WIDE)}
    return _filled(text.replace("TAKE", take), words)


def _kept_bytes(tallies: Tallies, acc: DType) -> int:
    """Of a tile of values."""
    return tallies.rows * WIDE * acc.itemsize if tallies.squares is not None else 0


def _all_stage(
    name: str, tallies: Tallies, acc: DType, of: Contraction | Product, lanes: int
) -> Stage:
    """How such a stage is launched."""
    if not tallies:
        sums = product((of.batch, of.m, _whole(of.n, lanes)))
        packs = unwrap(ceil_div(sums, _COMBINE_THREADS * lanes))
        return Stage(name, packs, _COMBINE_THREADS, 0)
    tiles = product((of.batch, ceil_div(of.m, tallies.rows), ceil_div(of.n, WIDE)))
    shared = _kept_bytes(tallies, acc) + tallies.shared_bytes(WIDE)
    return Stage(name, unwrap(tiles), _COMBINE_THREADS, shared)


def _whole(n: Size, lanes: int) -> Size:
    """Elements of a row of whole packs."""
    return unwrap(ceil_div(n, lanes) * lanes)


def _row(sizes: Sizes, n: Size, lanes: int) -> tuple[str, str, str]:
    """CUDA C: the extent of n, elements of a row of whole packs, and how many there are from n on,
    where that may be no whole pack."""
    total = _argument(sizes, n)
    if _whole(n, lanes) == n:
        return total, total, ""
    return total, _argument(sizes, _whole(n, lanes)), f"{total} - n"


def _acc(acc: DType) -> str:
    """A lane of the sums that were `found`."""
    kind = c_type(acc)
    return f"const {kind} acc = ({kind})found.x[{LANE}];"


def _source(
    kernel: Kernel, sizes: Sizes, text: str, stages: Callable[[str], tuple[Stage, ...]],
    scratch: Size,
) -> Source:
    """A text whose functions take PARAMETERS, and begin with NAME, which becomes a digest."""
    parameters = [f"{c_type(p.dtype)}* {p.name}" for p in kernel.params]
    parameters += [f"i64 {name}" for name in (*kernel.dims, *sizes.names())]
    parameters += ["i64* status", *(["unsigned char* scratch"] if scratch != 0 else [])]
    text = text.replace("PARAMETERS", ", ".join(parameters))
    name = "product_" + hashlib.sha256(text.encode()).hexdigest()[:24]
    text = PRELUDE + INSTRUCTIONS + text.replace("NAME_", f"{name}_")
    return Source(text, stages(name), scratch, tuple(sizes.values))


def _argument(sizes: Sizes, value: Size) -> str:
    return str(sizes.argument(value))


def _filled(text: str, words: dict[str, str]) -> str:
    """Longer words first: one may be the beginning of another."""
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, words[word])
    return text


def _declarations(c: Contraction, tile: Tile) -> str:
    """Constants, structs of operands, and the engine's multiply(), in a namespace of their own:
    texts are compiled together."""
    lines = [f"const int {name} = {value};\n" for name, value in _constants(tile).items()]
    declarations = dict.fromkeys((LINES, c.left.declarations, c.right.declarations))
    mend = (_FACTOR_TF32 if tile.engine == "tf32" else _FACTOR) + _MEND
    return "".join((
        "namespace NAME_parts {\n", *lines, *declarations, _multiply(c, tile),
        "" if c.padded else mend, FUNCTIONS if Tallies(c.epilogue) else "", "}\n",
    ))


def _constants(tile: Tile) -> dict[str, int]:
    """What engines and kernels both read."""
    return {
        "TALL": tile.m, "BROAD": tile.n, "DEEP": tile.k, "THREADS": tile.threads,
        "PITCH": tile.pitch,
    }


def _multiply(c: Contraction, tile: Tile) -> str:
    if tile.engine == "wgmma":
        return gemm_wgmma.multiply(tile, c.left, c.right)
    if tile.engine in ("mma", "tf32"):
        return gemm_mma.multiply(tile, c.left, c.right)
    if tile.engine == "dots":
        return gemm_dots.multiply(tile, c.left.dtype)
    return gemm_simt.multiply(tile, c.left.along, c.right.along, c.left.dtype)


def shared_bytes(c: Contraction, tile: Tile) -> int:
    """Of a block: the stages of the operands, then the sums in their place, and tallies."""
    stages = 0
    if tile.engine == "simt":
        stages = gemm_simt.shared_bytes(tile, c.left.along, c.right.along, c.left.dtype)
    elif tile.engine != "dots":
        stages = gemm_loader.shared_bytes(tile, c.left, c.right)
    tallied = Tallies(c.epilogue).shared_bytes(tile.n)
    return max(stages, tile.m * tile.pitch * c.acc.itemsize + tallied)


def fitting(c: Contraction, plans: Iterable[Plan], target: Target) -> list[Plan]:
    """Those for which a block has enough shared memory, and whose tiles hold whole blocks of the
    rows that Partials go over."""
    tallies = Tallies(c.epilogue)
    return [
        plan for plan in plans
        if shared_bytes(c, plan.tile) <= target.shared and tallies.fits(plan.tile.m, c.m)
    ]


def _stages(name: str, c: Contraction, plan: Plan, lanes: int) -> tuple[Stage, ...]:
    tile = plan.tile
    tiles = product((c.batch, ceil_div(c.m, tile.m), ceil_div(c.n, tile.n), plan.pieces))
    stages = [Stage(f"{name}_sum", unwrap(tiles), tile.threads, shared_bytes(c, tile))]
    if plan.pieces > 1:
        stages.append(_all_stage(f"{name}_combine", Tallies(c.epilogue), c.acc, c, lanes))
    return tuple(stages)
