"""torchinfo and torchsummary: tables of models, as text and as numbers."""

import contextlib
import io

import torch
import torchinfo
import torchsummary
from told import tell
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())

    def forward(self, x, scale=1.0):
        return x + self.layers(x) * scale


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.blocks = nn.ModuleList([Block(8), Block(8)])
        self.shared = Block(8)
        self.head = nn.Linear(8, 5)
        self.head.bias.requires_grad_(False)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x, scale=0.5)
        x = self.shared(self.shared(x))
        return {"logits": self.head(x.mean((2, 3)))}


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.head = nn.Embedding(20, 6), nn.LSTM(6, 7, 2, bidirectional=True, batch_first=True), nn.Linear(14, 3)

    def forward(self, ids):
        return self.head(self.rnn(self.table(ids))[0])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.layer(x) * self.scale.sum()


COLUMNS = ("input_size", "output_size", "num_params", "params_percent", "kernel_size", "mult_adds", "trainable")


def plain(text):
    return [line.rstrip() for line in text.splitlines() if line.strip()]


torch.manual_seed(0)
for name, model, options in (
    ("net", Net(), {"input_size": (2, 3, 12, 12)}),
    ("net, deep", Net(), {"input_size": (2, 3, 12, 12), "depth": 5, "row_settings": ("var_names", "depth")}),
    ("net, data", Net(), {"input_data": torch.randn(1, 3, 9, 9), "mode": "train"}),
    ("net, no input", Net(), {}),
    ("tagger", Tagger(), {"input_size": (2, 5), "dtypes": [torch.long]}),
    ("attention", Attention(), {"input_size": (2, 5, 16), "depth": 4}),
    ("dict", Net(), {"input_data": {"x": torch.randn(1, 3, 9, 9)}}),
    ("sequence", nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.GRUCell(4, 5)), {"input_size": (2, 3)}),
):
    before = [m.training for m in model.modules()]
    found = torchinfo.summary(model, verbose=0, col_names=COLUMNS if options else ("num_params", "trainable"), **options)
    tell(name, plain(str(found)))
    tell(f"{name}, numbers", [found.total_params, found.trainable_params, found.total_mult_adds, found.total_output_bytes, found.total_param_bytes])
    tell(f"{name}, input", found.total_input, 0.1)  # with what Python needs for an object
    tell(f"{name}, modes", before == [m.training for m in model.modules()])
    if options:
        tell(f"{name}, layers", [[layer.class_name, layer.depth, layer.output_size, layer.num_params] for layer in found.summary_list])

try:
    torchinfo.summary(Net(), input_size=(1, 4, 9, 9), verbose=0)
except RuntimeError as error:
    tell("wrong sizes", str(error).split(".")[0])

for name, model, sizes in (
    ("sequence", nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, 2)), (3, 8, 8)),
    ("blocks", nn.Sequential(Block(3), nn.Flatten(), nn.Linear(3 * 64, 2)), [(3, 8, 8)]),
):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        torchsummary.summary(model, sizes, device="cpu", batch_size=2)
    tell(f"torchsummary, {name}", plain(text.getvalue()))
