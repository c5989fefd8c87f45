"""DenseNet (Huang et al. 2016, arxiv.org/abs/1608.06993)."""

from __future__ import annotations

import functools
import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from graphc import Tensor, cat, flatten, nn
from graphc.nn import functional as F
from graphc.utils.checkpoint import checkpoint

from .weights import builder

# weights saved before 0.4 have dots inside these names: "denselayer1.norm.1.weight"
_OLD_NAME = re.compile(
    r"^(.*denselayer\d+\.(?:norm|relu|conv))\.((?:[12])\."
    r"(?:weight|bias|running_mean|running_var))$"
)


class _DenseLayer(nn.Module):
    def __init__(
        self, num_input_features: int, growth_rate: int, bn_size: int, drop_rate: float,
        memory_efficient: bool = False,
    ) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(num_input_features)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(num_input_features, bn_size * growth_rate, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(bn_size * growth_rate)
        self.relu2 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(bn_size * growth_rate, growth_rate, 3, 1, padding=1, bias=False)
        self.drop_rate = float(drop_rate)
        self.memory_efficient = memory_efficient

    def bn_function(self, *inputs: Tensor) -> Tensor:
        """The narrow features of everything before."""
        return self.conv1(self.relu1(self.norm1(cat(inputs, 1))))

    def forward(self, inputs: Tensor | Sequence[Tensor]) -> Tensor:
        before = [inputs] if isinstance(inputs, Tensor) else list(inputs)
        if self.memory_efficient and any(x.requires_grad for x in before):
            narrow = checkpoint(self.bn_function, *before, use_reentrant=False)
        else:
            narrow = self.bn_function(*before)
        new = self.conv2(self.relu2(self.norm2(narrow)))
        return F.dropout(new, self.drop_rate, self.training) if self.drop_rate > 0 else new


class _DenseBlock(nn.ModuleDict):
    def __init__(
        self, num_layers: int, num_input_features: int, bn_size: int, growth_rate: int,
        drop_rate: float, memory_efficient: bool = False,
    ) -> None:
        super().__init__()
        for i in range(num_layers):
            incoming = num_input_features + i * growth_rate
            layer = _DenseLayer(incoming, growth_rate, bn_size, drop_rate, memory_efficient)
            self.add_module(f"denselayer{i + 1}", layer)

    def forward(self, init_features: Tensor) -> Tensor:
        features = [init_features]
        for layer in self.values():
            features.append(layer(features))
        return cat(features, 1)


class _Transition(nn.Sequential):
    def __init__(self, num_input_features: int, num_output_features: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(num_input_features)
        self.relu = nn.ReLU(inplace=True)
        self.conv = nn.Conv2d(num_input_features, num_output_features, 1, 1, bias=False)
        self.pool = nn.AvgPool2d(kernel_size=2, stride=2)


class DenseNet(nn.Module):
    """Images [N, 3, H, W], H and W at least 29, to logits [N, num_classes]."""

    def __init__(
        self, growth_rate: int = 32, block_config: Sequence[int] = (6, 12, 24, 16),
        num_init_features: int = 64, bn_size: int = 4, drop_rate: float = 0,
        num_classes: int = 1000, memory_efficient: bool = False,
    ) -> None:
        super().__init__()
        self.features = nn.Sequential(OrderedDict(
            conv0=nn.Conv2d(3, num_init_features, 7, stride=2, padding=3, bias=False),
            norm0=nn.BatchNorm2d(num_init_features), relu0=nn.ReLU(inplace=True),
            pool0=nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
        ))
        width = num_init_features
        for i, layers in enumerate(block_config):
            block = _DenseBlock(layers, width, bn_size, growth_rate, drop_rate, memory_efficient)
            self.features.add_module(f"denseblock{i + 1}", block)
            width += layers * growth_rate
            if i != len(block_config) - 1:
                self.features.add_module(f"transition{i + 1}", _Transition(width, width // 2))
                width //= 2
        self.features.add_module("norm5", nn.BatchNorm2d(width))
        self.classifier = nn.Linear(width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
            elif isinstance(module, nn.BatchNorm2d):
                nn.init.constant_(module.weight, 1)
                nn.init.constant_(module.bias, 0)
            elif isinstance(module, nn.Linear):
                nn.init.constant_(module.bias, 0)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        out = F.adaptive_avg_pool2d(F.relu(self.features(x), inplace=True), (1, 1))
        return self.classifier(flatten(out, 1))

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """As Module's; the published weights' older names ("norm.1") are understood, too."""
        return super().load_state_dict(_modern(state_dict), *args, **kwargs)


def _modern(state_dict: Any) -> Any:
    if not any(_OLD_NAME.match(key) for key in state_dict):
        return state_dict
    renamed = OrderedDict((_OLD_NAME.sub(r"\1\2", key), v) for key, v in state_dict.items())
    return renamed


_KINDS = {
    "121": (32, (6, 12, 24, 16), 64), "161": (48, (6, 12, 36, 24), 96),
    "169": (32, (6, 12, 32, 32), 64), "201": (32, (6, 12, 48, 32), 64),
}
BUILDERS = {
    f"densenet{name}": builder(
        f"densenet{name}", f"DenseNet{name}", functools.partial(DenseNet, *sizes)
    )
    for name, sizes in _KINDS.items()
}
