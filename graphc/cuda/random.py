"""torch.cuda.random: the generators of GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..frontend import random_state
from ..frontend.placement import place_of
from ..frontend.tensor import Tensor
from .available import device_count, gpu, is_available, needs_gpu


def _generator(device: Any) -> random_state.Generator:
    return random_state.generator_at(place_of(f"cuda:{gpu(device).index}"))


def _generators() -> list[random_state.Generator]:
    return [_generator(index) for index in range(device_count())]


def generators() -> tuple[random_state.Generator, ...]:
    """torch.cuda.default_generators: of all GPUs, in their order."""
    return tuple(_generators())


def manual_seed(seed: int) -> None:
    """Seed the current GPU's generator; nothing where there is none."""
    if is_available():
        _generator(None).manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all GPUs."""
    for generator in _generators():
        generator.manual_seed(seed)


def seed() -> None:
    """Seed the current GPU's generator from the system's randomness."""
    if is_available():
        _generator(None).seed()


def seed_all() -> None:
    """Seed the generators of all GPUs alike, from the system's randomness."""
    found = _generators()
    for generator in found:
        generator.manual_seed(found[0].seed()) if generator is found[0] else (
            generator.manual_seed(found[0].initial_seed())
        )


@needs_gpu
def initial_seed() -> int:
    """The seed of the current GPU's generator."""
    return _generator(None).initial_seed()


@needs_gpu
def get_rng_state(device: Any = "cuda") -> Tensor:
    """Where a GPU's generator stands: bytes, on the CPU."""
    return _generator(device).get_state()


@needs_gpu
def set_rng_state(new_state: Tensor, device: Any = "cuda") -> None:
    """Go on from there."""
    _generator(device).set_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    """Of all GPUs."""
    return [generator.get_state() for generator in _generators()]


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Of all GPUs, in their order."""
    for generator, state in zip(_generators(), new_states, strict=False):
        generator.set_state(state)
