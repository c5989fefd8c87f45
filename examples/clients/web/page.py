"""Write a page that reads digits drawn in it, and goes on training its network on them.

    python examples/clients/web/page.py [--out examples/clients/out/page] [--steps 300]
    python -m http.server --directory examples/clients/out/page

The page is `index.html` and `pupil.mjs`, beside this file; what is made for it are two modules of
WebAssembly. One trains: the network's weights are its state. The other has no weights of its own
and takes those as inputs. `replay.bin` has digits that the page mixes with the drawn ones, so that
what was learnt before is not forgotten: 784 bytes of an image, and one of its digit, each.
"""

import argparse
import shutil
from pathlib import Path

import numpy as np

import graphc as torch
import graphc.export
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.vision.datasets import MNIST

ROWS, REPLAYED = 32, 256  # images of a step, and of the page's store


class Reader(nn.Module):
    """Images of bytes [N, 28, 28] to a number for each digit."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(16 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10),
        )

    def forward(self, image):
        return self.layers((image.unsqueeze(1).float() / 255 - 0.1307) / 0.3081)


def training(model: nn.Module):
    """A step of training: images and their digits to the loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    def step(image, digit):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(image), digit)
        loss.backward()
        optimizer.step()
        return loss

    return step


def main(out: Path, steps: int = 300) -> None:
    torch.manual_seed(0)
    model, raw = Reader(), MNIST(train=True)
    step = training(model)
    compiled = torch.compile(step)
    for _ in range(steps):
        batch = torch.randint(0, len(raw.data), (ROWS,))
        compiled(raw.data[batch], raw.targets[batch])
    example = raw.data[:ROWS], raw.targets[:ROWS]
    trainer = graphc.export.export_step(step, example)
    graphc.export.aot(trainer, out, name="trainer", targets=["wasm32"])

    def read(image, weights):
        return torch.func.functional_call(model, weights, (image,)).softmax(1)

    weights = {name: value.detach() for name, value in model.named_parameters()}
    reader = graphc.export.export(read, (raw.data[:1], weights))
    graphc.export.aot(reader, out, name="reader", targets=["wasm32"])
    kept = np.concatenate([
        raw.data[:REPLAYED].reshape(REPLAYED, 784).numpy(),
        raw.targets[:REPLAYED].reshape(REPLAYED, 1).numpy().astype(np.uint8),
    ], axis=1)
    (out / "replay.bin").write_bytes(kept.tobytes())
    for name in ("index.html", "pupil.mjs"):
        shutil.copy(Path(__file__).with_name(name), out / name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    folder = Path(__file__).parents[1] / "out" / "page"
    parser.add_argument("--out", type=Path, default=folder)
    parser.add_argument("--steps", type=int, default=300)
    given = parser.parse_args()
    main(given.out, given.steps)
    for path in sorted(given.out.iterdir()):
        print(f"{path}: {path.stat().st_size:,} bytes")
