"""Classify handwritten digits: a data loader, a convolutional network, a compiled training step.

    python examples/digits.py [--steps 300]

The 5,000 MNIST images that come with graphc; about 95% of the held-out 1,000 are right in the end.
"""

import argparse

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.utils.data import DataLoader, TensorDataset
from graphc.vision.datasets import MNIST


def digits(train: bool) -> TensorDataset:
    """Images float32 [N, 1, 28, 28] of mean 0 and deviation 1, labels int64 [N]."""
    raw = MNIST(train=train)
    return TensorDataset(((raw.data.float() / 255 - 0.1307) / 0.3081).unsqueeze(1), raw.targets)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.25), nn.Linear(32 * 7 * 7, 10),
    )


def main(steps: int = 300) -> float:
    """The share of held-out digits that are right."""
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)

    @torch.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    loader = DataLoader(digits(train=True), batch_size=64, shuffle=True, drop_last=True)
    done = 0
    while done < steps:
        for x, y in loader:
            loss = step(x, y)
            schedule.step()
            done += 1
            if done % 50 == 0:
                print(f"step {done}: loss {loss.item():.4f}")
            if done == steps:
                break

    model.eval()
    images, labels = digits(train=False).tensors
    with torch.no_grad():
        right = (torch.compile(model)(images).argmax(1) == labels).float().mean().item()
    print(f"{100 * right:.1f}% of {len(labels)} held-out digits are right")
    return right


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    main(parser.parse_args().steps)
