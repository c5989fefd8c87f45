"""Image transforms with the names, draws and results of torchvision.transforms, on Tensors
[..., C, H, W], PIL images and (ToTensor) NumPy arrays."""

from . import functional
from .colour import ColorJitter, GaussianBlur, Grayscale, RandomGrayscale, RandomInvert
from .compose import Compose, Lambda, RandomApply, RandomChoice, RandomOrder
from .convert import ConvertImageDtype, Normalize, PILToTensor, RandomErasing, ToPILImage, ToTensor
from .functional import InterpolationMode
from .geometry import (
    CenterCrop,
    FiveCrop,
    Pad,
    RandomAffine,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
    Resize,
    TenCrop,
)

__all__ = [
    "CenterCrop", "ColorJitter", "Compose", "ConvertImageDtype", "FiveCrop", "GaussianBlur",
    "Grayscale", "InterpolationMode", "Lambda", "Normalize", "PILToTensor", "Pad",
    "RandomAffine", "RandomApply", "RandomChoice", "RandomCrop", "RandomErasing",
    "RandomGrayscale", "RandomHorizontalFlip", "RandomInvert", "RandomOrder",
    "RandomResizedCrop", "RandomRotation", "RandomVerticalFlip", "Resize", "TenCrop",
    "ToPILImage", "ToTensor", "functional",
]
