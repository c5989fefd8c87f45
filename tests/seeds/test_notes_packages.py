"""What the notes (shared/seeds 001 and 003) do with torchsummary and TensorBoard, on the real
packages: their `import torch` and `import torchvision` are answered by graphc."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SUMMARY = """
from torchsummary import summary
from torchvision.models import resnet18

model = resnet18()
summary(model, input_size=[(3, 256, 256)], batch_size=2, device="cpu")
"""

LOGGER = """
from {package} import SummaryWriter

logger = SummaryWriter(log_dir='test', flush_secs=2)
for ii in range(100):
    logger.add_scalar('data/loss', 10-ii**0.5)
    logger.add_scalar('data/accuracy', ii**0.5/10)
"""

VALUES = """
import torch
logger.add_scalar('tensor', torch.tensor(0.5), 7)
logger.add_histogram('weights', torch.randn(100), 7)
logger.add_image('picture', torch.rand(3, 8, 8), 7)
logger.add_graph(torch.nn.Linear(2, 2), torch.ones(1, 2))
logger.close()
"""


def run(program: str, folder: Path, repository: Path) -> str:
    """What a script prints when graphc answers for torch."""
    (folder / "script.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "graphc", "run", "script.py"], cwd=folder, text=True,
        capture_output=True, env={**os.environ, "PYTHONPATH": str(repository)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_torchsummary(repository: Path, tmp_path: Path) -> None:
    rows = {
        tuple(line.split()) for line in run(SUMMARY, tmp_path, repository).splitlines()
    }
    for row in (  # of the notes' own table
        "Conv2d-1 [2, 64, 128, 128] 9,408",
        "BatchNorm2d-2 [2, 64, 128, 128] 128",
        "MaxPool2d-4 [2, 64, 64, 64] 0",
        "Conv2d-5 [2, 64, 64, 64] 36,864",
        "BasicBlock-11 [2, 64, 64, 64] 0",
        "Conv2d-12 [2, 64, 64, 64] 36,864",
        "Total params: 11,689,512",
        "Trainable params: 11,689,512",
    ):
        assert tuple(row.split()) in rows, row


def events(folder: Path) -> list[tuple[str, int, str]]:
    """(tag, step, kind) of every value in the event files of a folder."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for file in sorted(folder.glob("events.*")):
        data, place = file.read_bytes(), 0
        while place < len(data):  # length, its checksum, the record, its checksum
            length = int.from_bytes(data[place : place + 8], "little")
            event = Event.FromString(data[place + 12 : place + 12 + length])
            place += 12 + length + 4
            found += [(v.tag, event.step, v.WhichOneof("value")) for v in event.summary.value]
    return found


def test_tensorboard_under_both_names(repository: Path, tmp_path: Path) -> None:
    for package in ("tensorboardX", "torch.utils.tensorboard"):
        folder = tmp_path / package
        folder.mkdir()
        run(LOGGER.format(package=package) + VALUES, folder, repository)
        found = events(folder / "test")
        assert [tag for tag, _, _ in found].count("data/loss") == 100
        assert {(tag, kind) for tag, step, kind in found if step == 7} == {
            ("tensor", "simple_value"), ("weights", "histo"), ("picture", "image"),
        }
