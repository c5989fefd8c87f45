"""Grows a random Graph one operator at a time, watching the values so that they stay tame."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.doubt.case import Style, draw
from graphc.doubt.evaluate import Evaluator
from graphc.ir import dtypes, ops
from graphc.ir.dim import Dim, Size, evaluate
from graphc.ir.dtypes import DType
from graphc.ir.graph import Builder, Expr, Graph, Node
from graphc.ir.types import Shape, TensorType

_WEIGHTS = {"f32": 40, "f64": 10, "bf16": 6, "f16": 6, "i64": 12, "i32": 8, "bool": 6, "u8": 4,
            "i8": 4, "i16": 4}
MOST_ELEMENTS = 6_000
MOST_BIG_ELEMENTS = 90_000  # several chunks of any kernel


@dataclass(frozen=True)
class Traits:
    """What kind of graph to grow."""

    symbolic: bool = False
    gradient: bool = False
    special: bool = False  # infinities, NaN and the integers' ends among the inputs
    failing: bool = False  # some index may be out of range, some integer divisor 0
    big: bool = False  # more elements than one chunk
    empty: bool = False  # sizes of 0


class Refused(Exception):
    """A recipe found no operands that suit it."""


class Maker:
    """Holds the values so far. Recipes (tests/fuzz/recipes*.py) call its methods."""

    def __init__(self, seed: int, traits: Traits) -> None:
        self.seed, self.traits = seed, traits
        self.rng = random.Random(seed)
        self.builder = Builder()
        self.values: list[Expr] = []
        self.styles: dict[Node, Style] = {}
        self.read: set[Node] = set()  # values that some recipe has taken
        self.updates: set[Node] = set()  # new values of inputs
        self.states: list[Expr] = []  # of generators, never used twice
        self.dims: dict[str, int] = {}
        self.sizes: list[Size] = self._sizes()
        self.evaluator = Evaluator(self.dims)
        weights = {k: w for k, w in _WEIGHTS.items() if not traits.gradient or k[-1].isdigit()}
        if traits.gradient:
            weights = {"f32": 70, "f64": 25, "bf16": 3, "f16": 3}
        names, counts = list(weights), list(weights.values())
        self.palette = [dtypes.by_name(n) for n in self.rng.choices(names, counts, k=3)]
        if self.dims:
            self.fresh(self.dtype(), [n for n in self.sizes if isinstance(n, Dim)])
        for _ in range(self.rng.randint(1, 3)):
            self.values.append(self.fresh(self.dtype(), self.shape()))

    def _sizes(self) -> list[Size]:
        sizes: list[Size] = [self.rng.choice((1, 2, 3, 4, 5, 7, 8, 9)) for _ in range(3)]
        if self.rng.random() < 0.3:
            sizes[1] = self.rng.choice((16, 17, 33, 64))
        if self.traits.big:
            sizes[0] = self.rng.choice((300, 513, 1000, 4099, 20_011))
        if self.traits.empty:
            sizes[2] = 0
        if self.traits.symbolic:
            for i, name in enumerate(("n", "m")[: self.rng.randint(1, 2)]):
                hint = self.rng.choice((2, 3, 5, 8, 12))
                self.dims[name] = hint
                sizes[i] = self.builder.env.new(name, hint)
        return sizes

    # --- choosing ------------------------------------------------------------------------------

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def dtype(self, allowed: frozenset[DType] | Sequence[DType] = dtypes.ALL) -> DType:
        """One of the allowed dtypes, the graph's own first."""
        mine = [d for d in self.palette if d in allowed]
        if mine and self.chance(0.8):
            return self.rng.choice(mine)
        rest = [d for d in dtypes.ALL if d in allowed]
        if self.traits.gradient and (wide := [d for d in rest if d.is_float and d.bits > 16]):
            rest = wide
        return self.rng.choices(rest, [_WEIGHTS[d.name] for d in rest])[0]

    def shape(self, low: int = 0, high: int = 4) -> tuple[Size, ...]:
        """A shape of the graph's sizes, not too large."""
        for _ in range(20):
            rank = self.rng.choices(range(5), (1, 4, 6, 4, 1))[0]
            rank = max(low, min(high, rank))
            shape = tuple(
                1 if self.chance(0.12) else self.rng.choice(self.sizes) for _ in range(rank)
            )
            if 0 <= self.elements(shape) <= self.limit // 2:
                return shape
        return tuple(self.rng.choice((1, 2, 3)) for _ in range(max(low, 1)))

    @property
    def limit(self) -> int:
        return MOST_BIG_ELEMENTS if self.traits.big else MOST_ELEMENTS

    def hint(self, size: Size) -> int:
        return evaluate(size, self.dims)

    def elements(self, shape: Sequence[Size]) -> int:
        return int(np.prod([self.hint(n) for n in shape], dtype=np.int64))

    def array(self, x: Expr) -> np.ndarray:
        """The value of x in this graph's example. Raises Refused where computing it raises."""
        try:
            return np.asarray(self.evaluator.value(x.node))
        except (RuntimeError, IndexError):  # an index out of range, a division by 0
            raise Refused from None

    # --- operands ------------------------------------------------------------------------------

    def fresh(
        self, dtype: DType, shape: Sequence[Size], style: Style | None = None, keep: bool = True
    ) -> Expr:
        """A new input. `keep`: later recipes may use it too."""
        node = self.builder.input(TensorType(dtype, tuple(shape)), f"x{len(self.builder.inputs)}")
        if style is None:
            kind = self.rng.choices(("uniform", "halves"), (4, 0 if self.traits.gradient else 1))[0]
            if self.traits.special and self.chance(0.6):
                kind = "special"
            style = Style(kind, *((-2.0, 2.0) if dtype.is_float else (-4, 9)))
        self.styles[node] = style
        number = len(self.builder.inputs) - 1
        sizes = tuple(self.hint(n) for n in shape)
        self.evaluator.give(node, draw(self.seed, number, dtype, sizes, style, self.dims))
        x = Expr(self.builder, node)
        if keep:
            self.values.append(x)
        return x

    def operand(
        self,
        allowed: frozenset[DType] | Sequence[DType] = dtypes.ALL,
        low: int = 0,
        high: int = 5,
        test: Callable[[Expr], bool] | None = None,
    ) -> Expr:
        """A value of an allowed dtype with low to high dimensions; a new input if need be."""

        def fits(x: Expr) -> bool:
            return low <= len(x.shape) <= high and (test is None or test(x))

        recent = self.values[-10:] if self.chance(0.8) else self.values
        found = [x for x in recent if x.dtype in allowed and fits(x)]
        if found and self.chance(0.9):
            loose = [x for x in found if x.node not in self.read]
            x = self.rng.choice(loose if loose and self.chance(0.6) else found)
            self.read.add(x.node)
            return x
        found = [x for x in recent if fits(x) and x.dtype not in allowed]
        if found and self.chance(0.6) and not self.traits.gradient:
            return ops.cast(self.rng.choice(found), dtype=self.dtype(allowed))
        for _ in range(10):
            shape = self.shape(low, high)
            if low <= len(shape) <= high:
                x = self.fresh(self.dtype(allowed), shape, keep=False)
                if fits(x):
                    self.values.append(x)
                    return x
        raise Refused

    def static(self, x: Expr) -> bool:
        """Whether every size of x is a number."""
        return all(isinstance(n, int) for n in x.shape)

    def partner(self, x: Expr, grow: bool = True) -> Expr:
        """Another value of x's dtype that broadcasts with it."""
        found = [
            y for y in self.values[-12:] if y.dtype is x.dtype and _broadcasts(x.shape, y.shape)
            and self.elements(_joined(x.shape, y.shape)) <= self.limit
        ]
        if found and self.chance(0.75):
            loose = [y for y in found if y.node not in self.read and y.node is not x.node]
            y = self.rng.choice(loose if loose and self.chance(0.5) else found)
            self.read.add(y.node)
            return y
        rank = len(x.shape)
        shape = x.shape[self.rng.choice((0, 0, 0, rank, self.rng.randint(0, rank))) :]
        shape = tuple(1 if self.chance(0.2) else n for n in shape)
        if grow and self.chance(0.1) and self.elements(x.shape) * 3 <= self.limit:
            shape = (self.rng.choice((2, 3)), *x.shape)
        if self.chance(0.15):
            value = self.rng.choice((0, 1, 2, 3)) if not x.dtype.is_float else 0.5
            if x.dtype is dtypes.bool_:
                value = self.chance(0.5)
            return Expr(self.builder, self.builder.const(value, x.dtype))
        return self.fresh(x.dtype, shape)

    def shaped(self, dtype: DType, shape: Sequence[Size], style: Style | None = None) -> Expr:
        """A value of just this type: one that is there, or a new input."""
        want = TensorType(dtype, tuple(shape))
        found = [x for x in self.values if x.type == want]
        if style is None and found and self.chance(0.7):
            return self.rng.choice(found)
        return self.fresh(dtype, shape, style, keep=style is None)

    def tame(self, x: Expr, low: float, high: float) -> Expr:
        """x if its values lie in a float operator's domain, else mapped into it."""
        if not x.dtype.is_float or (self.traits.special and self.chance(0.5)):
            return x
        array = self.array(x).astype(np.float64)
        high = min(high, 6e4) if x.dtype is dtypes.f16 else high
        with np.errstate(all="ignore"):
            if array.size == 0 or (np.all(array >= low) and np.all(array <= high)):
                return x
        if self.chance(0.02) and not self.traits.gradient:
            return x
        if self.chance(0.5):
            return ops.sigmoid(x) * (high - low) + low
        if self.chance(0.5) and not self.traits.gradient:
            return ops.clamp(x, low, high)
        return self.fresh(x.dtype, x.shape, Style("uniform", low, high), keep=False)

    def indices(self, limit: Size, shape: Sequence[Size], wrap: bool = False) -> Expr:
        """i64 positions below `limit`; out of range now and then in a graph that may fail."""
        if isinstance(limit, int) and limit == 0 and self.elements(shape):
            raise Refused
        bad = 1.0 if self.traits.failing and self.chance(0.6) else 0.0
        if not bad and self.chance(0.3) and not self.traits.gradient:
            found = [
                x for x in self.values if x.dtype is dtypes.i64 and x.shape == tuple(shape)
            ]
            if found:
                bound = ops.full.like(found[0], shape=(), value=limit, dtype=dtypes.i64)
                return ops.remainder(self.rng.choice(found), bound)
        style = Style("index", -1.0 if wrap else 0.0, bad, limit)
        return self.fresh(dtypes.i64, shape, style, keep=False)

    def state(self) -> Expr:
        """A generator's state that no operator has used yet."""
        if self.states and self.chance(0.7):
            return self.states.pop()
        from graphc.ir.ops.random import STATE

        return self.fresh(STATE.dtype, STATE.shape, Style("state"), keep=False)

    # --- growing -------------------------------------------------------------------------------

    def add(self, made: Any) -> bool:
        """Take a recipe's results among the values; False where they are not fit to go on with."""
        results = made if isinstance(made, tuple) else (made,)
        kept = [x for x in results if self._fit(x)]
        for x in kept:
            if x.shape == (626,) and x.node.inputs[0].op.family == "random":
                self.states.append(x)
            else:
                self.values.append(x)
        return bool(kept)

    def _fit(self, x: Expr) -> bool:
        if self.elements(x.shape) > self.limit or len(x.shape) > 5:
            return False
        try:
            array = self.array(x)
        except Refused:
            return self.traits.failing
        if not x.dtype.is_float or self.traits.special or array.size == 0:
            return True
        with np.errstate(all="ignore"):
            wide = np.abs(array.astype(np.float64))
            if self.traits.gradient:
                return bool(np.all(wide < 1e4))
            return bool(np.mean(wide < 1e5) > 0.7) or self.chance(0.05)

    def update(self) -> None:
        """A new value of some input that moves its elements about: to be written in place."""
        found = [x for x in self.values if x.node.op.name == "input" and x.shape]
        if not found:
            raise Refused
        x = self.rng.choice(found)
        dim = self.rng.randrange(len(x.shape))
        moved = ops.flip(x, dims=(dim,))
        same = [y for y in self.values if y.type == x.type and y.dtype.kind != "bool"]
        if same and self.chance(0.5):
            y = self.rng.choice(same)
            moved = ops.sub(y, moved) if self.chance(0.5) else ops.maximum(moved, y)
        if self._fit(moved):
            self.values.append(moved)
            self.updates.add(moved.node)

    def outputs(self) -> list[Node]:
        """Some of the values, those that nothing reads first."""
        inner = [x for x in self.values if x.node.op.name != "input"]
        if self.traits.gradient:
            inner = [x for x in inner if x.dtype.is_float]
        if not inner:
            raise Refused
        read = {source for x in inner for source in x.node.inputs}
        loose = [x for x in inner if x.node not in read]
        count = self.rng.choice((1, 2, 3, 4, 6))
        chosen = [inner[-1], *self.rng.sample(loose, min(len(loose), count))]
        chosen += self.rng.sample(inner, min(len(inner), self.rng.choice((0, 0, 1, 2))))
        if self.states and self.chance(0.5):
            chosen.append(self.states[-1])
        chosen += [x for x in inner if x.node in self.updates]
        nodes = list(dict.fromkeys(x.node for x in chosen))
        if self.chance(0.08) and not self.traits.gradient:
            nodes.append(self.rng.choice(self.builder.inputs))
        if self.chance(0.05):
            nodes.append(nodes[0])
        self.rng.shuffle(nodes)
        return nodes

    def write_back(self, graph: Graph) -> dict[int, int]:
        """Which outputs are written into inputs of their type."""
        mutated: dict[int, int] = {}
        if self.chance(0.5):
            return mutated
        for i, node in enumerate(graph.outputs):
            if node.op.name in ("flip", "sub", "maximum") and self.chance(0.7):
                own = [x for x in _origins(node) if x.type == node.type]
                if own and (j := own[0].attrs["index"]) not in mutated.values():
                    mutated[i] = j
                    continue
            free = [
                j for j, x in enumerate(graph.inputs)
                if x.type == node.type and j not in mutated.values()
            ]
            if free and self.chance(0.6):
                mutated[i] = self.rng.choice(free)
        return mutated


def _origins(node: Node) -> list[Node]:
    """The inputs of a graph that a node reads at once or through one more node."""
    near = [x for source in node.inputs for x in (source, *source.inputs)]
    return [x for x in near if x.op.name == "input"]


def _broadcasts(a: Shape, b: Shape) -> bool:
    """Whether two shapes broadcast whatever their symbolic sizes are."""
    pairs = zip(reversed(a), reversed(b), strict=False)
    return all(x == y or x == 1 or y == 1 for x, y in pairs)


def _joined(a: Shape, b: Shape) -> Shape:
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    lead = len(longer) - len(shorter)
    tail = (y if x == 1 else x for x, y in zip(longer[lead:], shorter, strict=True))
    return (*longer[:lead], *tail)


def is_symbolic(size: Size) -> bool:
    return isinstance(size, Dim)
