"""Train a network on digits, and make what the clients beside this file use: a library, its header,
and a recorded call; and a library that trains the network, with recorded batches and losses.

    python examples/clients/make.py [--out examples/clients/out] [--steps 200]

A tensor's file is a line, "f32 4 10", and then the elements of a float32 [4, 10], little-endian.
"""

import argparse
from pathlib import Path

import graphc as torch
import graphc.export
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.vision.datasets import MNIST

NAMES = {torch.float32: "f32", torch.int64: "i64"}


class Digits(nn.Module):
    """Images of bytes [N, 28, 28] to the digit on each, and how probable each digit is."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 16, 5, stride=2), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Flatten(), nn.Linear(16 * 4 * 4, 10),
        )

    def forward(self, image):
        logits = self.layers((image.unsqueeze(1).float() / 255 - 0.1307) / 0.3081)
        return {"digit": logits.argmax(1), "probability": logits.softmax(1)}


def training(model: nn.Module):
    """A step of training: images and their digits to the loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def step(image, digit):
        optimizer.zero_grad()
        loss = F.nll_loss(model(image)["probability"].log(), digit)
        loss.backward()
        optimizer.step()
        return loss

    return step


def train(model: nn.Module, steps: int) -> None:
    raw = MNIST(train=True)
    step = torch.compile(training(model))
    for _ in range(steps):
        batch = torch.randint(0, len(raw.data), (64,))
        step(raw.data[batch], raw.targets[batch])


def write_tensor(path: Path, tensor: torch.Tensor) -> None:
    line = " ".join([NAMES.get(tensor.dtype, "u8"), *map(str, tensor.shape)])
    path.write_bytes(f"{line}\n".encode() + tensor.contiguous().numpy().tobytes())


def main(
    out: Path, steps: int = 200, targets: tuple[str, ...] = ("native",), static: bool = False
) -> float:
    """The share of held-out digits that are right."""
    torch.manual_seed(0)
    model = Digits()
    train(model, steps)
    held_out = MNIST(train=False)
    free = {"image": {0: graphc.export.Dim("batch", min=1, max=1024)}}
    program = graphc.export.export(model.eval(), (held_out.data[:4],), dynamic_shapes=free)
    graphc.export.aot(program, out, name="digits", targets=list(targets), static=static)
    given = held_out.data[:7]
    golden = out / "golden"
    golden.mkdir(parents=True, exist_ok=True)
    write_tensor(golden / "input0.tensor", given)
    for number, found in enumerate(program(given).values()):
        write_tensor(golden / f"output{number}.tensor", found)
    right = (program(held_out.data)["digit"] == held_out.targets).float().mean().item()
    print(f"{100 * right:.1f}% of {len(held_out.targets)} held-out digits are right")
    return right


def make_trainer(
    out: Path, steps: int = 40, targets: tuple[str, ...] = ("native",), rows: int = 32
) -> None:
    """libdigits_trainer.so, and recorded training of a fresh network."""
    torch.manual_seed(0)
    model = Digits()
    model.layers.insert(-1, nn.Dropout(0.2))
    raw = MNIST(train=True)
    image, digit = raw.data[: steps * rows], raw.targets[: steps * rows]
    step = training(model)
    exported = graphc.export.export_step(step, (image[:rows], digit[:rows]))
    graphc.export.aot(exported, out, name="digits_trainer", targets=list(targets))
    compiled = torch.compile(step)
    torch.manual_seed(1)
    losses = [
        compiled(image[at : at + rows], digit[at : at + rows]).detach()
        for at in range(0, steps * rows, rows)
    ]
    recorded = out / "training"
    recorded.mkdir(parents=True, exist_ok=True)
    for name, tensor in (("image", image), ("digit", digit), ("loss", torch.stack(losses))):
        write_tensor(recorded / f"{name}.tensor", tensor)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--target", action="append", help="may be given several times")
    given = parser.parse_args()
    chosen = tuple(given.target or ["native"])
    main(given.out, given.steps, chosen)
    make_trainer(given.out, targets=chosen)
    for path in sorted(given.out.glob("*digits*")):
        print(f"{path}: {path.stat().st_size:,} bytes")
