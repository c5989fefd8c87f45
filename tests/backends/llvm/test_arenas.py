"""Large arenas are one for all programs, as long as one call runs at a time."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np

import graphc as torch
from graphc.backends.llvm.arenas import ARENAS, SHARED, Arenas, Share


def test_two_programs_have_one_arena() -> None:
    arenas = Arenas()
    small, large = Share(arenas), Share(arenas)
    one = small.take(100)
    small.give_back(one)
    two = large.take(300)
    assert two is not one and two.size >= 300 and arenas.kept == 0
    large.give_back(two)
    assert small.take(80) is two  # at a time, the largest serves all
    beside = large.take(300)
    assert beside is not two
    small.give_back(two)
    large.give_back(beside)
    assert arenas.kept == 600


def test_what_no_program_wants_is_let_go() -> None:
    arenas = Arenas()
    small, large = Share(arenas), Share(arenas)
    small.give_back(small.take(100))
    large.give_back(large.take(500))
    assert arenas.kept == 500
    late = large.take(500)
    del large
    gc.collect()
    arenas.give_back(late)
    assert arenas.kept == 0
    small.give_back(small.take(100))
    assert arenas.kept == 100
    del small
    gc.collect()
    assert arenas.kept == 0


def test_a_program_that_grows() -> None:
    arenas = Arenas()
    share = Share(arenas)
    for size in (100, 400, 200):
        share.give_back(share.take(size))
    assert arenas.kept == 400


def function(shift: float) -> Any:
    def run(x: Any) -> Any:
        y = x.exp() + shift
        return (y @ y.T).sin() @ x

    return torch.compile(run)


def test_compiled_functions_share_it_in_threads_too() -> None:
    size = 700  # the product has 2 MB
    assert 4 * size * size > SHARED
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((size, 20), np.float32) * 0.1)
    runs = [function(float(i)) for i in range(4)]
    wanted = [run(x).numpy() for run in runs]
    gc.collect()
    before = ARENAS.kept
    assert [run(x).numpy().tobytes() for run in runs] == [w.tobytes() for w in wanted]
    assert ARENAS.kept == before
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(6):
            if runs[number](x).numpy().tobytes() != wanted[number].tobytes():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
