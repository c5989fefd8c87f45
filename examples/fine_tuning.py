"""Fine-tune: learn five digits, save, load into a new network, freeze it, teach it the other five.

    python examples/fine_tuning.py [--steps 150]
"""

import argparse
import tempfile
from pathlib import Path

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.vision.datasets import MNIST


class Network(nn.Module):
    """A body that makes features [N, 128], and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 5, stride=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(512, 128), nn.ReLU(),
        )
        self.head = nn.Linear(128, 5)

    def forward(self, x):
        return self.head(self.body(x))


def five(first: int, train: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The digits from `first` on: images float32 [N, 1, 28, 28], labels 0 to 4."""
    raw = MNIST(train=train)
    wanted = (raw.targets >= first) & (raw.targets < first + 5)
    return raw.data[wanted].float().unsqueeze(1) / 255, raw.targets[wanted] - first


def train(model: nn.Module, first: int, steps: int) -> None:
    images, labels = five(first, train=True)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1, momentum=0.9, nesterov=True)

    @torch.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for done in range(1, steps + 1):
        chosen = torch.randint(0, len(images), (64,))
        loss = step(images[chosen], labels[chosen])
        if done % 50 == 0:
            print(f"digits from {first} on, step {done}: loss {loss.item():.4f}")


@torch.no_grad()
def accuracy(model: nn.Module, first: int) -> float:
    images, labels = five(first, train=False)
    return (model(images).argmax(1) == labels).float().mean().item()


def main(steps: int = 150) -> tuple[float, float]:
    """The shares of held-out digits that are right: 0 to 4 before, 5 to 9 after."""
    torch.manual_seed(0)
    teacher = Network()
    train(teacher, 0, steps)
    before = accuracy(teacher, 0)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "teacher.pt"
        torch.save(teacher.state_dict(), path)
        weights = torch.load(path, weights_only=True)

    student = Network()
    body = {name: value for name, value in weights.items() if name.startswith("body.")}
    told = student.load_state_dict(body, strict=False)
    assert told.missing_keys == ["head.weight", "head.bias"], told
    student.body.requires_grad_(False)
    train(student, 5, steps)
    assert all(torch.equal(value, weights[f"body.{name}"])
               for name, value in student.body.state_dict().items())
    after = accuracy(student, 5)
    print(f"0 to 4: {100 * before:.1f}% are right; 5 to 9 with the same body: {100 * after:.1f}%")
    return before, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    main(parser.parse_args().steps)
