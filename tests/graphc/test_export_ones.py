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


@pytest.mark.parametrize("example", [1, 4])
@pytest.mark.parametrize("name", [name for name in OTHER if name != "error"])
def test_one_is_another_thing(name: str, example: int, tmp_path: Path) -> None:
    model = OTHER[name]
    made = export(model, (torch.randn(example, 3),), dynamic_shapes=({0: Dim("n", min=1, max=9)},))
    made.save(tmp_path / "m.gcx")
    assert [variant.ones for variant in made.variants] == [frozenset(), {"n"}]
    for program in (made, load(tmp_path / "m.gcx"), made.module()):
        for rows in (1, 2, 3, 9, 1):
            x = torch.randn(rows, 3)
            (found,), (wanted,) = flat(program(x)), flat(model(x))
            if isinstance(wanted, torch.Tensor):
                assert found.shape == wanted.shape and torch.allclose(found, wanted)
            else:
                assert found == wanted and type(found) is type(wanted)


def test_a_range_is_not_narrowed_in_silence() -> None:
    model, x = OTHER["error"], torch.ones(4, 3)
    with pytest.raises(ExportError, match=r"'n' is to be 1 to 9, but at n = 1 the model raises "
                                          r"(?s:.*)Cure: Dim\('n', min=2\)"):
        export(model, (x,), dynamic_shapes=({0: Dim("n", min=1, max=9)},))
    with pytest.raises(ExportError, match="has size 1 in the example, and at n = 1 the model"):
        export(model, (x[:1],), dynamic_shapes=({0: "n"},))
    program = export(model, (x,), dynamic_shapes=({0: Dim("n", max=9)},))
    assert program.range_constraints["n"].least == 2
    with pytest.raises(ValueError, match="exported for 2 to 9: at n = 1 the model raises"):
        program(torch.ones(1, 3))


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

    def mixed(x: Any, y: Any) -> Any:  # of which one is another thing at 1
        return x.sum() + y.squeeze().sum(-1)

    made = export(mixed, (torch.ones(2, 3), torch.ones(2, 3)), dynamic_shapes=({0: "n"}, {0: "m"}))
    assert {k: r.least for k, r in made.range_constraints.items()} == {"n": 1, "m": 1}
    for n, m in ((1, 1), (1, 4), (4, 1), (3, 2)):
        x, y = torch.randn(n, 3), torch.randn(m, 3)
        assert torch.allclose(made(x, y), mixed(x, y), atol=1e-5)


def test_a_decision_that_all_sizes_make_alike_is_none() -> None:
    """Not so: n is at most 4, as the smallest of the sizes is asked for."""
    F = nn.functional

    def sampled(x: Any) -> Any:
        theta = torch.ones(2, 3).expand(x.shape[0], 2, 3)
        places = F.affine_grid(theta, x.shape, align_corners=False)
        return F.grid_sample(x, places, align_corners=False)

    program = export(sampled, (torch.randn(3, 4, 5, 6),), dynamic_shapes=({0: Dim("n", max=9)},))
    for n in (1, 3, 9):
        x = torch.randn(n, 4, 5, 6)
        np.testing.assert_allclose(program(x).numpy(), sampled(x).numpy(), atol=1e-6)


def test_a_part_that_is_written_may_have_size_1() -> None:
    def written(x: Any) -> Any:
        y = x.clone()
        y[1:] += 1
        y[::2] = y[::2] * 3
        return y

    program = export(written, (torch.randn(4, 3),), dynamic_shapes={"x": {0: Dim("n", min=2)}})
    for n in (2, 3, 9):
        x = torch.randn(n, 3)
        np.testing.assert_allclose(program(x).numpy(), written(x).numpy(), atol=1e-6)


def test_many_free_dims() -> None:
    def model(*xs: Any) -> Any:
        return sum(x.sum() for x in xs)

    xs = tuple(torch.rand(3) for _ in range(5))
    default = export(model, xs, dynamic_shapes=tuple({0: f"n{i}"} for i in range(5)))
    assert [r.least for r in default.range_constraints.values()] == [1, 1, 2, 2, 2]
    with pytest.raises(ValueError, match="size 1 was not tried, as many sizes are free"):
        default(*xs[:4], torch.rand(1))
    with pytest.raises(ExportError, match="5 free sizes have min=1"):
        export(model, xs, dynamic_shapes=tuple({0: Dim(f"n{i}", min=1)} for i in range(5)))


def test_what_a_model_does_to_itself_is_taken_back() -> None:
    class Counting(nn.Module):
        calls = 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return x + 1

    model = Counting()
    export(model, (torch.ones(1, 2),), dynamic_shapes=({0: "n"},))
    assert model.calls == 0
