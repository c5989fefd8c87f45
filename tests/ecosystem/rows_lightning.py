"""Lightning: its Trainer, Fabric, command line."""

from __future__ import annotations

from tests.ecosystem.matrix import Row

PACKAGES = (
    "lightning==2.6.6", "torchmetrics==1.9.0", "tensorboardX==2.6.5",
    "jsonargparse[signatures]==4.53.0",
)

ROWS = [
    Row(
        "lightning_trainer", PACKAGES, "Trainer at its defaults (logger, checkpoints, summary with "
        "flops); best and last checkpoints, early stopping, torchmetrics, clipping, accumulation; "
        "resumed, from the other side's checkpoint too", stages=("write", "swap"),
        lacks="several processes (ddp)",
    ),
    Row(
        "lightning_more", PACKAGES, "bf16 and float64, rate finder, batch size finder, SWA, EMA, "
        "pruning, two optimizers by hand, profilers, anomalies", "lightning_trainer.py", ("more",),
    ),
    Row(
        "lightning_compiled", PACKAGES, "torch.compile of a LightningModule, and of a part",
        "lightning_trainer.py", ("compiled",),
    ),
    Row(
        "lightning_workers", PACKAGES, "Trainer with loaders of several processes: kept, ahead, "
        "forked; streams that share the work, what workers draw",
        "lightning_trainer.py", ("workers",),
    ),
    Row(
        "lightning_command_line", PACKAGES, "LightningCLI: fit with an optimizer, a schedule and "
        "callbacks by name", "lightning_trainer.py", ("command_line",),
    ),
    Row(
        "lightning_fabric_loop", PACKAGES, "Fabric: a loop of one's own, precisions, compiled, "
        "saved and loaded, from the other side too", stages=("write", "swap"),
    ),
]
