"""Trained weights: torchvision's enumerations, and how a builder's arguments choose among them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from enum import Enum
from typing import Any

from graphc import hub
from graphc.nn import Module
from graphc.vision.transforms.presets import ImageClassification

_HOST = "https://download.pytorch.org/models/"
# enumeration -> member -> (file, size after resizing, size after cropping)
_FILES: dict[str, dict[str, tuple[str, int, int]]] = {
    "AlexNet": {"IMAGENET1K_V1": ("alexnet-owt-7be5be79.pth", 256, 224)},
    "VGG11": {"IMAGENET1K_V1": ("vgg11-8a719046.pth", 256, 224)},
    "VGG11_BN": {"IMAGENET1K_V1": ("vgg11_bn-6002323d.pth", 256, 224)},
    "VGG13": {"IMAGENET1K_V1": ("vgg13-19584684.pth", 256, 224)},
    "VGG13_BN": {"IMAGENET1K_V1": ("vgg13_bn-abd245e5.pth", 256, 224)},
    "VGG16": {"IMAGENET1K_V1": ("vgg16-397923af.pth", 256, 224)},
    "VGG16_BN": {"IMAGENET1K_V1": ("vgg16_bn-6c64b313.pth", 256, 224)},
    "VGG19": {"IMAGENET1K_V1": ("vgg19-dcbb9e9d.pth", 256, 224)},
    "VGG19_BN": {"IMAGENET1K_V1": ("vgg19_bn-c79401a0.pth", 256, 224)},
    "ResNet18": {"IMAGENET1K_V1": ("resnet18-f37072fd.pth", 256, 224)},
    "ResNet34": {"IMAGENET1K_V1": ("resnet34-b627a593.pth", 256, 224)},
    "ResNet50": {
        "IMAGENET1K_V1": ("resnet50-0676ba61.pth", 256, 224),
        "IMAGENET1K_V2": ("resnet50-11ad3fa6.pth", 232, 224),
    },
    "ResNet101": {
        "IMAGENET1K_V1": ("resnet101-63fe2227.pth", 256, 224),
        "IMAGENET1K_V2": ("resnet101-cd907fc2.pth", 232, 224),
    },
    "ResNet152": {
        "IMAGENET1K_V1": ("resnet152-394f9c45.pth", 256, 224),
        "IMAGENET1K_V2": ("resnet152-f82ba261.pth", 232, 224),
    },
    "ResNeXt50_32X4D": {
        "IMAGENET1K_V1": ("resnext50_32x4d-7cdf4587.pth", 256, 224),
        "IMAGENET1K_V2": ("resnext50_32x4d-1a0047aa.pth", 232, 224),
    },
    "ResNeXt101_32X8D": {
        "IMAGENET1K_V1": ("resnext101_32x8d-8ba56ff5.pth", 256, 224),
        "IMAGENET1K_V2": ("resnext101_32x8d-110c445d.pth", 232, 224),
    },
    "Wide_ResNet50_2": {
        "IMAGENET1K_V1": ("wide_resnet50_2-95faca4d.pth", 256, 224),
        "IMAGENET1K_V2": ("wide_resnet50_2-9ba9bcbe.pth", 232, 224),
    },
    "Wide_ResNet101_2": {
        "IMAGENET1K_V1": ("wide_resnet101_2-32ee1156.pth", 256, 224),
        "IMAGENET1K_V2": ("wide_resnet101_2-d733dc28.pth", 232, 224),
    },
    "SqueezeNet1_0": {"IMAGENET1K_V1": ("squeezenet1_0-b66bff10.pth", 256, 224)},
    "SqueezeNet1_1": {"IMAGENET1K_V1": ("squeezenet1_1-b8a52dc0.pth", 256, 224)},
    "MobileNet_V2": {
        "IMAGENET1K_V1": ("mobilenet_v2-b0353104.pth", 256, 224),
        "IMAGENET1K_V2": ("mobilenet_v2-7ebf99e0.pth", 232, 224),
    },
    "DenseNet121": {"IMAGENET1K_V1": ("densenet121-a639ec97.pth", 256, 224)},
    "DenseNet161": {"IMAGENET1K_V1": ("densenet161-8d451a50.pth", 256, 224)},
    "DenseNet169": {"IMAGENET1K_V1": ("densenet169-b2777c0a.pth", 256, 224)},
    "DenseNet201": {"IMAGENET1K_V1": ("densenet201-c1103571.pth", 256, 224)},
    "Inception_V3": {"IMAGENET1K_V1": ("inception_v3_google-0cc3c7bd.pth", 342, 299)},
}


class Weights(Enum):
    """A set of trained weights: where it is, and how its images are prepared."""

    @property
    def url(self) -> str:
        """The address of the state_dict file."""
        return _HOST + str(self.value[0])

    def transforms(self) -> ImageClassification:
        """The preparation of an image that these weights were trained with."""
        return ImageClassification(resize_size=self.value[1], crop_size=self.value[2])

    def get_state_dict(self, progress: bool = True, check_hash: bool = False) -> Any:
        """The state_dict, downloaded once. Raises OSError without a network."""
        return hub.load_state_dict_from_url(self.url, progress=progress, check_hash=check_hash)


def _enumeration(name: str) -> type[Weights]:
    members = dict(_FILES[name])
    members["DEFAULT"] = members[max(members)]
    make: Any = Weights  # called with a name and members, an Enum without members makes one
    made: type[Weights] = make(f"{name}_Weights", members)
    return made


WEIGHTS: dict[str, type[Weights]] = {f"{name}_Weights": _enumeration(name) for name in _FILES}


def builder(
    name: str, family: str, make: Callable[..., Module], finish: Callable[..., None] | None = None
) -> Callable[..., Any]:
    """torchvision's function of that name: f(*, weights=None, progress=True, **make's options)."""
    kinds = WEIGHTS[f"{family}_Weights"]

    def build(weights: Any = None, progress: bool = True, *, pretrained: Any = None,
              **options: Any) -> Any:
        if isinstance(weights, bool):  # resnet18(True), of old
            weights, pretrained = None, weights
        if pretrained is not None:
            warnings.warn(
                "The parameter 'pretrained' is deprecated: use weights= instead", UserWarning,
                stacklevel=2,
            )
            weights = "IMAGENET1K_V1" if pretrained else None
        if weights is None:
            return make(**options)
        chosen = kinds[weights.rpartition(".")[2]] if isinstance(weights, str) else kinds(weights)
        if options.setdefault("num_classes", 1000) != 1000:
            raise ValueError(
                f"{name}: {chosen} has 1000 classes, num_classes is {options['num_classes']}. "
                "Cure: build with weights, then replace the last layer"
            )
        if finish is not None:
            finish(options)
        model = make(**options)
        model.load_state_dict(chosen.get_state_dict(progress=progress, check_hash=True))
        return model

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"{name} of torchvision.models; weights=None starts untrained."
    return build
