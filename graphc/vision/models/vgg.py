"""VGG with and without batch norm (Simonyan, Zisserman 2014, arxiv.org/abs/1409.1556)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from graphc import Tensor, flatten, nn

from .weights import builder

# channels of the convolutions of each of the five stages; a max pool ends a stage
_STAGES = {
    11: ((64,), (128,), (256, 256), (512, 512), (512, 512)),
    13: ((64, 64), (128, 128), (256, 256), (512, 512), (512, 512)),
    16: ((64, 64), (128, 128), (256,) * 3, (512,) * 3, (512,) * 3),
    19: ((64, 64), (128, 128), (256,) * 4, (512,) * 4, (512,) * 4),
}


class VGG(nn.Module):
    """Images [N, 3, H, W], H and W at least 32, to logits [N, num_classes]."""

    def __init__(
        self, features: nn.Module, num_classes: int = 1000, init_weights: bool = True,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096), nn.ReLU(True), nn.Dropout(p=dropout),
            nn.Linear(4096, 4096), nn.ReLU(True), nn.Dropout(p=dropout),
            nn.Linear(4096, num_classes),
        )
        if init_weights:
            for module in self.modules():
                _initialise(module)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.classifier(flatten(self.avgpool(self.features(x)), 1))


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if module.bias is not None:
            nn.init.constant_(module.bias, 0)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.constant_(module.weight, 1)
        nn.init.constant_(module.bias, 0)
    elif isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, 0, 0.01)
        nn.init.constant_(module.bias, 0)


def make_layers(cfg: Sequence[str | int], batch_norm: bool = False) -> nn.Sequential:
    """Convolutions of these channels, each with its ReLU; "M" is a max pool."""
    layers: list[nn.Module] = []
    incoming = 3
    for channels in cfg:
        if isinstance(channels, str):
            layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
            continue
        layers.append(nn.Conv2d(incoming, channels, kernel_size=3, padding=1))
        if batch_norm:
            layers.append(nn.BatchNorm2d(channels))
        layers.append(nn.ReLU(inplace=True))
        incoming = channels
    return nn.Sequential(*layers)


def _make(depth: int, batch_norm: bool, **options: Any) -> VGG:
    layout: list[str | int] = []
    for stage in _STAGES[depth]:
        layout += [*stage, "M"]
    return VGG(make_layers(layout, batch_norm), **options)


def _no_init(options: dict[str, Any]) -> None:
    options["init_weights"] = False  # all of it is loaded


BUILDERS = {
    name: builder(name, name.upper(), functools.partial(_make, depth, norm), _no_init)
    for depth in _STAGES
    for name, norm in ((f"vgg{depth}", False), (f"vgg{depth}_bn", True))
}
