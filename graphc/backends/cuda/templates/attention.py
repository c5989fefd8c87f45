"""Attention and its gradient as CUDA C: which stages there are, and what fills their texts."""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphc.backends.cuda.instructions import INSTRUCTIONS
from graphc.backends.cuda.prelude import PRELUDE
from graphc.backends.cuda.scalar import c_type
from graphc.backends.cuda.source import Source, Stage, Target
from graphc.backends.cuda.statements.indices import index_text
from graphc.backends.cuda.templates import attention_engines as engines
from graphc.backends.cuda.templates import attention_text as texts
from graphc.backends.cuda.templates import attention_warpgroups as groups
from graphc.backends.cuda.templates.attention_plan import (
    Places,
    Tiles,
    backward_tiles,
    by_warpgroups,
    forward_tiles,
    keys_of_block,
    sums_together,
)
from graphc.backends.cuda.templates.gemm_sizes import Sizes
from graphc.ir import dtypes
from graphc.ir.dim import Size, ceil_div, product, unwrap
from graphc.ir.kernel import Attention, Kernel, Operand, Template
from graphc.ir.kernel.templates.attention import DRAW, INPUTS, OPTIONAL, RESULTS
from graphc.ir.kernel.templates.operand import strides_of
from graphc.ir.record import replaced

_TAKEN = (dtypes.f32, dtypes.bf16, dtypes.f16)
_WIDEST = 256  # of a head
_COMBINE_THREADS = 128
_VALUES = 2  # of a query, besides its row: lse and slope


def takes(template: Template) -> bool:
    """Heads of a known, not too large width."""
    return isinstance(template, Attention) and template.dtype in _TAKEN and all(
        isinstance(width, int) and 1 <= width <= _WIDEST for width in (template.e, template.f)
    )


@dataclass(frozen=True, slots=True)
class ByWarps:
    """Products by mma.sync where wgmma would do them."""

    def __str__(self) -> str:
        return "mma.sync instead of wgmma"


def choices(kernel: Kernel, target: Target) -> list[ByWarps | None]:
    """See Renderer."""
    assert isinstance(kernel.template, Attention)
    t = kernel.template
    several = by_warpgroups(t, target) and (t.kind != "attention" or keys_of_block(t) is None)
    return [None, ByWarps()] if several else [None]


def render(kernel: Kernel, target: Target, plan: ByWarps | None = None) -> Source:
    """See Renderer."""
    assert isinstance(kernel.template, Attention)
    if plan is not None:
        target = replaced(target, architecture=target.architecture.removesuffix("a"))
    writer = _Writer(kernel, kernel.template, target)
    if kernel.template.kind == "attention":
        _forward(writer)
    else:
        _backward(writer)
    return writer.source()


def _forward(w: _Writer) -> None:
    t = w.t
    keys = keys_of_block(t)
    tiles, places = forward_tiles(t, w.target)
    words = {"ROW_COUNT": "m", "QUERY_TILE": "ROWS", "KEY_TILE": "COLUMNS", "PARTS": "1",
             "PART_KEYS": "0"}
    flags = {"OF_KEYS": False, "LAST_FIRST": t.causal, "HELD": tiles.held}
    wanted = [name for name, _ in t.results]
    parts: Size = 1
    if keys is not None:
        parts = ceil_div(t.n, keys)
        words["PARTS"] = w.numbers.named("parts", parts)
        words["PART_KEYS"] = w.numbers.named("part_keys", keys)
        w.scratch = product((t.batch, t.m, parts, tiles.f + 2, 4))
    whole = "".join(texts.FINISH[x] for x in wanted)
    words["FINISH"] = whole if keys is None else texts.FINISH["part"]
    blocks = product((t.batch, ceil_div(t.m, tiles.rows), parts))
    text = groups.FORWARD if tiles.engine == "wgmma" else texts.FORWARD
    w.stage("forward", text, tiles, places, words, flags, blocks)
    if keys is not None:
        words["COMBINED"] = "".join(texts.COMBINED[x] for x in wanted)
        w.combine(tiles, words, product((t.batch, t.m)))


def _backward(w: _Writer) -> None:
    t = w.t
    wanted = {name for name, _ in t.results}
    if "dq" in wanted:
        _gradient(w, "dq", ("dq",), ("q", "g", "k", "v"))
    of_keys = [name for name in ("dk", "dv") if name in wanted]
    tiles, _ = backward_tiles(t, _VALUES, w.target)
    together = [tuple(of_keys)] if sums_together(tiles) else [(name,) for name in of_keys]
    for names in together:
        if names:
            _gradient(w, "".join(names), names, ("k", "v", "q", "g"))


def _gradient(w: _Writer, name: str, results: tuple[str, ...], operands: Sequence[str]) -> None:
    """A stage: blocks of queries or of keys sum up to two results. `operands`: what its rows have,
    as wide as e and as f, and what its columns have."""
    t = w.t
    of_keys = results != ("dq",)
    tiles, places = backward_tiles(t, _VALUES if of_keys else 0, w.target)
    queries, keys = ("COLUMNS", "ROWS") if of_keys else ("ROWS", "COLUMNS")
    rows, columns = ("n", "m") if of_keys else ("m", "n")
    sides = ("MATRIX_LEFT_E", "MATRIX_LEFT_F", "MATRIX_RIGHT_E", "MATRIX_RIGHT_F")
    words = {
        "ROW_COUNT": rows, "COLUMN_COUNT": columns, "QUERY_TILE": queries, "KEY_TILE": keys,
        "PARTS": "1", "FINISH": "".join(texts.FINISH[result] for result in results),
        "LOAD_FIRST": texts.LOAD_TILE.replace("WHERE", "start"),
        "LOAD_NEXT": texts.LOAD_TILE.replace("WHERE", "next"),
        **{side: w.words[f"MATRIX_{x}"] for side, x in zip(sides, operands, strict=True)},
    }
    flags = {
        "OF_KEYS": of_keys, "LAST_FIRST": t.causal and not of_keys,
        "SUMS_E": results != ("dv",), "SUMS_F": "dv" in results,
    }
    blocks = product((t.batch, ceil_div(t.n if of_keys else t.m, tiles.rows)))
    text = groups.BACKWARD if tiles.engine == "wgmma" else texts.BACKWARD
    w.stage(name, text, tiles, places, words, flags, blocks)


class _Writer:
    """The stages of one kernel. Functions are named by their text: kernels that differ in shape
    alone have the same."""

    def __init__(self, kernel: Kernel, t: Attention, target: Target) -> None:
        self.kernel, self.t, self.target = kernel, t, target
        self.numbers = _Numbers(kernel)
        self.scratch: Size = 0
        self._functions: list[str] = []
        self._stages: list[Stage] = []
        mask = t.optional("mask")
        added = mask is not None and mask.dtype.is_float
        in_powers = t.wide is not t.dtype and not added
        # the largest product has the largest score
        self._raw = _bits(t.scale) > 0 and t.scale > 0 and not added
        self.units = engines.IN_POWERS_OF_2 if in_powers else engines.AS_THEY_ARE
        if t.wide is t.dtype:
            self.units = engines.EXACTLY
        for name in ("batch", "m", "n", "e", "f"):
            self.numbers.named(name, getattr(t, name))
        for name, number in (
            ("scale", t.scale * (math.log2(math.e) if in_powers else 1.0)),
            ("plain_scale", t.scale), ("kept_factor", 1.0 / (1.0 - t.dropout)),
        ):
            self.numbers.named(name, _bits(number))
        self.words = {**_operands(t, self.numbers), **_pairs(t, self.numbers)}

    def stage(
        self, name: str, text: str, tiles: Tiles, places: Places, words: Mapping[str, str],
        flags: Mapping[str, bool], blocks: Size,
    ) -> None:
        """Adds a function that walks along tiles."""
        numbers = {
            "ROWS": tiles.rows, "COLUMNS": tiles.columns, "THREAD_ROWS": tiles.thread_rows,
            "THREAD_COLUMNS": tiles.thread_columns, "SHARING": tiles.sharing, "E": tiles.e,
            "F": tiles.f, "STAGES": tiles.stages, "PITCH": tiles.pitch,
            **{name.upper(): value for name, value in places._asdict().items()},
        }
        flags = {
            "CAUSAL": self.t.causal, "DROPOUT": self.t.dropout > 0, "RAW": self._raw, **flags,
        }
        drawn = self.t.optional("draw") is not None
        parts = (
            *(f"const bool {name} = {str(value).lower()};" for name, value in flags.items()),
            self.units, engines.COMMON, self._engine(tiles), texts.SOFTMAX,
            texts.SQUARES * drawn, texts.PAIRS, text,
        )
        words = {**words, "BOUNDS": f"THREADS, {tiles.at_once}"}
        self._add(name, parts, tiles.threads, numbers, words, blocks, places.size)

    def _engine(self, tiles: Tiles) -> str:
        if tiles.engine == "wgmma":
            return groups.engine(self.t.dtype.name, tiles.columns, (tiles.e, tiles.f))
        return engines.TENSOR if tiles.tensor else engines.FFMA

    def combine(self, tiles: Tiles, words: Mapping[str, str], blocks: Size) -> None:
        """Adds a function that puts parts together."""
        parts = (self.units, texts.SOFTMAX, texts.COMBINE)
        self._add("combine", parts, _COMBINE_THREADS, {"F": tiles.f}, words, blocks, 0)

    def _add(
        self, name: str, parts: Sequence[str], threads: int, numbers: Mapping[str, int],
        words: Mapping[str, str], blocks: Size, shared: int,
    ) -> None:
        """Adds a function with constants of its own."""
        constants = {"THREADS": threads, **numbers}
        kind = self.t.dtype
        text = "\n".join((
            f"typedef {c_type(kind)} T;",
            *(f"const int {name} = {value};" for name, value in constants.items()), *parts,
        ))
        filled = {
            "BOUNDS": "THREADS", **self.words, **words, "FUNCTION": f"ATTENTION_{name}",
            "MULTIPLY": f"mma_{kind.name}", "PACK": f"pack_{kind.name}",
        }
        body = _filled(text, filled)
        # not inline: functions of other stages would be found by their arguments' types
        self._functions.append(
            f"namespace {name}_stage {{\n{body}\n}}\nusing {name}_stage::ATTENTION_{name};\n"
        )
        self._stages.append(Stage(name, unwrap(blocks), threads, shared))

    def source(self) -> Source:
        """What was added."""
        parameters = [
            f"{'const ' * (p.access == 'in')}{c_type(p.dtype)}* {p.name}"
            for p in self.kernel.params
        ]
        parameters += [f"i64 {name}" for name in (*self.kernel.dims, *self.numbers.sizes.names())]
        parameters += ["i64* status", *["unsigned char* scratch"] * (self.scratch != 0)]
        words = {"PARAMETERS": ", ".join(parameters), "NUMBERS": self.numbers.declared()}
        body = _filled("".join(self._functions), words)
        name = "attention_" + hashlib.sha256(body.encode()).hexdigest()[:24]
        return Source(
            PRELUDE + INSTRUCTIONS + body.replace("ATTENTION", name),
            tuple(replaced(stage, name=f"{name}_{stage.name}") for stage in self._stages),
            unwrap(self.scratch), tuple(self.numbers.sizes.values),
        )


class _Numbers:
    """What the text leaves open, by its names there."""

    def __init__(self, kernel: Kernel) -> None:
        self.sizes = Sizes(kernel.dims)
        self._named: dict[str, Size] = {}

    def named(self, name: str, value: Size) -> str:
        """A name that is declared."""
        self._named[name] = self.sizes.argument(value)
        return name

    def declared(self) -> str:
        """Names, for a function to begin with."""
        pairs = (f"{name} = {value}" for name, value in self._named.items())
        return f"const i64 {', '.join(pairs)};"

    def place(self, name: str, operand: Operand, variables: str) -> tuple[str, ...]:
        """Where an operand of b begins, and its stride along each variable."""
        found = strides_of(operand.index, tuple(variables))
        if found is None:
            raise ValueError(f"index {operand.index} is not affine in {', '.join(variables)}")
        strides = (
            self.named(f"{name}_by_{variable}", stride)
            for variable, stride in zip(variables, found[1:], strict=True)
        )
        return f"{operand.buffer} + {index_text(self.sizes.index(found[0]))}", *strides


_WORD = re.compile(r"\b[A-Z][A-Z_]*[a-z]*\b")


def _filled(text: str, words: Mapping[str, str]) -> str:
    """Words may stand in what other words are filled with."""
    while (found := _WORD.sub(lambda word: words.get(word[0], word[0]), text)) != text:
        text = found
    return text


def _operands(t: Attention, numbers: _Numbers) -> dict[str, str]:
    """How each operand is named in a text."""
    words: dict[str, str] = {}
    for name, operand in t.inputs:
        if name in OPTIONAL or name in DRAW:
            continue
        variables = INPUTS[t.kind][name][1:]
        base, *strides = numbers.place(name, operand, variables)
        if len(strides) == 2:
            words[f"MATRIX_{name}"] = f"{base}, {strides[0]}, {strides[1]}, {variables[1]}"
        else:
            words[f"PLACE_{name}"] = base
    for name, operand in t.results:
        variables = RESULTS[t.kind][name][1:]
        base, *strides = numbers.place(name, operand, variables)
        steps = [
            f"{step} * {stride}" for step, stride in zip(("row", "column"), strides, strict=False)
        ]
        words[f"AT_{name}"] = f"({base})[{' + '.join(steps)}]"
    return words


def _pairs(t: Attention, numbers: _Numbers) -> dict[str, str]:
    """What is known of pairs of a query and a key: fields of Pairs, what they are for a b, and for
    a tile."""
    fields: list[str] = []
    bases: list[str] = []
    values: list[str] = []
    masked = keeps = ""
    for name in OPTIONAL:
        operand = t.optional(name)
        if operand is None:
            continue
        kind = c_type(operand.dtype)
        base, by_m, by_n = numbers.place(name, operand, "mn")
        fields.append(f"const {kind}* {name}; i64 {name}_by_m, {name}_by_n;")
        bases.append(f"const {kind}* const {name} = {base};")
        values.append(f"{name} + first_query * {by_m} + first_key * {by_n}, {by_m}, {by_n}")
        if name == "kept":
            keeps = "kept"
        else:
            masked = "bool" if operand.dtype is dtypes.bool_ else "float"
    draw = t.optional("draw")
    if draw is not None:
        base, by_d = numbers.place("draw", draw, "d")
        keep = numbers.named("keep", t.keep)
        fields.append("u64 counter, row, key, keep;")
        bases.append(f"const i64* const draw = {base};")
        place = "(u64)((b * m + first_query) * n + first_key)"
        values.append(f"(u64)draw[{by_d}] + {place}, (u64)n, (u64)draw[0], (u64){keep}")
        keeps = "draw"
    return {
        "FIELDS": " ".join(fields), "PAIR_BASES": " ".join(bases),
        "PAIR_VALUES": ", ".join(values), "MASKED": texts.MASKED[masked],
        "KEEPS": texts.KEEPS[keeps],
    }


def _bits(number: float) -> int:
    """Of a float, as a number."""
    found: int = struct.unpack("<I", struct.pack("<f", number))[0]
    return found

