"""The four training steps that graphc is measured on, written once for PyTorch and graphc.

`load(namespace)` gives the classes built on that namespace: the code is ordinary PyTorch code.
"""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import numpy as np


def load(package: str) -> SimpleNamespace:
    """The four models on `torch` or `graphc`."""
    torch: Any = importlib.import_module(package)
    nn: Any = importlib.import_module(f"{package}.nn")
    F: Any = importlib.import_module(f"{package}.nn.functional")

    class MLP(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1 = nn.Linear(784, 256)
            self.fc2 = nn.Linear(256, 10)

        def forward(self, x: Any) -> Any:
            return self.fc2(F.relu(self.fc1(x)))

    class LeNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(3, 6, 5)
            self.pool = nn.MaxPool2d(2, 2)
            self.conv2 = nn.Conv2d(6, 16, 5)
            self.fc1 = nn.Linear(16 * 5 * 5, 120)
            self.fc2 = nn.Linear(120, 84)
            self.fc3 = nn.Linear(84, 10)

        def forward(self, x: Any) -> Any:
            x = self.pool(F.relu(self.conv1(x)))
            x = self.pool(F.relu(self.conv2(x)))
            x = x.view(-1, 16 * 5 * 5)
            x = F.relu(self.fc1(x))
            x = F.relu(self.fc2(x))
            return self.fc3(x)

    class SelfAttention(nn.Module):
        def __init__(self, dim: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.qkv = nn.Linear(dim, 3 * dim)
            self.proj = nn.Linear(dim, dim)

        def forward(self, x: Any) -> Any:
            B, T, C = x.shape
            q, k, v = self.qkv(x).split(C, dim=2)
            q = q.view(B, T, self.heads, C // self.heads).transpose(1, 2)
            k = k.view(B, T, self.heads, C // self.heads).transpose(1, 2)
            v = v.view(B, T, self.heads, C // self.heads).transpose(1, 2)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            y = y.transpose(1, 2).contiguous().view(B, T, C)
            return self.proj(y)

    class Block(nn.Module):
        def __init__(self, dim: int, heads: int) -> None:
            super().__init__()
            self.ln1 = nn.LayerNorm(dim)
            self.attn = SelfAttention(dim, heads)
            self.ln2 = nn.LayerNorm(dim)
            self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

        def forward(self, x: Any) -> Any:
            x = x + self.attn(self.ln1(x))
            return x + self.mlp(self.ln2(x))

    class GPT(nn.Module):
        def __init__(
            self, vocab: int = 65, context: int = 64, dim: int = 128, heads: int = 4,
            layers: int = 4,
        ) -> None:
            super().__init__()
            self.tok = nn.Embedding(vocab, dim)
            self.pos = nn.Embedding(context, dim)
            self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(layers)])
            self.ln = nn.LayerNorm(dim)
            self.head = nn.Linear(dim, vocab, bias=False)

        def forward(self, idx: Any) -> Any:
            _, T = idx.shape
            x = self.tok(idx) + self.pos(torch.arange(T))
            for block in self.blocks:
                x = block(x)
            return self.head(self.ln(x)).transpose(1, 2)

    class BasicBlock(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.shortcut = nn.Sequential()
            if stride != 1 or inputs != outputs:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
                )

        def forward(self, x: Any) -> Any:
            out = F.relu(self.bn1(self.conv1(x)))
            out = self.bn2(self.conv2(out))
            out += self.shortcut(x)
            return F.relu(out)

    class ResNet18(nn.Module):
        def __init__(self, classes: int = 10) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(64)
            blocks: list[Any] = []
            width = 64
            for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
                blocks += [BasicBlock(width, outputs, stride), BasicBlock(outputs, outputs)]
                width = outputs
            self.layers = nn.Sequential(*blocks)
            self.linear = nn.Linear(512, classes)

        def forward(self, x: Any) -> Any:
            out = F.relu(self.bn1(self.conv1(x)))
            out = self.layers(out)
            out = F.avg_pool2d(out, 4)
            return self.linear(out.view(out.size(0), -1))

    return SimpleNamespace(
        torch=torch, nn=nn, F=F, MLP=MLP, LeNet=LeNet, GPT=GPT, ResNet18=ResNet18
    )


NAMES = ("mlp", "lenet", "gpt", "resnet18")


def batch(name: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """One batch of inputs and targets (float32 images or int64 tokens; int64 classes)."""
    rng = np.random.default_rng(seed)
    if name == "mlp":
        return rng.standard_normal((64, 784), np.float32), rng.integers(0, 10, 64)
    if name == "lenet":
        return rng.standard_normal((64, 3, 32, 32), np.float32), rng.integers(0, 10, 64)
    if name == "gpt":
        tokens = rng.integers(0, 65, (12, 65))
        return tokens[:, :-1].copy(), tokens[:, 1:].copy()
    return rng.standard_normal((16, 3, 32, 32), np.float32), rng.integers(0, 10, 16)


def make(space: SimpleNamespace, name: str) -> tuple[Any, Any]:
    """The model and its optimizer."""
    model = {
        "mlp": space.MLP, "lenet": space.LeNet, "gpt": space.GPT, "resnet18": space.ResNet18,
    }[name]()
    optim = importlib.import_module(f"{space.torch.__name__}.optim")
    optimizer = {
        "mlp": lambda p: optim.SGD(p, lr=0.1),
        "lenet": lambda p: optim.Adam(p, lr=1e-3),
        "gpt": lambda p: optim.AdamW(p, lr=1e-3),
        "resnet18": lambda p: optim.SGD(p, lr=0.01, momentum=0.9),
    }[name](model.parameters())
    return model, optimizer


def training_step(space: SimpleNamespace, model: Any, optimizer: Any) -> Any:
    """The whole step as a user writes it."""

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = space.F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step
