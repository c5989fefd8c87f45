"""Data sets, named as in torchvision.datasets, read from local files."""

from .cifar import CIFAR10, CIFAR100
from .coco import CocoCaptions, CocoDetection
from .fake import FakeData
from .folder import DatasetFolder, ImageFolder, default_loader
from .mnist import KMNIST, MNIST, FashionMNIST
from .vision import VisionDataset

__all__ = [
    "CIFAR10", "CIFAR100", "KMNIST", "MNIST", "CocoCaptions", "CocoDetection", "DatasetFolder",
    "FakeData", "FashionMNIST", "ImageFolder", "VisionDataset", "default_loader",
]
