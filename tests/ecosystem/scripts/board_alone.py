"""torch.utils.tensorboard where tensorboardX is not: only TensorBoard's own package."""

import importlib.util

import numpy as np
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from told import tell
from torch import nn
from torch.utils.tensorboard import SummaryWriter

assert importlib.util.find_spec("tensorboardX") is None
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
with SummaryWriter("runs/one", comment="c", flush_secs=1) as writer:
    for step in range(3):
        writer.add_scalar("loss", torch.tensor(1.0 / (step + 1)), step)
        writer.add_scalars("both", {"a": step, "b": step * 2}, step)
        writer.add_histogram("weights", model[0].weight, step, bins="auto")
    writer.add_image("picture", torch.rand(3, 6, 8), 0)
    writer.add_images("pictures", torch.rand(4, 1, 6, 8), 0)
    writer.add_text("words", "some *text*", 0)
    writer.add_graph(model, torch.randn(2, 4))
    writer.add_hparams({"lr": 0.1, "kind": "a", "wide": True}, {"final": torch.tensor(0.5)})
    writer.add_pr_curve("curve", torch.tensor([0, 1, 1, 0]), torch.tensor([0.1, 0.8, 0.6, 0.4]), 0)
    writer.add_embedding(torch.randn(5, 3), metadata=list("abcde"), tag="points")
    writer.add_mesh("mesh", torch.rand(1, 4, 3))
    writer.add_audio("sound", torch.zeros(1, 100), 0, sample_rate=100)
    writer.add_custom_scalars({"all": {"losses": ["Multiline", ["loss"]]}})
    tell("folder", writer.get_logdir())
found = EventAccumulator("runs/one")
found.Reload()
tags = found.Tags()
tell("tags", {key: sorted(value) if isinstance(value, list) else value for key, value in tags.items()})
tell("loss", [event.value for event in found.Scalars("loss")], 1e-6)
tell("weights", [[h.histogram_value.min, h.histogram_value.max, h.histogram_value.num, h.histogram_value.sum] for h in found.Histograms("weights")], 1e-5)
tell("picture", [[i.width, i.height] for i in found.Images("picture")])
tell("graph", len(found.Graph().node) > 4)
tell("words", [bytes(t.tensor_proto.string_val[0]).decode() for t in found.Tensors("words/text_summary")])
tell("curve", np.array(found.Tensors("curve")[0].tensor_proto.float_val[:4]).tolist() if found.Tensors("curve")[0].tensor_proto.float_val else len(found.Tensors("curve")), 1e-6)
