"""Export: train a model, write it as one file with a free batch size, and run that file without
the model's code.

    python examples/export_model.py [--out tagged.gcx]
    python -m graphc predict tagged.gcx x.npy      # what the last lines do, from the shell
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import graphc as torch
import graphc.export
import graphc.nn as nn
import graphc.nn.functional as F


class Spiral(nn.Module):
    """Points [N, 2] to the logits [N, 3] of three arms."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3)
        )

    def forward(self, x):
        return self.layers(x)


def arms(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points [count, 2] on three arms of a spiral, and their arms."""
    arm, along = torch.randint(0, 3, (count,)), torch.rand(count)
    angle = 2.1 * arm + 4 * along
    points = torch.stack([along * angle.cos(), along * angle.sin()], dim=1)
    return points + 0.02 * torch.randn(count, 2), arm


def main(out: Path | None = None, steps: int = 400) -> float:
    """The share of new points that the exported file puts on the right arm."""
    torch.manual_seed(0)
    model = Spiral()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    @torch.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(steps):
        loss = step(*arms(256))
    print(f"loss {loss.item():.4f} after {steps} steps")

    with tempfile.TemporaryDirectory() as folder:
        path = out or Path(folder) / "spiral.gcx"
        free = {"x": {0: graphc.export.Dim("batch", min=1, max=4096)}}
        x, y = arms(500)
        graphc.export.export(model.eval(), (x[:4],), dynamic_shapes=free).save(path)
        print(f"{path.name}: {path.stat().st_size:,} bytes")

        logits = graphc.export.load(path)(x)  # in this process, and then in one of its own
        given, made = Path(folder) / "x.npy", Path(folder) / "logits.npy"
        np.save(given, x.numpy())
        subprocess.run(
            [sys.executable, "-m", "graphc", "predict", str(path), str(given), "--out", str(made)],
            check=True,
        )
        assert np.array_equal(np.load(made), logits.numpy())
    right = (logits.argmax(1) == y).float().mean().item()
    print(f"{100 * right:.1f}% of the points are put on the right arm")
    return right


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    main(parser.parse_args().out)
