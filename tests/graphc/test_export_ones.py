"""Free dims of size 1: exported from, and called with, where the model computes the same there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
from graphc.export import Dim, ExportError, export, load


def normed(x: Any) -> Any:
    return (x - x.mean(0)) / (x.std(0, correction=0) + 1), x.shape[0] * 2


SAME: dict[str, Callable[[Any], Any]] = {
    "layers": nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4), nn.Linear(4, 2)).eval(),
    "recurrent": nn.LSTM(3, 4, batch_first=True).eval(),
    "statistics": lambda x: normed(x)[0],
    "views": lambda x: torch.cat([x.flatten(), x.T.reshape(-1)]).view(-1, 3).softmax(0),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(*[x[:, None]] * 3),
    "size": lambda x: {"x": x * x.shape[0], "rows": x.shape[0]},
    "masked": lambda x: torch.where(torch.arange(x.shape[0])[:, None] < 1, x, x.max()),
}
OTHER: dict[str, Callable[[Any], Any]] = {
    "squeeze": lambda x: x.squeeze(),
    "if": lambda x: x * 2 if x.shape[0] == 1 else x,
    "joined": lambda x: torch.cat([x, x]) if x.shape[0] > 1 else x,
    "error": lambda x: x if x.shape[0] > 1 else x.reshape(7),
    "size": lambda x: {"rows": max(x.shape[0], 2)},
}


def flat(result: Any) -> list[Any]:
    parts = result.values() if isinstance(result, dict) else (
        result if isinstance(result, tuple) else (result,)
    )
    return [p for part in parts for p in (flat(part) if isinstance(part, tuple) else [part])]


@pytest.mark.parametrize("example", [1, 4])
@pytest.mark.parametrize("name", SAME)
def test_one_is_a_size(name: str, example: int, tmp_path: Path) -> None:
    model, sizes = SAME[name], (3, 3) if name == "recurrent" else (3,)
    program = export(model, (torch.randn(example, *sizes),), dynamic_shapes=({0: "n"},))
    program.save(tmp_path / "m.gcx")
    loaded = load(tmp_path / "m.gcx")
    for rows in (1, 2, 5, 1):
        x = torch.randn(rows, *sizes)
        with torch.no_grad():
            want = flat(model(x))
        for found in (flat(program(x)), flat(loaded(x))):
            for a, b in zip(found, want, strict=True):
                if not isinstance(b, torch.Tensor):
                    assert a == b and type(a) is type(b)
                    continue
                assert a.shape == b.shape
                np.testing.assert_allclose(a.numpy(), b.numpy(), atol=2e-6)


@pytest.mark.parametrize("name", OTHER)
def test_one_is_another_thing(name: str) -> None:
    model = OTHER[name]
    with pytest.raises(ExportError, match="has size 1 in the example"):
        export(model, (torch.ones(1, 3),), dynamic_shapes=({0: "n"},))
    program = export(model, (torch.ones(4, 3),), dynamic_shapes=({0: Dim("n", max=9)},))
    with pytest.raises(ValueError, match="was exported for 2 to 9"):
        program(torch.ones(1, 3))
    assert program.signature.ranges["n"].least == 2


def test_two_free_dims() -> None:
    def model(x: Any, y: Any) -> Any:
        return x @ y.T, x.sum(1)

    shapes = {"x": {0: "n", 1: "k"}, "y": {0: Dim("m", min=2), 1: "k"}}
    program = export(model, (torch.randn(1, 3), torch.randn(4, 3)), dynamic_shapes=shapes)
    for n, k, m in ((1, 1, 2), (1, 3, 2), (3, 1, 4), (2, 2, 2)):
        x, y = torch.randn(n, k), torch.randn(m, k)
        for a, b in zip(program(x, y), model(x, y), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-6)
    with pytest.raises(ValueError, match="exported for 2"):
        program(torch.ones(1, 1), torch.ones(1, 1))

    def mixed(x: Any, y: Any) -> Any:  # of which only one may be 1
        return x.sum() + y.squeeze().sum(-1)

    mixed_program = export(
        mixed, (torch.ones(2, 3), torch.ones(2, 3)), dynamic_shapes=({0: "n"}, {0: "m"})
    )
    assert {k: r.least for k, r in mixed_program.signature.ranges.items()} == {"n": 1, "m": 2}


def test_what_a_model_does_to_itself_is_taken_back() -> None:
    class Counting(nn.Module):
        calls = 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return x + 1

    model = Counting()
    export(model, (torch.ones(1, 2),), dynamic_shapes=({0: "n"},))
    assert model.calls == 0
