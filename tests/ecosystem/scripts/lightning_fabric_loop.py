"""Fabric: a loop of one's own, saved, loaded, compiled."""

import sys

import lightning as L
import torch
from told import on_graphc, own, tell
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

stage = sys.argv[1]


def setup(precision="32-true", compiled=False):
    fabric = L.Fabric(accelerator="cpu", devices=1, precision=precision)
    fabric.launch()
    fabric.seed_everything(3)
    model = nn.Sequential(nn.Linear(5, 24, bias=False), nn.BatchNorm1d(24), nn.Dropout(0.1), nn.GELU(), nn.Linear(24, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if compiled:
        model = torch.compile(model, **({} if on_graphc() else {"backend": "eager"}))
    x = torch.randn(72, 5, generator=torch.Generator().manual_seed(1))
    rows = TensorDataset(x, (x[:, 0] > x[:, 1]).long())
    model, optimizer = fabric.setup(model, optimizer)
    return fabric, model, optimizer, fabric.setup_dataloaders(DataLoader(rows, 12, shuffle=True))


def epoch(fabric, model, optimizer, loader):
    losses = []
    for number, (x, y) in enumerate(loader):
        with fabric.no_backward_sync(model, enabled=number % 2 == 0):
            loss = nn.functional.cross_entropy(model(x), y)
            fabric.backward(loss)
        if number % 2:
            fabric.clip_gradients(model, optimizer, max_norm=0.5)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(fabric.all_reduce(loss.detach()).item())
    return losses


if stage == "write":
    everything = setup()
    fabric, model, optimizer, _ = everything
    tell("losses", epoch(*everything), 2e-5)
    fabric.save("state.ckpt", {"model": model, "optimizer": optimizer, "epoch": 1, "generator": torch.get_rng_state()})
    tell("more losses", epoch(*everything), 5e-5)
    tell("weights", [p.norm() for p in model.parameters()], 1e-3)
    with fabric.init_module(empty_init=True):
        tell("empty", list(nn.Linear(3, 2).weight.shape))
    tell("gathered", fabric.all_gather({"a": torch.ones(2)})["a"])
    for precision in ("bf16-mixed", "bf16-true", "64-true"):
        everything = setup(precision)
        tell(f"{precision}: losses", epoch(*everything), 1e-6 if precision == "64-true" else 3e-2)
        tell(f"{precision}: kind", str(everything[1](torch.ones(2, 5)).dtype))
    everything = setup(compiled=True)
    tell("compiled: losses", epoch(*everything), 2e-5)
    if on_graphc():
        function = everything[1]._forward_module
        own("compiled", hasattr(type(function), "_compiled_function") and type(function)._compiled_function.compile_count)
else:
    everything = setup()
    fabric, model, optimizer, _ = everything
    state = {"model": model, "optimizer": optimizer, "epoch": 0, "generator": None}
    tell("left over", sorted(fabric.load("state.ckpt", state)))
    torch.set_rng_state(state["generator"])
    tell("epoch", state["epoch"])
    tell("swapped: losses", epoch(*everything), 5e-5)
