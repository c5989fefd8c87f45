"""What libraries compute, against the same programs in this process: the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.export import aot, export

from .client import Library
from .libraries import CALLED, arrays, expected, exported, made, same
from .models import CASES


@pytest.mark.parametrize("name", CALLED)
def test_the_bits_of_the_program(name: str, folder: Path) -> None:
    """Unfrozen code is the program's; with 1, 2 and 4 threads, and the same memory again."""
    torch.manual_seed(1)
    program, library = exported(name), made(folder, name, freeze=False)
    calls = [CASES[name].args(), *CASES[name].others()]
    context = library.context()
    for threads in (1, 2, 4, 1):
        assert library.set_threads(context.pointer, threads) == 0
        for args in (*calls, *calls[::-1]):
            same(context(*arrays(args)), expected(program(*args)))
    context.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lenet", "norms"])
def test_frozen_weights(name: str, folder: Path) -> None:
    """What hangs on weights alone is there already: the bits of a compiled model that answers."""
    torch.manual_seed(0)
    args = CASES[name].args()  # as in `exported`: the model is the same
    torch.manual_seed(0)
    model = CASES[name].model().eval()
    library = made(folder, name)
    context = library.context()
    with torch.no_grad():
        compiled = torch.compile(model)
        for given in (args, *CASES[name].others()):
            (found,) = context(*arrays(given))
            np.testing.assert_allclose(found, compiled(*given)._graphc_array, rtol=1e-4, atol=1e-5)
    context.close()


def test_a_model_that_takes_nothing_big(tmp_path: Path) -> None:
    """No inputs, empty tensors, results that are all copies."""
    weight = torch.arange(3)
    program = export(lambda x, y: (x, y.sum(0), weight), (torch.zeros(0, 3), torch.zeros(0, 2)))
    library = Library(aot(program, tmp_path, name="empty").library, "empty")
    context = library.context()
    x, y = np.zeros((0, 3), np.float32), np.zeros((0, 2), np.float32)
    found = context(x, y)
    same(found, [x, np.zeros(2, np.float32), np.arange(3)])
    context.close()
    program = export(lambda: torch.full((2, 2), 3.0), ())
    library = Library(aot(program, tmp_path, name="alone").library, "alone")
    context = library.context()
    same(context(), [np.full((2, 2), 3, np.float32)])
    context.close()


def test_loops_and_branches(tmp_path: Path) -> None:
    """A loop that ends by its values looks at no signals: there is no Python to have any."""
    def steps(x: Any, n: Any) -> Any:
        def more(i: Any, x: Any) -> Any:
            return (i < n) & (x.sum() < 1000)

        return torch._higher_order_ops.while_loop(
            more, lambda i, x: (i + 1, x * 1.5 + 1), (torch.tensor(0), x)
        )

    args = (torch.arange(4.0), torch.tensor(5))
    program = export(steps, args)
    library = Library(aot(program, tmp_path, name="steps").library, "steps")
    context = library.context()
    for n in (0, 3, 100):
        given = (args[0], torch.tensor(n))
        same(context(*arrays(given)), expected(program(*given)))
    context.close()
