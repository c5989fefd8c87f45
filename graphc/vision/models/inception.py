"""Inception v3 (Szegedy et al. 2015, arxiv.org/abs/1512.00567)."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from graphc import Tensor, cat, flatten, nn
from graphc.nn import functional as F

from .weights import builder

InceptionOutputs = namedtuple("InceptionOutputs", ["logits", "aux_logits"])


class BasicConv2d(nn.Module):
    """Convolution, batch norm, ReLU."""

    def __init__(self, in_channels: int, out_channels: int, **kwargs: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, bias=False, **kwargs)
        self.bn = nn.BatchNorm2d(out_channels, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        """[N, in_channels, H, W] to [N, out_channels, H', W']."""
        return F.relu(self.bn(self.conv(x)), inplace=True)


def _row(incoming: int, outgoing: int, size: int = 7) -> BasicConv2d:
    return BasicConv2d(incoming, outgoing, kernel_size=(1, size), padding=(0, size // 2))


def _column(incoming: int, outgoing: int, size: int = 7) -> BasicConv2d:
    return BasicConv2d(incoming, outgoing, kernel_size=(size, 1), padding=(size // 2, 0))


def _average(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, kernel_size=3, stride=1, padding=1)


class InceptionA(nn.Module):
    """1x1, 5x5, two 3x3 and pooling side by side."""

    def __init__(self, in_channels: int, pool_features: int) -> None:
        super().__init__()
        self.branch1x1 = BasicConv2d(in_channels, 64, kernel_size=1)
        self.branch5x5_1 = BasicConv2d(in_channels, 48, kernel_size=1)
        self.branch5x5_2 = BasicConv2d(48, 64, kernel_size=5, padding=2)
        self.branch3x3dbl_1 = BasicConv2d(in_channels, 64, kernel_size=1)
        self.branch3x3dbl_2 = BasicConv2d(64, 96, kernel_size=3, padding=1)
        self.branch3x3dbl_3 = BasicConv2d(96, 96, kernel_size=3, padding=1)
        self.branch_pool = BasicConv2d(in_channels, pool_features, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] to [N, 224 + pool_features, H, W]."""
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        five = self.branch5x5_2(self.branch5x5_1(x))
        return cat([self.branch1x1(x), five, double, self.branch_pool(_average(x))], 1)


class InceptionB(nn.Module):
    """35x35 to 17x17."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.branch3x3 = BasicConv2d(in_channels, 384, kernel_size=3, stride=2)
        self.branch3x3dbl_1 = BasicConv2d(in_channels, 64, kernel_size=1)
        self.branch3x3dbl_2 = BasicConv2d(64, 96, kernel_size=3, padding=1)
        self.branch3x3dbl_3 = BasicConv2d(96, 96, kernel_size=3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] to [N, 480 + C, (H - 1) // 2, (W - 1) // 2]."""
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return cat([self.branch3x3(x), double, F.max_pool2d(x, kernel_size=3, stride=2)], 1)


class InceptionC(nn.Module):
    """7x7 convolutions as rows and columns."""

    def __init__(self, in_channels: int, channels_7x7: int) -> None:
        super().__init__()
        c7 = channels_7x7
        self.branch1x1 = BasicConv2d(in_channels, 192, kernel_size=1)
        self.branch7x7_1 = BasicConv2d(in_channels, c7, kernel_size=1)
        self.branch7x7_2 = _row(c7, c7)
        self.branch7x7_3 = _column(c7, 192)
        self.branch7x7dbl_1 = BasicConv2d(in_channels, c7, kernel_size=1)
        self.branch7x7dbl_2 = _column(c7, c7)
        self.branch7x7dbl_3 = _row(c7, c7)
        self.branch7x7dbl_4 = _column(c7, c7)
        self.branch7x7dbl_5 = _row(c7, 192)
        self.branch_pool = BasicConv2d(in_channels, 192, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] to [N, 768, H, W]."""
        single = self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x)))
        double = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(x)))
        double = self.branch7x7dbl_5(self.branch7x7dbl_4(double))
        return cat([self.branch1x1(x), single, double, self.branch_pool(_average(x))], 1)


class InceptionD(nn.Module):
    """17x17 to 8x8."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.branch3x3_1 = BasicConv2d(in_channels, 192, kernel_size=1)
        self.branch3x3_2 = BasicConv2d(192, 320, kernel_size=3, stride=2)
        self.branch7x7x3_1 = BasicConv2d(in_channels, 192, kernel_size=1)
        self.branch7x7x3_2 = _row(192, 192)
        self.branch7x7x3_3 = _column(192, 192)
        self.branch7x7x3_4 = BasicConv2d(192, 192, kernel_size=3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] to [N, 512 + C, (H - 1) // 2, (W - 1) // 2]."""
        seven = self.branch7x7x3_3(self.branch7x7x3_2(self.branch7x7x3_1(x)))
        three = self.branch3x3_2(self.branch3x3_1(x))
        pooled = F.max_pool2d(x, kernel_size=3, stride=2)
        return cat([three, self.branch7x7x3_4(seven), pooled], 1)


class InceptionE(nn.Module):
    """3x3 split into a row and a column side by side."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.branch1x1 = BasicConv2d(in_channels, 320, kernel_size=1)
        self.branch3x3_1 = BasicConv2d(in_channels, 384, kernel_size=1)
        self.branch3x3_2a = _row(384, 384, 3)
        self.branch3x3_2b = _column(384, 384, 3)
        self.branch3x3dbl_1 = BasicConv2d(in_channels, 448, kernel_size=1)
        self.branch3x3dbl_2 = BasicConv2d(448, 384, kernel_size=3, padding=1)
        self.branch3x3dbl_3a = _row(384, 384, 3)
        self.branch3x3dbl_3b = _column(384, 384, 3)
        self.branch_pool = BasicConv2d(in_channels, 192, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] to [N, 2048, H, W]."""
        single = self.branch3x3_1(x)
        single = cat([self.branch3x3_2a(single), self.branch3x3_2b(single)], 1)
        double = self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        double = cat([self.branch3x3dbl_3a(double), self.branch3x3dbl_3b(double)], 1)
        return cat([self.branch1x1(x), single, double, self.branch_pool(_average(x))], 1)


class InceptionAux(nn.Module):
    """The second classifier, from the middle of the network, while training."""

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        self.conv0 = BasicConv2d(in_channels, 128, kernel_size=1)
        self.conv1 = BasicConv2d(128, 768, kernel_size=5)
        self.conv1.stddev = 0.01
        self.fc = nn.Linear(768, num_classes)
        self.fc.stddev = 0.001

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, 17, 17] to logits [N, num_classes]."""
        x = self.conv1(self.conv0(F.avg_pool2d(x, kernel_size=5, stride=3)))
        return self.fc(flatten(F.adaptive_avg_pool2d(x, (1, 1)), 1))


class Inception3(nn.Module):
    """Images [N, 3, H, W], H and W at least 75 (299 in the paper), to logits [N, num_classes];
    while training with `aux_logits` to InceptionOutputs(logits, aux_logits)."""

    def __init__(
        self, num_classes: int = 1000, aux_logits: bool = True, transform_input: bool = False,
        inception_blocks: Any = None, init_weights: bool | None = None, dropout: float = 0.5,
    ) -> None:
        super().__init__()
        blocks = inception_blocks or [
            BasicConv2d, InceptionA, InceptionB, InceptionC, InceptionD, InceptionE, InceptionAux
        ]
        if len(blocks) != 7:
            raise ValueError(f"length of inception_blocks should be 7 instead of {len(blocks)}")
        conv, block_a, block_b, block_c, block_d, block_e, auxiliary = blocks
        self.aux_logits, self.transform_input = aux_logits, transform_input
        self.Conv2d_1a_3x3 = conv(3, 32, kernel_size=3, stride=2)
        self.Conv2d_2a_3x3 = conv(32, 32, kernel_size=3)
        self.Conv2d_2b_3x3 = conv(32, 64, kernel_size=3, padding=1)
        self.maxpool1 = nn.MaxPool2d(kernel_size=3, stride=2)
        self.Conv2d_3b_1x1 = conv(64, 80, kernel_size=1)
        self.Conv2d_4a_3x3 = conv(80, 192, kernel_size=3)
        self.maxpool2 = nn.MaxPool2d(kernel_size=3, stride=2)
        self.Mixed_5b = block_a(192, pool_features=32)
        self.Mixed_5c = block_a(256, pool_features=64)
        self.Mixed_5d = block_a(288, pool_features=64)
        self.Mixed_6a = block_b(288)
        self.Mixed_6b = block_c(768, channels_7x7=128)
        self.Mixed_6c = block_c(768, channels_7x7=160)
        self.Mixed_6d = block_c(768, channels_7x7=160)
        self.Mixed_6e = block_c(768, channels_7x7=192)
        self.AuxLogits = auxiliary(768, num_classes) if aux_logits else None
        self.Mixed_7a = block_d(768)
        self.Mixed_7b = block_e(1280)
        self.Mixed_7c = block_e(2048)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.dropout = nn.Dropout(p=dropout)
        self.fc = nn.Linear(2048, num_classes)
        if init_weights is None or init_weights:
            self._initialise()

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                std = float(getattr(module, "stddev", 0.1))
                nn.init.trunc_normal_(module.weight, mean=0.0, std=std, a=-2, b=2)
            elif isinstance(module, nn.BatchNorm2d):
                nn.init.constant_(module.weight, 1)
                nn.init.constant_(module.bias, 0)

    def _prepared(self, x: Tensor) -> Tensor:
        """From the mean and deviation of ImageNet to those of the original weights (0.5, 0.5)."""
        means, deviations = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
        channels = [
            x[:, i : i + 1] * (deviation / 0.5) + (mean - 0.5) / 0.5
            for i, (mean, deviation) in enumerate(zip(means, deviations, strict=True))
        ]
        return cat(channels, 1)

    def forward(self, x: Tensor) -> Any:
        """Logits; with the auxiliary ones while training."""
        if self.transform_input:
            x = self._prepared(x)
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(self.maxpool1(x)))
        x = self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(self.maxpool2(x))))
        x = self.Mixed_6e(self.Mixed_6d(self.Mixed_6c(self.Mixed_6b(self.Mixed_6a(x)))))
        aux = self.AuxLogits(x) if self.AuxLogits is not None and self.training else None
        x = self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x)))
        x = self.fc(flatten(self.dropout(self.avgpool(x)), 1))
        return InceptionOutputs(x, aux) if self.training and self.aux_logits else x


def _published(options: dict[str, Any]) -> None:
    """Weights come with the auxiliary classifier and expect their own mean and deviation."""
    if not options.get("aux_logits", True):
        raise ValueError(
            "inception_v3: the published weights hold the auxiliary classifier. Cure: load with "
            "aux_logits=True, then set model.aux_logits = False and model.AuxLogits = None"
        )
    options |= {"transform_input": options.get("transform_input", True), "init_weights": False}


BUILDERS = {"inception_v3": builder("inception_v3", "Inception_V3", Inception3, _published)}
