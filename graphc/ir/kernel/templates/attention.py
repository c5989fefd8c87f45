"""Attention and its gradient, without a tensor of scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...dim import Size, evaluate, floordiv, product, unwrap
from ...dtypes import DType, bool_, f32, i64
from ...ops._counter import squares32, threshold
from ...record import record
from ..lanes import Array, eval_index
from ..nest import Stmt
from .operand import Operand

if TYPE_CHECKING:
    from ..text import Reader
    from ..verify import Verifier

# What each kind reads (and what both may), and may write, with the variables of each index.
INPUTS: dict[str, dict[str, str]] = {
    "attention": {"q": "bme", "k": "bne", "v": "bnf"},
    "attention_grad": {
        "q": "bme", "k": "bne", "v": "bnf", "g": "bmf", "lse": "bm", "slope": "bm",
    },
}
OPTIONAL = {"mask": "bmn", "kept": "bmn"}
DRAW = {"draw": "d"}  # instead of what is kept: (key, counter of the first), i64
RESULTS: dict[str, dict[str, str]] = {
    "attention": {"out": "bmf", "lse": "bm"},
    "attention_grad": {"dq": "bme", "dk": "bne", "dv": "bnf"},
}


@record
class Attention:
    """For every b, with scores[m, n] = scale * (the sum over e of q * k) + mask, -inf where a bool
    mask is False and, if `causal`, where n > m:

    - "attention": lse[m] = log of the sum over n of exp(scores), and out[m, f] = the sum over n of
      exp(scores - lse) * v; infinity and 0 where all scores are -inf
    - "attention_grad": with p = exp(scores - lse) and s = scale * p * ((the sum over f of g * v) -
      slope), dq[m, e] = the sum over n of s * k, dk[n, e] = that over m of s * q, dv[n, f] = that
      over m of p * g

    With `dropout`, exp(scores - lse) times v, p times g and g times v are 0 where not `kept`
    (bool), elsewhere divided by 1 - dropout. Or `draw` says which are kept: (b, m, n) is where
    `squares32` of the counter + its place in [b, m, n] is below `keep`.

    m counts queries, n keys; e goes along queries and keys, f along values. `results` are those
    that are wanted. Operands but for bool ones are of `dtype`, and it is summed in; 16-bit floats
    are summed in f32, which lse and slope then are. There is no epilogue.
    """

    keywords: ClassVar = ("attention", "attention_grad")
    epilogue: ClassVar[tuple[Stmt, ...]] = ()
    place: ClassVar[None] = None

    kind: str
    batch: Size
    m: Size
    n: Size
    e: Size
    f: Size
    causal: bool
    scale: float
    dropout: float
    inputs: tuple[tuple[str, Operand], ...]
    results: tuple[tuple[str, Operand], ...]
    dtype: DType

    @property
    def operands(self) -> tuple[Operand, ...]:
        """What is read."""
        return tuple(operand for _, operand in self.inputs)

    def optional(self, name: str) -> Operand | None:
        """A mask, or what dropout keeps."""
        return dict(self.inputs).get(name)

    @property
    def wide(self) -> DType:
        """What is summed in."""
        return f32 if self.dtype.bits == 16 else self.dtype

    @property
    def keep(self) -> int:
        """Of 2**32 draws, how many are kept."""
        return threshold(1.0 - self.dropout)

    @property
    def sums(self) -> int:
        """Over e and over f."""
        return 2 if self.kind == "attention" else 5

    @property
    def multiplications(self) -> Size:
        """As if e and f were equal; the half that `causal` leaves out is not counted."""
        pairs = product((self.batch, self.m, self.n, self.e)) * self.sums
        return unwrap(floordiv(pairs, 2)) if self.causal else pairs

    def lines(self) -> list[str]:
        """The text."""
        sizes = " ".join(
            f"{name} [{size}]" for name, size in
            (("batch", self.batch), ("m", self.m), ("n", self.n), ("e", self.e), ("f", self.f))
        )
        causal = str(self.causal).lower()
        return [
            f"{self.kind} {sizes} causal {causal} scale {self.scale!r} dropout {self.dropout!r} "
            f"acc {self.dtype.name} {{",
            *(f"  {name} {operand.text()}" for name, operand in self.inputs),
            *(f"  store {name} {operand.text()}" for name, operand in self.results),
            "}",
        ]

    @classmethod
    def read(cls, reader: Reader, word: str) -> Attention:
        """The template whose keyword has just been read."""
        sizes: list[Size] = []
        for name in ("batch", "m", "n", "e", "f"):
            reader.expect(name)
            sizes.append(reader.size())
        reader.expect("causal")
        causal = reader.take() == "true"
        reader.expect("scale")
        scale = float(reader.take())
        reader.expect("dropout")
        dropout = float(reader.take())
        reader.expect("acc")
        dtype = reader.dtype()
        reader.expect("{")
        inputs: list[tuple[str, Operand]] = []
        results: list[tuple[str, Operand]] = []
        while (name := reader.take()) != "}":
            if name == "store":
                results.append((reader.take(), Operand.read(reader)))
            else:
                inputs.append((name, Operand.read(reader)))
        batch, m, n, e, f = sizes
        return cls(
            word, batch, m, n, e, f, causal, scale, dropout, tuple(inputs), tuple(results), dtype
        )

    def verify(self, verifier: Verifier) -> None:
        extents = {
            "b": self.batch, "m": self.m, "n": self.n, "e": self.e, "f": self.f, "d": 2,
        }
        known = INPUTS[self.kind] | OPTIONAL | DRAW | RESULTS[self.kind]
        names = [name for name, _ in (*self.inputs, *self.results)]
        missing = INPUTS[self.kind].keys() - set(names)
        if missing or len(set(names)) != len(names) or not set(names) <= known.keys():
            verifier.fail(f"{self.kind} has the operands {', '.join(names)}")
        if len({"kept", "draw"} & set(names)) != (self.dropout > 0):
            verifier.fail(f"{self.kind} has dropout {self.dropout} and {', '.join(names)}")
        for name, operand in (*self.inputs, *self.results):
            operand.verify(name, {var: extents[var] for var in known[name]}, verifier)
            if operand.dtype not in self._may_be(name):
                verifier.fail(f"{name} of {self.kind} is {operand.dtype.name}")
        for name, operand in self.results:
            if verifier.buffers[operand.buffer][2] == "in":
                verifier.fail(f"{name} is stored to input {operand.buffer}")

    def _may_be(self, name: str) -> tuple[DType, ...]:
        """The dtypes of an operand."""
        if name == "mask":
            return self.dtype, bool_
        others = {"kept": bool_, "draw": i64, "lse": self.wide, "slope": self.wide}
        return (others.get(name, self.dtype),)

    def run(self, memory: Mapping[str, Array], env: Mapping[str, int]) -> None:
        """The meaning, in NumPy."""
        numbers = _Numbers(self, memory, env)
        for b in range(evaluate(self.batch, env)):
            found = _MEANING[self.kind](numbers, b)
            for name, operand in self.results:
                at = numbers.at(operand, RESULTS[self.kind][name], b)
                memory[operand.buffer][at] = found[name]


class _Numbers:
    """An Attention with numbers for sizes, and its operands as arrays."""

    def __init__(self, t: Attention, memory: Mapping[str, Array], env: Mapping[str, int]) -> None:
        self.t, self.memory, self.env = t, memory, env
        self.sizes = {"d": 2, **{name: evaluate(getattr(t, name), env) for name in "mnef"}}
        self.inputs = dict(t.inputs)

    def at(self, operand: Operand, variables: str, b: int) -> Array:
        """Where in its buffer the elements of an operand lie."""
        names = variables.removeprefix("b")
        shape = tuple(self.sizes[name] for name in names)
        places = np.ogrid[tuple(slice(size) for size in shape)]
        env: dict[str, Any] = {**self.env, "b": b, **dict(zip(names, places, strict=True))}
        found: Array = np.broadcast_to(np.asarray(eval_index(operand.index, env)), shape)
        return found

    def load(self, name: str, b: int) -> Array:
        operand = self.inputs[name]
        at = self.at(operand, (INPUTS[self.t.kind] | OPTIONAL | DRAW)[name], b)
        found: Array = self.memory[operand.buffer][at]
        return found.astype(self.wide, copy=False) if operand.dtype.is_float else found

    @property
    def wide(self) -> np.dtype[Any]:
        return self.t.wide.numpy

    def scores(self, b: int) -> Array:
        scores = self.load("q", b) @ self.load("k", b).T * self.wide.type(self.t.scale)
        if "mask" in self.inputs:
            mask = self.load("mask", b)
            is_bool = mask.dtype == np.bool_
            scores = np.where(mask, scores, -np.inf) if is_bool else scores + mask
        if self.t.causal:
            scores = np.where(np.tri(*scores.shape, dtype=np.bool_), scores, -np.inf)
        found: Array = scores.astype(self.wide, copy=False)
        return found

    def thin(self, x: Array, b: int) -> Array:
        """What dropout leaves of x."""
        if not self.t.dropout:
            return x
        kept = self.drawn(b) if "draw" in self.inputs else self.load("kept", b)
        return np.where(kept, x * x.dtype.type(1 / (1 - self.t.dropout)), 0)

    def drawn(self, b: int) -> Array:
        """What is kept, as the counter says."""
        m, n = self.sizes["m"], self.sizes["n"]
        key, first = self.load("draw", b).view(np.uint64)
        places = np.arange(b * m * n, (b + 1) * m * n, dtype=np.uint64).reshape(m, n)
        found: Array = squares32(places + first, key) < self.t.keep
        return found


def _attention(numbers: _Numbers, b: int) -> dict[str, Array]:
    scores = numbers.scores(b)
    peak = np.max(scores, axis=1, keepdims=True, initial=-np.inf)
    powers = np.exp(scores - np.where(np.isneginf(peak), 0, peak).astype(scores.dtype))
    total = np.sum(powers, axis=1, keepdims=True)
    empty = total == 0
    lse = np.where(empty, np.inf, peak + np.log(total))
    p = powers / np.where(empty, 1, total).astype(scores.dtype)
    return {"out": numbers.thin(p, b) @ numbers.load("v", b), "lse": lse[:, 0]}


def _attention_grad(numbers: _Numbers, b: int) -> dict[str, Array]:
    q, k, v, g = (numbers.load(name, b) for name in ("q", "k", "v", "g"))
    p = np.exp(numbers.scores(b) - numbers.load("lse", b)[:, None])
    rise = numbers.thin(g @ v.T, b) - numbers.load("slope", b)[:, None]
    s = p * rise * p.dtype.type(numbers.t.scale)
    return {"dq": s @ k, "dk": s.T @ q, "dv": numbers.thin(p, b).T @ g}


_MEANING = {"attention": _attention, "attention_grad": _attention_grad}
