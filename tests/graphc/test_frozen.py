"""What a program computes of weights alone is computed once, and is never stale."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import graphc as torch
from graphc import nn
from graphc.config import override
from graphc.nn import functional as F

Model = Any


def model() -> Model:
    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Conv2d(3, 24, 3, 2, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU6(),
        nn.Conv2d(24, 32, 1), nn.BatchNorm2d(32),
        nn.Conv2d(32, 32, 3, 1, 1, groups=32, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 20, 3, 1, 1), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(5),
    )
    layers(torch.rand(2, 3, 12, 12))
    for layer in layers:
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.uniform_(-1, 1)
            layer.running_var.uniform_(0.5, 2)
            layer.weight.data.uniform_(-2, 2)
            layer.bias.data.uniform_(-1, 1)
    return layers.eval()


def image(batch: int = 2) -> Any:
    return torch.randn(batch, 3, 12, 12)


def constants(compiled: Any, *args: Any) -> Any:
    return compiled.version(*args).constants


def same(compiled: Any, plain: Any, x: Any) -> None:
    torch.testing.assert_close(compiled(x), plain(x), rtol=1e-4, atol=1e-4)


def train_once(m: Model) -> None:
    m.train()
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
    with torch.enable_grad():
        m(image(4)).square().mean().backward()
    optimizer.step()
    m.eval()


def through_numpy(m: Model) -> None:
    m[0].weight.detach().numpy()[:] *= 2


def load(m: Model) -> None:
    m.load_state_dict({
        k: v * 1.5 if v.dtype.is_floating_point else v for k, v in m.state_dict().items()
    })


def into_bias(m: Model) -> None:
    m[3].bias[2:5] = 7.0


EDITS: dict[str, Callable[[Model], Any]] = {
    "in place": lambda m: m[0].weight.mul_(2),
    "of .data": lambda m: m[0].weight.data.mul_(2),
    "of a view of .data": lambda m: m[0].weight.data[3].fill_(2.0),
    "of a detached one": lambda m: m[1].weight.detach().neg_(),
    "of a part": into_bias,
    "of statistics": lambda m: m[6].running_var.add_(3),
    "copy_": lambda m: m[8].weight.copy_(torch.ones(20, 32, 3, 3)),
    ".data is set": lambda m: setattr(m[3].weight, "data", torch.ones(32, 24, 1, 1)),
    "another parameter": lambda m: setattr(m[3], "weight", nn.Parameter(torch.ones(32, 24, 1, 1))),
    "load_state_dict": load,
    "a training step": train_once,
    "numpy": through_numpy,
    "an initialiser": lambda m: nn.init.ones_(m[8].weight),
    "set_": lambda m: m[1].bias.set_(torch.full((24,), 0.25)),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
@torch.no_grad()
def test_what_is_written_to_weights_is_seen(edit: Callable[[Model], Any]) -> None:
    m, x = model(), image()
    compiled = torch.compile(lambda x: m(x))
    for _ in range(3):
        same(compiled, m, x)
    for _ in range(2):
        edit(m)
        for _ in range(2):
            same(compiled, m, x)


@torch.no_grad()
def test_it_is_computed_once() -> None:
    m, x = model(), image()
    compiled = torch.compile(lambda x: m(x))
    for _ in range(5):
        same(compiled, m, x)
    made = constants(compiled, x)
    assert made.runs == 1 and len(made.made) == 7
    m[0].weight.data  # noqa: B018  # a sibling that writes nothing
    same(compiled, m, x)
    runs = made.runs
    for _ in range(3):
        same(compiled, m, x)
    assert made.runs == runs <= 2
    m[0].weight.mul_(0.5)
    for _ in range(3):
        same(compiled, m, x)
    assert made.runs == runs + 1


@torch.no_grad()
def test_a_sibling_that_was_made_long_ago_writes() -> None:
    m, x = model(), image()
    compiled = torch.compile(lambda x: m(x))
    sibling = m[0].weight.data
    for _ in range(3):
        same(compiled, m, x)
        sibling.mul_(2)
    del sibling
    same(compiled, m, x)


@torch.no_grad()
def test_an_array_that_was_handed_out_is_no_constant() -> None:
    m, x = model(), image()
    compiled = torch.compile(lambda x: m(x))
    same(compiled, m, x)
    array = m[0].weight.detach().numpy()
    for factor in (2.0, 3.0):
        array *= factor
        same(compiled, m, x)
    other = torch.compile(lambda x: m(x))  # recorded when it is handed out already
    for factor in (0.5, 0.25):
        array *= factor
        same(other, m, x)
    m[0].weight.data = torch.randn(24, 3, 3, 3)
    same(other, m, x)
    same(compiled, m, x)


@torch.no_grad()
def test_a_weight_that_the_call_writes_to_is_no_constant() -> None:
    m, other, x = model(), model(), image()

    def step(net: Model, x: Any) -> Any:
        net[0].weight.mul_(0.5)
        return net(x)

    compiled = torch.compile(lambda x: step(m, x))
    for _ in range(4):
        torch.testing.assert_close(compiled(x), step(other, x), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_what_leaves_the_call_is_the_callers_own() -> None:
    m, x = model(), image()
    compiled = torch.compile(lambda x: (m(x), m[8].weight * 2, (m[8].weight * 2).sum() + x))
    for _ in range(3):
        first, doubled, _ = compiled(x)
        torch.testing.assert_close(doubled, m[8].weight * 2)
        doubled.zero_()
        torch.testing.assert_close(first, m(x), rtol=1e-4, atol=1e-4)


def test_nothing_is_frozen_where_a_gradient_is_recorded() -> None:
    m, x = model(), image()
    compiled = torch.compile(lambda x: m(x))
    compiled(x).sum().backward()
    assert constants(compiled, x) is None
    with torch.no_grad():
        same(compiled, m, x)
        assert constants(compiled, x) is not None


@torch.no_grad()
def test_batches_of_any_size() -> None:
    m = model()
    compiled = torch.compile(lambda x: m(x))
    for batch in (1, 3, 2, 5, 4):
        same(compiled, m, image(batch))


@torch.no_grad()
def test_threads_that_call_while_weights_change() -> None:
    """Each result is of one state of the weights or another: of weights that are read at once, in
    the prologue. A bias that the convolution itself reads may change while it runs, as in torch."""
    m, x = model(), image()
    compiled = torch.compile(lambda x: m(x))
    compiled(x)
    wanted, wrong = [], []
    for value in (1.0, 2.0):
        m[1].bias.fill_(value)
        wanted.append(m(x))

    def ask() -> None:
        with torch.no_grad():
            for _ in range(30):
                found = compiled(x)
                if min(float((found - want).abs().max()) for want in wanted) > 1e-3:
                    wrong.append(found)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for i in range(30):
        m[1].bias.fill_(1.0 + i % 2)
    for thread in threads:
        thread.join()
    assert not wrong
    same(compiled, m, x)


@torch.no_grad()
def test_norms_in_every_spelling_go_into_weights() -> None:
    weight, numbers = torch.randn(40, 8, 3, 3), torch.rand(40) + 0.5
    spread = numbers.reshape(40, 1, 1)
    spellings: list[Callable[[Any], Any]] = [
        lambda y: y * spread + spread, lambda y: spread - y, lambda y: 3.0 - y * 2.0,
        lambda y: (y - spread) * spread - spread, lambda y: spread * (1 - (spread - y)),
        lambda y: y * torch.rand(40, 1, 1).mul_(0).add_(2), lambda y: y + y, lambda y: y - 1,
        lambda y: (y * numbers[:, None, None]).relu() + y,
    ]
    x = torch.randn(2, 8, 6, 6)
    for spelling in spellings:
        def plain(x: Any, spelling: Callable[[Any], Any] = spelling) -> Any:
            return F.relu(spelling(F.conv2d(x, weight, padding=1)))

        compiled = torch.compile(plain)
        for _ in range(2):
            torch.testing.assert_close(compiled(x), plain(x), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_checked_program_is_whole() -> None:
    m, x = model(), image()
    with override(check=2):
        compiled = torch.compile(lambda x: m(x))
        same(compiled, m, x)
        assert constants(compiled, x) is None
