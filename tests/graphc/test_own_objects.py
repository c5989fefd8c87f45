"""Objects of graphc's own that were there before the call: what they say may change between calls.

Each use is run eagerly and compiled, over calls between which the object changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import graphc as torch
from graphc.backends import flags


class Box:
    """What a use keeps from call to call."""

    made: Any


class Use(NamedTuple):
    """An object, what a function asks of it, and how it changes."""

    make: Callable[[], Any]
    ask: Callable[[Any], Any]
    change: Callable[[Box], Any]


def seeded() -> Any:
    return torch.Generator().manual_seed(3)


def seed_again(box: Box) -> None:
    box.made.manual_seed(box.made.initial_seed() + 1)


def product() -> Any:
    return torch.ones(2, requires_grad=True) * 2


def other_product(box: Box) -> None:
    box.made = (torch.ones(2, requires_grad=True) + 2).exp()


def lower(made: Any) -> float:
    with made:
        found = torch.ones(1, 2) @ torch.ones(2, 1)
    return float(found.dtype == torch.bfloat16)


def note(box: Box) -> None:
    box.made.note = getattr(box.made, "note", 0) + 1


def write_note(made: Any) -> int:
    made.note = getattr(made, "note", 0) + 1
    return made.note


def switch(box: Box) -> None:
    box.made.allow_tf32 = not box.made.allow_tf32


def keep_seed(box: Box) -> None:
    torch.manual_seed(torch.initial_seed() + 1)


def twice(box: Box) -> None:
    box.made.mul_(3)


USES: dict[str, Use] = {
    "a seed": Use(seeded, lambda g: g.initial_seed(), seed_again),
    "a state": Use(seeded, lambda g: g.get_state().sum() % 1000, seed_again),
    "the state": Use(
        lambda: torch.manual_seed(1), lambda g: torch.get_rng_state().sum() % 1000, keep_seed
    ),
    "an attribute": Use(seeded, lambda g: getattr(g, "note", 0), note),
    "an attribute that is written": Use(seeded, write_note, seed_again),
    "bytes": Use(
        lambda: torch.ones(3), lambda t: t.untyped_storage()[2] + len(t.untyped_storage()), twice
    ),
    "a list of bytes": Use(
        lambda: torch.ones(3), lambda t: sum(t.untyped_storage().tolist()), twice
    ),
    "the name of a gradient": Use(product, lambda y: len(y.grad_fn.name()), other_product),
    "a gradient's metadata": Use(
        lambda: product().grad_fn, lambda f: f.metadata.get("k", 0),
        lambda box: box.made.metadata.update(k=box.made.metadata.get("k", 0) + 1)),
    "autocast": Use(
        lambda: torch.autocast("cpu", dtype=torch.bfloat16), lower,
        lambda box: setattr(box.made, "_enabled", not box.made._enabled)),
    "a flag": Use(
        lambda: torch.backends.cuda.matmul, lambda m: float(m.allow_tf32), switch
    ),
    "a function's flag": Use(
        lambda: None, lambda m: float(torch.backends.cuda.flash_sdp_enabled()),
        lambda box: torch.backends.cuda.enable_flash_sdp(not flags.attention.flash)),
}


def kept_storage() -> tuple[Any, Any]:
    tensor = torch.ones(3)
    return tensor, tensor.untyped_storage()


USES["a storage"] = Use(
    kept_storage, lambda m: m[1][2] + m[1].nbytes() + sum(m[1].tolist()),
    lambda box: box.made[0].mul_(3),
)


@pytest.fixture(autouse=True)
def settings() -> Any:
    yield
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.enable_flash_sdp(True)


def seen(function: Callable[..., Any], use: Use) -> list[Any]:
    box = Box()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.enable_flash_sdp(True)
    box.made = use.make()
    found = []
    for i in range(6):
        found.append(function(torch.ones(2) * i, box).tolist())
        if i % 2:
            use.change(box)
    return found


@pytest.mark.parametrize("name", USES)
def test_never_stale(name: str) -> None:
    use = USES[name]

    def call(x: torch.Tensor, box: Box) -> torch.Tensor:
        return x + use.ask(box.made)

    assert seen(torch.compile(call), use) == seen(call, use)
