"""Image data sets and transforms, named as in torchvision (which is not needed)."""

from graphc.vision import datasets, transforms

__all__ = ["datasets", "transforms"]
