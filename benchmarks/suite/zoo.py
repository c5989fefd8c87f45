"""Models that the other benchmarks do not have, as ordinary PyTorch code on a package's space."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any


def mlp(s: SimpleNamespace, widths: list[int]) -> Any:
    layers: list[Any] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [s.nn.Linear(inputs, outputs), s.nn.ReLU()]
    return s.nn.Sequential(*layers[:-1])


def lstm(s: SimpleNamespace, inputs: int, width: int, classes: int) -> Any:
    class Net(s.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = s.nn.LSTM(inputs, width, 2, batch_first=True)
            self.head = s.nn.Linear(width, classes)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(x)[0][:, -1])

    return Net()


def encoder(s: SimpleNamespace, width: int, heads: int, layers: int) -> Any:
    layer = s.nn.TransformerEncoderLayer(
        width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    return s.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def resnet18(s: SimpleNamespace) -> Any:
    """For images of 224 x 224."""
    nn, F = s.nn, s.F

    class Block(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.down: Any = None
            if stride != 1 or inputs != outputs:
                self.down = nn.Sequential(
                    nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
                )

        def forward(self, x: Any) -> Any:
            y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            return F.relu(y + (x if self.down is None else self.down(x)))

    sizes = ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))
    blocks = [b for i, o, t in sizes for b in (Block(i, o, t), Block(o, o, 1))]
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(512, 1000),
    )


def mobilenet_v2(s: SimpleNamespace) -> Any:
    nn = s.nn

    def unit(inputs: int, outputs: int, window: int = 1, stride: int = 1, groups: int = 1) -> Any:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, window, stride, window // 2, groups=groups, bias=False),
            nn.BatchNorm2d(outputs), nn.ReLU6(),
        )

    class Inverted(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
            super().__init__()
            inner = inputs * expand
            self.adds = stride == 1 and inputs == outputs
            self.body = nn.Sequential(
                *([unit(inputs, inner)] if expand != 1 else []),
                unit(inner, inner, 3, stride, inner),
                nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
            )

        def forward(self, x: Any) -> Any:
            return x + self.body(x) if self.adds else self.body(x)

    layers, inputs = [unit(3, 32, 3, 2)], 32
    for expand, outputs, count, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
        (6, 160, 3, 2), (6, 320, 1, 1),
    ):
        for at in range(count):
            layers.append(Inverted(inputs, outputs, stride if at == 0 else 1, expand))
            inputs = outputs
    net = nn.Sequential(
        *layers, unit(320, 1280), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)
    )
    for module in net.modules():  # with the default, nothing of the image would reach the end
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
    return net


def decoder_step(s: SimpleNamespace, width: int, heads: int, layers: int, vocabulary: int) -> Any:
    """One token after `length` others, whose keys and values are given: logits, new keys and
    values. past: [layers, 2, batch, heads, length, width / heads]."""
    nn, F = s.nn, s.F

    class Layer(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any, past: Any) -> Any:
            q, k, v = (
                part.view(x.shape[0], 1, heads, width // heads).transpose(1, 2)
                for part in self.qkv(self.ln1(x)).split(width, 2)
            )
            k, v = s.torch.cat([past[0], k], 2), s.torch.cat([past[1], v], 2)
            y = F.scaled_dot_product_attention(q, k, v)
            x = x + self.proj(y.transpose(1, 2).reshape(x.shape[0], 1, width))
            return x + self.down(F.gelu(self.up(self.ln2(x)))), k, v

    class Decoder(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(vocabulary, width)
            self.layers = nn.ModuleList([Layer() for _ in range(layers)])
            self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

        def forward(self, token: Any, past: Any) -> Any:
            x = self.words(token)
            kept = []
            for number, layer in enumerate(self.layers):
                x, k, v = layer(x, past[number])
                kept += [k, v]
            return self.head(self.ln(x)), *kept

    return Decoder()
