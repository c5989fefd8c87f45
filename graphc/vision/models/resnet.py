"""ResNet, ResNeXt and wide ResNet (He et al. 2015, arxiv.org/abs/1512.03385)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from graphc import Tensor, flatten, nn

from .weights import builder

Norm = Callable[[int], nn.Module]


def conv3x3(
    in_planes: int, out_planes: int, stride: int = 1, groups: int = 1, dilation: int = 1
) -> nn.Conv2d:
    """3x3 convolution that keeps the size at stride 1."""
    return nn.Conv2d(
        in_planes, out_planes, kernel_size=3, stride=stride, padding=dilation, groups=groups,
        bias=False, dilation=dilation,
    )


def conv1x1(in_planes: int, out_planes: int, stride: int = 1) -> nn.Conv2d:
    """1x1 convolution."""
    return nn.Conv2d(in_planes, out_planes, kernel_size=1, stride=stride, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and the shortcut."""

    expansion = 1

    def __init__(
        self, inplanes: int, planes: int, stride: int = 1, downsample: nn.Module | None = None,
        groups: int = 1, base_width: int = 64, dilation: int = 1, norm_layer: Norm | None = None,
    ) -> None:
        super().__init__()
        if groups != 1 or base_width != 64 or dilation != 1:
            raise ValueError(
                "BasicBlock has groups=1, base_width=64, dilation=1; use Bottleneck for "
                f"groups={groups}, base_width={base_width}, dilation={dilation}"
            )
        norm = norm_layer or nn.BatchNorm2d
        self.conv1 = conv3x3(inplanes, planes, stride)
        self.bn1 = norm(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = norm(planes)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """[N, inplanes, H, W] to [N, planes, H / stride, W / stride]."""
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(out + shortcut)


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride), 1x1 to four times the planes, and the shortcut."""

    expansion = 4

    def __init__(
        self, inplanes: int, planes: int, stride: int = 1, downsample: nn.Module | None = None,
        groups: int = 1, base_width: int = 64, dilation: int = 1, norm_layer: Norm | None = None,
    ) -> None:
        super().__init__()
        norm = norm_layer or nn.BatchNorm2d
        width = int(planes * (base_width / 64.0)) * groups
        self.conv1 = conv1x1(inplanes, width)
        self.bn1 = norm(width)
        self.conv2 = conv3x3(width, width, stride, groups, dilation)
        self.bn2 = norm(width)
        self.conv3 = conv1x1(width, planes * self.expansion)
        self.bn3 = norm(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """[N, inplanes, H, W] to [N, 4 planes, H / stride, W / stride]."""
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        return self.relu(self.bn3(self.conv3(out)) + shortcut)


class ResNet(nn.Module):
    """Images [N, 3, H, W] to logits [N, num_classes]."""

    def __init__(
        self, block: type[BasicBlock | Bottleneck], layers: Sequence[int],
        num_classes: int = 1000, zero_init_residual: bool = False, groups: int = 1,
        width_per_group: int = 64,
        replace_stride_with_dilation: Sequence[bool] | None = None,
        norm_layer: Norm | None = None,
    ) -> None:
        super().__init__()
        dilate = (False,) * 3 if replace_stride_with_dilation is None else (
            tuple(replace_stride_with_dilation)
        )
        if len(dilate) != 3:
            raise ValueError(f"replace_stride_with_dilation should have 3 elements, got {dilate}")
        self._norm_layer: Norm = norm_layer or nn.BatchNorm2d
        self.inplanes, self.dilation = 64, 1
        self.groups, self.base_width = groups, width_per_group
        self.conv1 = nn.Conv2d(3, 64, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = self._norm_layer(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = self._make_layer(block, 64, layers[0])
        self.layer2 = self._make_layer(block, 128, layers[1], 2, dilate[0])
        self.layer3 = self._make_layer(block, 256, layers[2], 2, dilate[1])
        self.layer4 = self._make_layer(block, 512, layers[3], 2, dilate[2])
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        self._initialise(zero_init_residual)

    def _initialise(self, zero_init_residual: bool) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.constant_(module.weight, 1)
                nn.init.constant_(module.bias, 0)
        if zero_init_residual:
            for module in self.modules():
                if isinstance(module, (BasicBlock, Bottleneck)):
                    last: Any = module.bn2 if isinstance(module, BasicBlock) else module.bn3
                    nn.init.constant_(last.weight, 0)

    def _make_layer(
        self, block: type[BasicBlock | Bottleneck], planes: int, blocks: int, stride: int = 1,
        dilate: bool = False,
    ) -> nn.Sequential:
        norm, before = self._norm_layer, self.dilation
        if dilate:
            self.dilation, stride = self.dilation * stride, 1
        outgoing = planes * block.expansion
        downsample = None
        if stride != 1 or self.inplanes != outgoing:
            downsample = nn.Sequential(conv1x1(self.inplanes, outgoing, stride), norm(outgoing))
        shared = (self.groups, self.base_width)
        layers = [block(self.inplanes, planes, stride, downsample, *shared, before, norm)]
        self.inplanes = outgoing
        for _ in range(1, blocks):
            layers.append(block(outgoing, planes, 1, None, *shared, self.dilation, norm))
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(flatten(self.avgpool(x), 1))


_KINDS: dict[str, tuple[str, type[BasicBlock | Bottleneck], tuple[int, ...], dict[str, Any]]] = {
    "resnet18": ("ResNet18", BasicBlock, (2, 2, 2, 2), {}),
    "resnet34": ("ResNet34", BasicBlock, (3, 4, 6, 3), {}),
    "resnet50": ("ResNet50", Bottleneck, (3, 4, 6, 3), {}),
    "resnet101": ("ResNet101", Bottleneck, (3, 4, 23, 3), {}),
    "resnet152": ("ResNet152", Bottleneck, (3, 8, 36, 3), {}),
    "resnext50_32x4d": (
        "ResNeXt50_32X4D", Bottleneck, (3, 4, 6, 3), {"groups": 32, "width_per_group": 4}
    ),
    "resnext101_32x8d": (
        "ResNeXt101_32X8D", Bottleneck, (3, 4, 23, 3), {"groups": 32, "width_per_group": 8}
    ),
    "wide_resnet50_2": ("Wide_ResNet50_2", Bottleneck, (3, 4, 6, 3), {"width_per_group": 128}),
    "wide_resnet101_2": ("Wide_ResNet101_2", Bottleneck, (3, 4, 23, 3), {"width_per_group": 128}),
}
BUILDERS = {
    name: builder(name, family, functools.partial(ResNet, block, layers, **options))
    for name, (family, block, layers, options) in _KINDS.items()
}
