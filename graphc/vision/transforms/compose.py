"""Transforms made of transforms."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import graphc

Transform = Callable[[Any], Any]


class Compose:
    """Several transforms, one after the other."""

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self.transforms = list(transforms)

    def __call__(self, img: Any) -> Any:
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self) -> str:
        lines = [f"    {transform!r}" for transform in self.transforms]
        return "\n".join(["Compose(", *lines, ")"])


class Lambda:
    """A function as a transform."""

    def __init__(self, lambd: Transform) -> None:
        if not callable(lambd):
            raise TypeError(f"Argument lambd should be callable, got {type(lambd).__name__}")
        self.lambd = lambd

    def __call__(self, img: Any) -> Any:
        return self.lambd(img)

    def __repr__(self) -> str:
        return "Lambda()"


class RandomApply:
    """All of the transforms with probability p, or none."""

    def __init__(self, transforms: Sequence[Transform], p: float = 0.5) -> None:
        self.transforms, self.p = transforms, p

    def __call__(self, img: Any) -> Any:
        if self.p < graphc.rand(1):
            return img
        for transform in self.transforms:
            img = transform(img)
        return img


class RandomChoice:
    """One of the transforms, drawn by weight (by Python's `random`, as in torchvision)."""

    def __init__(self, transforms: Sequence[Transform], p: Sequence[float] | None = None) -> None:
        self.transforms, self.p = transforms, p

    def __call__(self, img: Any) -> Any:
        return random.choices(self.transforms, self.p)[0](img)


class RandomOrder:
    """All of the transforms in a random order (by Python's `random`, as in torchvision)."""

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        order = list(range(len(self.transforms)))
        random.shuffle(order)
        for i in order:
            img = self.transforms[i](img)
        return img
