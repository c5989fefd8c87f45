"""The training script of graphc/demo.py on PyTorch: what its stated figures were measured with.

    python benchmarks/demo_torch.py [--seeds 0 1 2] [--epochs 8] [--threads 2]

Where torch (the `parity` extra) is installed, the demo runs this and reads the line of its seed.
It needs no part of graphc: the split is read by path, without the package.
"""

import argparse
import runpy
import statistics
import time
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH, LEARNING_RATE = 8, 64, 3e-3
MEAN, STD = 0.1307, 0.3081
EMBEDDED = Path(__file__).parents[1] / "graphc" / "vision" / "embedded.py"
load_digits = runpy.run_path(str(EMBEDDED))["load_digits"]


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 5, padding=2)
        self.norm1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 5, padding=2)
        self.norm2 = nn.BatchNorm2d(32)
        self.head = nn.Linear(32 * 7 * 7, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        return self.head(x.flatten(1))


def digits(train: bool) -> TensorDataset:
    images, labels = load_digits(train)
    scaled = (torch.from_numpy(images).float() / 255 - MEAN) / STD
    return TensorDataset(scaled.unsqueeze(1), torch.from_numpy(labels))


def train(epochs: int, seed: int) -> tuple[nn.Module, list[float], list[float]]:
    """The trained model, and the loss and the seconds of each step."""
    torch.manual_seed(seed)
    model = ConvNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    loader = DataLoader(digits(train=True), batch_size=BATCH, shuffle=True, drop_last=True)
    losses, seconds = [], []
    for _ in range(epochs):
        for x, y in loader:
            start = time.perf_counter()
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            seconds.append(time.perf_counter() - start)
        schedule.step()
    return model, losses, seconds


def accuracy(model: nn.Module) -> float:
    model.eval()
    x, y = digits(train=False)[:]
    with torch.no_grad():
        return 100 * (model(x).argmax(1) == y).double().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)))
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads")
    reached = []
    for seed in options.seeds:
        model, losses, seconds = train(options.epochs, seed)
        reached.append(accuracy(model))
        print(
            f"seed {seed}: {reached[-1]:.1f}%  loss {losses[0]:.4f} -> {losses[-1]:.4f}  "
            f"{1e3 * statistics.median(seconds):.1f} ms per step",
            flush=True,
        )
    spread = statistics.pstdev(reached)
    print(
        f"{len(reached)} seeds: mean {statistics.mean(reached):.2f}%, sd {spread:.2f}, "
        f"{min(reached):.1f} to {max(reached):.1f}"
    )


if __name__ == "__main__":
    main()
