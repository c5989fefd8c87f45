"""Replayed functions of few numbers as one call of native code: the bits are those of their
operators one by one, and what does not fit goes as it did."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.engine import eager_program, eager_rows, program_asked, program_code
from graphc.frontend import replayed, replayed_steps
from graphc.nn import functional as F

Call = Callable[[Any, Any], Any]
N = torch.tensor([1, 0, 2])
CALLS: dict[str, Call] = {
    **{
        f"grid, {mode}, {padding}": lambda x, y, m=mode, p=padding: F.grid_sample(
            x.reshape(1, 2, 2, 4), y.reshape(1, 2, 4, 2), m, p, align_corners=m == "bicubic"
        )
        for mode in ("bilinear", "nearest", "bicubic")
        for padding in ("zeros", "border", "reflection")
    },
    "polar": torch.polar, "complex": torch.complex,
    "fold": lambda x, y: F.fold(x.reshape(1, 4, 4), (3, 3), 2),
    "fold with gaps": lambda x, y: F.fold(x.reshape(4, 4), (4, 4), 2, stride=2, padding=0),
    "unfold": lambda x, y: F.unfold(x[None, None], 2, padding=1),
    "pixel_shuffle": lambda x, y: F.pixel_shuffle(x.reshape(4, 2, 2), 2),
    "pixel_unshuffle": lambda x, y: F.pixel_unshuffle(x[None], 2),
    "channel_shuffle": lambda x, y: F.channel_shuffle(x.reshape(1, 4, 2, 2), 2),
    "repeat_interleave": lambda x, y: x.repeat_interleave(3, 1),
    "interpolate": lambda x, y: F.interpolate(
        x[None, None], scale_factor=2, mode="bilinear", align_corners=False
    ),
    "nearest": lambda x, y: F.interpolate(x[None, None], scale_factor=2),
    "var": lambda x, y: x.var(1), "of columns": lambda x, y: torch.std_mean(x, 0),
    "logsumexp": lambda x, y: x.logsumexp(0) if x.dim() == 2 else x.logsumexp(-1),
    "normalize": lambda x, y: F.normalize(x, dim=0),
    "distance": lambda x, y: F.pairwise_distance(x, y),
    "hinge": lambda x, y: F.hinge_embedding_loss(x, y.sign()),
    "cosine": lambda x, y: F.cosine_similarity(x, y),
    "stacked": lambda x, y: torch.stack([x, y.t()], 1),
    "reflected": lambda x, y: F.pad(x[None], (1, 2), mode="reflect"),
    "trapezoid": lambda x, y: torch.trapezoid(x, y), "diff": lambda x, y: x.diff(dim=0),
    "cross": lambda x, y: torch.cross(x[:, :3], y[:, :3], dim=1),
    "ctc": lambda x, y: F.ctc_loss(
        x.reshape(4, 1, 4), torch.tensor([[1, 2]]), torch.tensor([4]), torch.tensor([2])
    ),
}
CALLS |= {
    "transposed": lambda x, y: F.conv_transpose2d(x.reshape(1, 2, 2, 4), y.reshape(2, 1, 2, 4)),
    "transposed, grouped": lambda x, y: F.conv_transpose1d(
        x.reshape(2, 4, 2), y.reshape(4, 2, 2), y[0, :4], stride=2, padding=1, groups=2
    ),
    "transposed, wide": lambda x, y: F.conv_transpose2d(
        x.reshape(1, 4, 2, 2), y.reshape(4, 1, 2, 2), stride=2, output_padding=1, dilation=2
    ),
    "conv": lambda x, y: F.conv2d(x.reshape(1, 1, 4, 4), y.reshape(2, 1, 2, 4), padding=1),
    "conv, grouped": lambda x, y: F.conv1d(
        x.reshape(2, 4, 2), y.reshape(4, 2, 2), y[0, :4], padding=1, dilation=2, groups=2
    ),
    "layer": lambda x, y: F.linear(x, y, y[0]), "layer of rows": lambda x, y: F.linear(
        x.reshape(2, 2, 4), y, y[0]
    ),
    "squared": lambda x, y: x @ x, "batches": lambda x, y: torch.bmm(
        x.reshape(2, 2, 4), y.reshape(2, 4, 2)
    ),
    "heads": lambda x, y: F.scaled_dot_product_attention(
        *[z.reshape(1, 2, 2, 4) for z in (x, y, x)]
    ),
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y), "vector": lambda x, y: x @ y[0],
    "cubed": lambda x, y: x.pow(3), "squares": lambda x, y: x.pow(2.0),
    "square roots": lambda x, y: x.abs().pow(torch.tensor(0.5)),
    "by a tensor": lambda x, y: x.pow(torch.tensor(3.0)),
}
# those of which each operator has its entries
CALLS |= {
    "columns": lambda x, y: x.softmax(0),
    "repeated": lambda x, y: x.repeat(2, 1, 3), "tiled": lambda x, y: torch.tile(x, (2,)),
    "exponents": lambda x, y: x.abs().pow(1.5), "roots": lambda x, y: x.pow(0.5),
}
WHOLE = {
    "grid, bilinear, zeros", "grid, bicubic, reflection", "fold", "fold with gaps", "unfold",
    "pixel_shuffle", "pixel_unshuffle", "var", "of columns", "ctc", "normalize",
    "transposed", "transposed, grouped", "transposed, wide", "conv", "conv, grouped", "squared",
}
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda v: v, "turned": lambda v: v.t(), "steps": lambda v: v.repeat(2, 2)[::2, ::2],
}


@pytest.fixture(autouse=True)
def soon(only_the_cpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager_rows, "_ENOUGH", 0)
    monkeypatch.setattr(eager_rows, "native", eager_rows.Native())
    monkeypatch.setattr(program_asked, "native", eager_rows.native)
    monkeypatch.setattr(replayed, "_known", {})
    monkeypatch.setattr(replayed_steps, "_OFTEN", 1)
    if not program_code.Code():
        pytest.skip("no compiler for this machine")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What became of each program: None, where there was none."""
    found: list[Any] = []
    make = eager_program._made

    def noting(*given: Any) -> Any:
        found.append(make(*given))
        return found[-1]

    monkeypatch.setattr(eager_program, "_made", noting)
    return found


def operands(layout: str, dtype: Any, seed: int) -> list[Any]:
    numbers = np.random.default_rng(seed).standard_normal((2, 4, 4)) * 2
    numbers[0, 0] = [0, 3, -0.0, 1]
    if seed > 3:
        numbers[:, 1, :3] = [np.nan, np.inf, -np.inf]
    return [LAYOUTS[layout](torch.tensor(v, dtype=dtype)) for v in numbers]


def outcome(call: Call, given: list[Any]) -> Any:
    result = call(*given)
    found: list[Any] = []
    for part in result if isinstance(result, tuple) else (result,):
        array = part.numpy()
        found += [array.tobytes(), array.dtype, array.shape, array.strides, part._version]
        assert part._graphc_storage.flat().nbytes == array.nbytes and part._base is None
        part.add_(1)  # it is nobody else's memory
    return found


def outcomes(call: Call, layout: str, dtype: Any) -> Iterator[Any]:
    for seed in range(8):
        yield outcome(call, operands(layout, dtype, seed))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CALLS)
def test_bits(
    name: str, layout: str, dtype: Any, made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_programs = list(outcomes(CALLS[name], layout, dtype))
    assert name not in WHOLE or layout != "rows" or any(m is not None for m in made)
    monkeypatch.setattr(replayed_steps, "_OFTEN", -1)
    monkeypatch.setattr(replayed, "_known", {})
    assert by_programs == list(outcomes(CALLS[name], layout, dtype))


def test_positions_out_of_range_say_so(made: list[Any]) -> None:
    x = torch.arange(12.0).reshape(3, 4)

    @replayed.replayed
    def looked_up(x: Any, n: Any) -> Any:
        return x.index_select(0, n) * 2 + x.gather(0, n.reshape(3, 1).expand(3, 4))

    good = looked_up(x, N)
    for _ in range(6):
        assert torch.equal(looked_up(x, N), good)
    assert made and made[0] is not None
    for wrong in (3, -1):
        for _ in range(2):
            with pytest.raises((IndexError, RuntimeError), match="out of"):
                looked_up(x, torch.tensor([0, wrong, 1]))
    assert torch.equal(looked_up(x, N), good)


def test_what_pads_keeps_its_padding(made: list[Any]) -> None:
    """Of a result, which is new memory at each call, too."""

    @replayed.replayed
    def padded(x: Any) -> Any:
        return F.pad(x * 2, (1, 2), value=7.0)

    x = torch.arange(6.0).reshape(2, 3)
    for i in range(8):
        found = padded(x + i)
        assert found.tolist() == [[7.0, *row, 7.0, 7.0] for row in ((x + i) * 2).tolist()]
        found.zero_()
    assert made and made[0] is not None


def test_another_numpy_goes_on_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program with other bits is given up after its first result."""
    monkeypatch.setattr(
        eager_program, "_made", lambda *_: lambda _: lambda tensors: torch.zeros(4)
    )
    x = torch.rand(4, 5)
    right = x.var(1)
    for _ in range(9):
        assert torch.equal(x.var(1), right)


def test_when(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function of many operators asks for the code after some dozens of calls."""
    monkeypatch.setattr(eager_rows, "_ENOUGH", 4000)
    monkeypatch.setattr(replayed_steps, "_OFTEN", 30)
    asked, done = [], []
    monkeypatch.setattr(eager_program, "_made", lambda *_: asked.append(len(done)))
    x, grid = torch.rand(1, 2, 8, 8), torch.rand(1, 4, 4, 2)
    for i in range(200):
        done.append(i)
        F.grid_sample(x, grid, align_corners=False)
    assert len(asked) == 1 and asked[0] < 150


def test_nothing_is_loaded_for_some_calls() -> None:
    code = (
        "import sys, graphc as torch\nx = torch.rand(4)\n"
        "for _ in range(50): x.clamp(0, 1)\n"
        "print('graphc.engine.eager_program' in sys.modules)\n"
        "for _ in range(6000): x.clamp(0, 1)\n"
        "print('graphc.engine.eager_program' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
