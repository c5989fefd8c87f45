"""The three large workloads that graphc is measured on on a GPU, written once for PyTorch and
graphc: a training step of GPT-2 124M and of ResNet-50, and BERT-base answering.

`load(package)` gives the classes on that package; `WORKS` names what is done with them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np


def load(package: str) -> SimpleNamespace:
    """The models on `torch` or `graphc`."""
    torch: Any = importlib.import_module(package)
    nn: Any = importlib.import_module(f"{package}.nn")
    F: Any = importlib.import_module(f"{package}.nn.functional")

    class Attention(nn.Module):
        def __init__(self, dim: int, heads: int, causal: bool) -> None:
            super().__init__()
            self.heads, self.causal = heads, causal
            self.qkv = nn.Linear(dim, 3 * dim)
            self.proj = nn.Linear(dim, dim)

        def forward(self, x: Any) -> Any:
            B, T, C = x.shape
            q, k, v = (
                part.view(B, T, self.heads, C // self.heads).transpose(1, 2)
                for part in self.qkv(x).split(C, dim=2)
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
            return self.proj(y.transpose(1, 2).contiguous().view(B, T, C))

    class Block(nn.Module):
        """GPT-2's (norms first), or BERT's."""

        def __init__(self, dim: int, heads: int, gpt: bool) -> None:
            super().__init__()
            self.first = gpt
            self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.attn = Attention(dim, heads, gpt)
            self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
            self.approximate = "tanh" if gpt else "none"

        def mlp(self, x: Any) -> Any:
            return self.down(F.gelu(self.up(x), approximate=self.approximate))

        def forward(self, x: Any) -> Any:
            if self.first:
                x = x + self.attn(self.ln1(x))
                return x + self.mlp(self.ln2(x))
            x = self.ln1(x + self.attn(x))
            return self.ln2(x + self.mlp(x))

    class GPT2(nn.Module):
        def __init__(
            self, vocab: int = 50257, context: int = 1024, dim: int = 768, heads: int = 12,
            layers: int = 12,
        ) -> None:
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocab, dim), nn.Embedding(context, dim)
            self.blocks = nn.ModuleList(Block(dim, heads, True) for _ in range(layers))
            self.ln = nn.LayerNorm(dim)
            self.head = nn.Linear(dim, vocab, bias=False)
            self.head.weight = self.wte.weight
            for p in self.parameters():
                if p.dim() == 2:
                    nn.init.normal_(p, std=0.02)

        def forward(self, tokens: Any, targets: Any) -> Any:
            x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.ln(x))
            return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))

    class Bert(nn.Module):
        def __init__(
            self, vocab: int = 30522, context: int = 512, dim: int = 768, heads: int = 12,
            layers: int = 12,
        ) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(vocab, dim), nn.Embedding(context, dim)
            self.ln = nn.LayerNorm(dim)
            self.blocks = nn.ModuleList(Block(dim, heads, False) for _ in range(layers))
            self.pooler = nn.Linear(dim, dim)

        def forward(self, tokens: Any) -> Any:
            places = torch.arange(tokens.shape[1], device=tokens.device)
            x = self.ln(self.words(tokens) + self.places(places))
            for block in self.blocks:
                x = block(x)
            return torch.tanh(self.pooler(x[:, 0]))

    class Bottleneck(nn.Module):
        def __init__(self, inputs: int, width: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
            self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
            self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
            self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
            self.bn3 = nn.BatchNorm2d(4 * width)
            self.down = None
            if stride != 1 or inputs != 4 * width:
                self.down = nn.Sequential(
                    nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
                )

        def forward(self, x: Any) -> Any:
            y = F.relu(self.bn1(self.conv1(x)))
            y = F.relu(self.bn2(self.conv2(y)))
            y = self.bn3(self.conv3(y))
            return F.relu(y + (x if self.down is None else self.down(x)))

    class ResNet50(nn.Module):
        def __init__(
            self, classes: int = 1000, width: int = 64, layers: tuple[int, ...] = (3, 4, 6, 3)
        ) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, width, 7, 2, 3, bias=False)
            self.bn = nn.BatchNorm2d(width)
            self.pool = nn.MaxPool2d(3, 2, 1)
            blocks: list[Any] = []
            inputs = width
            for number, count in enumerate(layers):
                for at in range(count):
                    stride = 2 if number and not at else 1
                    blocks.append(Bottleneck(inputs, width << number, stride))
                    inputs = 4 * (width << number)
            self.blocks = nn.Sequential(*blocks)
            self.fc = nn.Linear(inputs, classes)

        def forward(self, x: Any, targets: Any) -> Any:
            x = self.blocks(self.pool(F.relu(self.bn(self.conv(x)))))
            return F.cross_entropy(self.fc(x.mean((2, 3))), targets)

    return SimpleNamespace(torch=torch, nn=nn, F=F, GPT2=GPT2, Bert=Bert, ResNet50=ResNet50)


@dataclass(frozen=True)
class Work:
    """`make(space, device, small)`: a function of the inputs, which is to be compiled, and its
    inputs; what trains returns the loss. `flops`: of one call at full size, products alone."""

    name: str
    make: Callable[[SimpleNamespace, Any, bool], tuple[Callable[..., Any], tuple[Any, ...]]]
    flops: float


def _training(space: SimpleNamespace, model: Any, optimizer: Any, device: Any) -> Any:
    """A step under bf16 autocast; the parameters are f32."""
    def step(*inputs: Any) -> Any:
        optimizer.zero_grad()
        with space.torch.autocast(device_type=space.torch.device(device).type,
                                  dtype=space.torch.bfloat16):
            loss = model(*inputs)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _gpt2(space: SimpleNamespace, device: Any, small: bool) -> Any:
    sizes = {"vocab": 211, "context": 32, "dim": 64, "heads": 2, "layers": 2} if small else {}
    model = space.GPT2(**sizes).to(device)
    optimizer = space.torch.optim.AdamW(model.parameters(), lr=6e-4, weight_decay=0.1)
    shape = (2, 33) if small else (8, 1025)
    tokens = np.random.default_rng(0).integers(0, 211 if small else 50257, shape)
    inputs = (tokens[:, :-1].copy(), tokens[:, 1:].copy())
    return _training(space, model, optimizer, device), _placed(space, device, inputs)


def _resnet50(space: SimpleNamespace, device: Any, small: bool) -> Any:
    sizes = {"classes": 10, "width": 8, "layers": (1, 2, 1, 1)} if small else {}
    model = space.ResNet50(**sizes).to(device)
    optimizer = space.torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    rng = np.random.default_rng(0)
    images = rng.standard_normal((4, 3, 32, 32) if small else (64, 3, 224, 224), np.float32)
    labels = rng.integers(0, 10 if small else 1000, len(images))
    return _training(space, model, optimizer, device), _placed(space, device, (images, labels))


def _bert(space: SimpleNamespace, device: Any, small: bool) -> Any:
    sizes = {"vocab": 211, "context": 32, "dim": 64, "heads": 2, "layers": 2} if small else {}
    model = space.Bert(**sizes).to(device).eval()
    if not small:
        model = model.to(space.torch.float16)
    shape = (2, 16) if small else (32, 128)
    tokens = np.random.default_rng(0).integers(0, 211 if small else 30522, shape)

    def answer(tokens: Any) -> Any:
        with space.torch.no_grad():
            return model(tokens)

    return answer, _placed(space, device, (tokens,))


def _placed(space: SimpleNamespace, device: Any, arrays: tuple[np.ndarray, ...]) -> tuple[Any, ...]:
    return tuple(space.torch.from_numpy(array).to(device) for array in arrays)


WORKS = {
    work.name: work for work in (
        Work("gpt2", _gpt2, 6.61e12), Work("resnet50", _resnet50, 1.57e12),
        Work("bert", _bert, 7.2e11),
    )
}
