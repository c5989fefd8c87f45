"""compile(max_memory=...): kept to by computing values again, or refused with a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from graphc import config
from graphc.engine.limit import parse_bytes
from graphc.inspect.explain import Explanation, explain

WIDTH, BATCH, LAYERS = 24, 600, 8


def network(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(3)
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Tanh(), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 4))


def batch(size: int = BATCH) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.standard_normal((size, WIDTH), np.float32))
    return x, torch.from_numpy(rng.integers(0, 4, size))


def training(limit: Any = None, dropout: float = 0.0) -> tuple[Any, list[Any], list[bytes]]:
    """The compiled step, its arguments, and what a few of its calls left."""
    net = network(dropout)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)  # the line of the loss
        loss.backward()
        optimizer.step()
        return loss

    run = torch.compile(step, max_memory=limit)
    given = list(batch())
    torch.manual_seed(9)
    losses = [run(*given) for _ in range(4)]
    left = [*losses, *net.parameters(), *[p.grad for p in net.parameters()]]
    return run, given, [t.detach().numpy().tobytes() for t in left]


def explained(run: Any, *args: Any) -> Explanation:
    found = explain(run, *args)
    assert isinstance(found, Explanation) and found.memory is not None
    return found


def peak(run: Any, *args: Any) -> int:
    memory = explained(run, *args).memory
    assert memory is not None
    return memory.peak


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_step_keeps_to_its_limit_to_the_same_bits(dropout: float) -> None:
    run, given, free = training(dropout=dropout)
    most = peak(run, *given)
    limit = int(most * 0.65)
    tight, given, bits = training(limit, dropout)
    assert bits == free
    found = explained(tight, *given)
    assert found.memory is not None and found.memory.peak <= limit < most
    assert found.memory.again == found.parts[0].built.program.again > 0
    assert f"{found.memory.again} steps compute values again" in str(found)


def test_what_needs_more_is_refused_with_a_table() -> None:
    with pytest.raises(torch.MemoryLimitError) as caught:
        training("150 kB")
    text = str(caught.value)
    assert "step needs" in text and "max_memory is 150 kB" in text
    for row in ("parameters", "gradients", "state: buffers", "arguments", "arena"):
        assert f"  {row}" in text, text
    assert f"{Path(__file__).name}:" in text and "Cure: " in text
    tight, given, _ = training(caught.value.least)  # the least it names is enough
    assert peak(tight, *given) <= caught.value.least


def test_enough_changes_nothing() -> None:
    run, given, free = training()
    other, given, bits = training(peak(run, *given))
    memory = explained(other, *given).memory
    assert bits == free and memory is not None and memory.again == 0


def test_the_rows_are_those_of_the_model() -> None:
    run, given, _ = training()
    memory = explained(run, *given).memory
    assert memory is not None
    parameters = LAYERS * (WIDTH * WIDTH + 3 * WIDTH) + 4 * WIDTH + 4
    assert memory["parameters"] == memory["gradients"] == 4 * parameters
    assert memory["gradients of the call before"] == 4 * parameters
    assert memory["state: buffers, moments, captured tensors"] >= 8 * parameters
    assert memory["arguments"] >= BATCH * (4 * WIDTH + 8) and memory["nothing"] == 0
    assert sum(size for _, size in memory.rows) == memory.peak
    assert 0 < memory.saved <= memory["arena"]
    assert memory.values and sum(size for _, size in memory.values) <= memory["arena"] * 1.01


def modular(limit: Any = None) -> tuple[Any, list[np.ndarray]]:
    net = network()
    compiled = torch.compile(net, max_memory=limit)
    x, y = batch()
    loss = F.cross_entropy(compiled(x), y)
    loss.backward()
    return compiled, [loss.detach().numpy(), *[p.grad.numpy() for p in net.parameters()]]


def test_a_module_saves_less_for_its_backward() -> None:
    free, expected = modular()
    x, _ = batch()
    memory = explained(free, x).memory
    assert memory is not None
    for part in (0.8, 0.5):
        limit = int(memory.peak * part)
        tight, got = modular(limit)
        less = explained(tight, x).memory
        assert less is not None and less.peak <= limit
        # the forward and the backward part fuse what is computed again in ways of their own
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert less.saved < memory.saved
    with pytest.raises(torch.MemoryLimitError, match="max_memory is 1 kB"):
        modular(1000)


def test_what_a_backward_computes_again_waits_for_its_layer() -> None:
    """More layers need no larger arena: what is computed again of all of them is never there."""
    arenas = []
    for layers in (2, 4):
        net = torch.compile(nn.Sequential(*[
            nn.TransformerEncoderLayer(64, 2, 256, 0.0, "gelu", batch_first=True)
            for _ in range(layers)
        ]))
        x = torch.ones(8, 64, 64)
        net(x).sum().backward()
        memory = explained(net, x).memory
        assert memory is not None
        arenas.append(memory["arena"])
    assert arenas[1] == arenas[0]


def test_what_is_no_one_graph_or_of_any_size_is_refused() -> None:
    run = torch.compile(lambda x: x * float(x.sum()), max_memory="1GB")
    with pytest.raises(RuntimeError, match="needs the value of a Tensor"):
        run(torch.ones(3))
    with pytest.raises(ValueError, match="dynamic=True"):
        torch.compile(lambda x: x, max_memory="1GB", dynamic=True)


def test_each_size_has_a_graph_and_its_own_verdict() -> None:
    run = torch.compile(lambda x: (x.exp() @ x.T).sum(), max_memory="1MB")
    for size in (10, 20, 30):
        x = torch.ones(size, 8)
        assert float(run(x)) == pytest.approx(size * size * 8 * np.e, rel=1e-5)
    assert run.compile_count == 3
    with pytest.raises(torch.MemoryLimitError):
        run(torch.ones(600, 8))
    assert float(run(torch.ones(10, 8))) == pytest.approx(800 * np.e, rel=1e-5)


def test_as_a_decorator_and_through_the_cache(tmp_path: Path) -> None:
    """What is kept of the one is not found for the other."""
    def function(x: Any) -> Any:
        y = x.exp()
        z = y
        for _ in range(4):
            z = (z @ z.T / 100).sin() @ x
        return (z * y).sum()

    x = torch.full((100, 30), 0.1)
    with config.override(cache_dir=tmp_path):
        free = torch.compile(function)
        most = peak(free, x)
        for _ in range(2):  # compiled, then found
            tight = torch.compile(max_memory=most - 8000)(function)
            assert peak(tight, x) <= most - 8000
            assert tight(x).numpy().tobytes() == free(x).numpy().tobytes()
        assert peak(torch.compile(function), x) == most


@pytest.mark.parametrize(("given", "bytes_"), [
    (500, 500), ("500MB", 500_000_000), ("1.5 GB", 1_500_000_000), ("512MiB", 512 << 20),
    ("2gib", 2 << 30), ("10", 10),
])
def test_bytes_as_people_write_them(given: Any, bytes_: int) -> None:
    assert parse_bytes(given) == bytes_


@pytest.mark.parametrize("given", ["much", "5 MBit", "-5", "", 0, "0 MB", -1])
def test_what_is_no_number_of_bytes(given: Any) -> None:
    with pytest.raises(ValueError, match="max_memory"):
        parse_bytes(given)
    for wrong in (True, 1.5, None):
        with pytest.raises(TypeError, match="max_memory"):
            parse_bytes(wrong)  # type: ignore[arg-type]
