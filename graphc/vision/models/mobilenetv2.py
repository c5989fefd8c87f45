"""MobileNetV2 (Sandler et al. 2018, arxiv.org/abs/1801.04381)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphc import Tensor, flatten, nn

from .weights import builder

Norm = Callable[[int], nn.Module]
# expansion t, channels c, repeats n, stride s: table 2 of the paper
_SETTING = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def make_divisible(value: float, divisor: int = 8) -> int:
    """The nearest multiple of `divisor`, at least it, and not below 90% of the value."""
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * value else rounded


class Conv2dNormActivation(nn.Sequential):
    """Convolution that keeps the size, norm, ReLU6."""

    def __init__(
        self, in_planes: int, out_planes: int, kernel_size: int = 3, stride: int = 1,
        groups: int = 1, norm_layer: Norm = nn.BatchNorm2d,
    ) -> None:
        padding = (kernel_size - 1) // 2
        super().__init__(
            nn.Conv2d(
                in_planes, out_planes, kernel_size, stride, padding, groups=groups, bias=False
            ),
            norm_layer(out_planes),
            nn.ReLU6(inplace=True),
        )
        self.out_channels = out_planes


class InvertedResidual(nn.Module):
    """Widen by 1x1, 3x3 per channel, narrow by 1x1; a shortcut where the shapes agree."""

    def __init__(
        self, inp: int, oup: int, stride: int, expand_ratio: int, norm_layer: Norm | None = None
    ) -> None:
        super().__init__()
        if stride not in (1, 2):
            raise ValueError(f"stride should be 1 or 2 instead of {stride}")
        norm = norm_layer or nn.BatchNorm2d
        hidden = round(inp * expand_ratio)
        self.stride = stride
        self.use_res_connect = stride == 1 and inp == oup
        layers: list[nn.Module] = []
        if expand_ratio != 1:
            layers.append(Conv2dNormActivation(inp, hidden, 1, norm_layer=norm))
        layers += [
            Conv2dNormActivation(hidden, hidden, 3, stride, hidden, norm),
            nn.Conv2d(hidden, oup, 1, 1, 0, bias=False),
            norm(oup),
        ]
        self.conv = nn.Sequential(*layers)
        self.out_channels = oup

    def forward(self, x: Tensor) -> Tensor:
        """[N, inp, H, W] to [N, oup, H / stride, W / stride]."""
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    """Images [N, 3, H, W] to logits [N, num_classes]."""

    def __init__(
        self, num_classes: int = 1000, width_mult: float = 1.0,
        inverted_residual_setting: Sequence[Sequence[int]] | None = None, round_nearest: int = 8,
        block: Callable[..., nn.Module] | None = None, norm_layer: Norm | None = None,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        block, norm = block or InvertedResidual, norm_layer or nn.BatchNorm2d
        setting = inverted_residual_setting or _SETTING
        if any(len(row) != 4 for row in setting):
            raise ValueError(
                f"inverted_residual_setting should be non-empty rows of 4, got {setting}"
            )
        channels = make_divisible(32 * width_mult, round_nearest)
        features: list[nn.Module] = [Conv2dNormActivation(3, channels, stride=2, norm_layer=norm)]
        for expansion, planes, repeats, stride in setting:
            outgoing = make_divisible(planes * width_mult, round_nearest)
            for i in range(repeats):
                step = stride if i == 0 else 1
                features.append(
                    block(channels, outgoing, step, expand_ratio=expansion, norm_layer=norm)
                )
                channels = outgoing
        self.last_channel = make_divisible(1280 * max(1.0, width_mult), round_nearest)
        features.append(Conv2dNormActivation(channels, self.last_channel, 1, norm_layer=norm))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(
            nn.Dropout(p=dropout), nn.Linear(self.last_channel, num_classes)
        )
        for module in self.modules():
            _initialise(module)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = nn.functional.adaptive_avg_pool2d(self.features(x), (1, 1))
        return self.classifier(flatten(x, 1))


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out")
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, (nn.BatchNorm2d, nn.GroupNorm)):
        nn.init.ones_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, 0, 0.01)
        nn.init.zeros_(module.bias)


BUILDERS = {"mobilenet_v2": builder("mobilenet_v2", "MobileNet_V2", MobileNetV2)}
