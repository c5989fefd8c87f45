"""Compiled programs behave as in eager mode, at every call; and the generator is a fair one."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import graphc
from tests.programs.__main__ import listing
from tests.programs.generate import CONSTRUCTS, SHAPES, alone, generate
from tests.programs.program import FORMS, KINDS, RESULTS, Call, Program
from tests.programs.run import check, check_torch, compare, identity, run
from tests.programs.shrink import shrink, size

pytestmark = pytest.mark.filterwarnings("ignore")


def behaves(seeds: range) -> None:
    for seed in seeds:
        program = generate(seed)
        failure, _ = check(program)
        assert failure is None, f"seed {seed}: {failure}\n{listing(program)}"


def test_compiled_behaves_as_eager() -> None:
    behaves(range(100))


@pytest.mark.slow
def test_many_compiled_behave_as_eager() -> None:
    behaves(range(1000, 3000))


# --- the generator -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_a_construct_is_a_program(name: str) -> None:
    seen = run(alone(name), graphc, identity)
    errors = {step["error"] for step in seen.steps}
    assert not errors & {"NameError", "UnboundLocalError", "SyntaxError", "ImportError"}
    assert seen.steps[0]["error"] == "", "the first call works"


def test_everything_is_drawn() -> None:
    drawn: Counter[str] = Counter()
    for seed in range(4000):
        program = generate(seed)
        drawn.update([program.form, program.result])
        for piece in program.pieces:
            drawn.update([piece.construct, piece.shape, *(slot.kind for _, slot in piece.slots)])
    assert not {*CONSTRUCTS, *FORMS, *SHAPES, *KINDS, *RESULTS} - drawn.keys()


def test_a_seed_gives_one_program() -> None:
    for seed in range(40):
        program = generate(seed)
        ast.parse(program.source())
        assert program == generate(seed) and program.source() == generate(seed).source()
        calls = sum(isinstance(step, Call) for step in program.script)
        assert 4 <= calls <= 8 and 1 <= len(program.pieces) <= 5


def test_two_eager_runs_are_alike() -> None:
    for seed in range(40):
        program = generate(seed)
        first, second = run(program, graphc, identity), run(program, graphc, identity)
        assert compare(first, second) is None, listing(program)


@pytest.mark.parametrize("start", (0, 5000))
def test_eager_behaves_as_torch(start: int) -> None:
    torch = pytest.importorskip("torch")
    for seed in range(start, start + 30):
        program = generate(seed)
        assert check_torch(program, torch) is None, listing(program)


# --- what the runner finds, and how small the shrinker makes it --------------------------------


def frozen(function: Any = None, **_options: Any) -> Callable[..., Any]:
    """A compile() that always gives the first result again: the stalest of all."""
    results: list[Any] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        if not results:
            results.append(function(*args, **kwargs))
        return results[0]

    return call if function is not None else frozen


def forgetful(function: Any = None, **_options: Any) -> Callable[..., Any]:
    """A compile() that loses what a program writes to `store` and `box`."""

    def call(*args: Any, **kwargs: Any) -> Any:
        space = getattr(function, "__globals__", None)
        kept = dict(space["store"]) if space else {}
        result = function(*args, **kwargs)
        if space:
            space["store"].update(kept)
        return result

    return call if function is not None else forgetful


def caught(program: Program, broken: Callable[..., Any]) -> bool:
    return compare(run(program, graphc, identity), run(program, graphc, broken)) is not None


def test_a_stale_compile_is_caught() -> None:
    found = sum(caught(replace(generate(seed), form="function"), frozen) for seed in range(40))
    assert found >= 38  # but for programs whose every call gives the same


def test_lost_writes_are_caught() -> None:
    wanted = [
        replace(generate(seed), form="function") for seed in range(4000)
        if any(slot.kind == "item" and p.construct in ("counter", "ema", "rotate_list")
               for p in generate(seed).pieces for _, slot in p.slots)
    ]
    assert wanted and all(caught(program, forgetful) for program in wanted)


def test_a_failure_becomes_small() -> None:
    program = next(p for p in map(generate, range(100)) if len(p.pieces) > 3)
    small = shrink(program, lambda candidate: caught(candidate, frozen), 20.0)
    assert size(small) < size(program)
    assert len(small.pieces) == 1 and small.form == "function" and len(small.steps()) <= 2
    assert caught(small, frozen) and ast.parse(listing(small))
