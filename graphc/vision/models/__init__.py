"""Image classifiers with the structure and the state_dict keys of torchvision.models."""

from . import alexnet as _alexnet
from . import densenet as _densenet
from . import inception as _inception
from . import mobilenetv2 as _mobilenetv2
from . import resnet as _resnet
from . import squeezenet as _squeezenet
from . import vgg as _vgg
from .alexnet import AlexNet
from .densenet import DenseNet
from .inception import Inception3, InceptionOutputs
from .mobilenetv2 import MobileNetV2
from .resnet import ResNet
from .squeezenet import SqueezeNet
from .vgg import VGG
from .weights import WEIGHTS as _WEIGHTS

_BUILDERS = {
    name: builder
    for module in (_alexnet, _densenet, _inception, _mobilenetv2, _resnet, _squeezenet, _vgg)
    for name, builder in module.BUILDERS.items()
}
globals().update(_BUILDERS)  # from torchvision.models import resnet18
globals().update(_WEIGHTS)  # ... import ResNet18_Weights


def list_models() -> list[str]:
    """The names that get_model() takes."""
    return sorted(_BUILDERS)


def get_model(name: str, **config: object) -> object:
    """A model by its name, e.g. get_model("resnet18", num_classes=10)."""
    if name.lower() not in _BUILDERS:
        raise ValueError(f"Unknown model {name}: one of {', '.join(list_models())}")
    return _BUILDERS[name.lower()](**config)


__all__ = [
    "VGG", "AlexNet", "DenseNet", "Inception3", "InceptionOutputs", "MobileNetV2", "ResNet",
    "SqueezeNet", "get_model", "list_models", *_BUILDERS, *_WEIGHTS,
]
