"""safetensors: files of every dtype, byte for byte, and read by the other side."""

import hashlib
import os
import sys

import torch
from safetensors import safe_open
from safetensors.torch import load, load_file, load_model, save, save_file, save_model
from told import tell
from torch import nn

stage = sys.argv[1]
DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64,
]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(10, 4)
        self.out = nn.Linear(4, 10, bias=False)
        self.out.weight = self.words.weight
        self.norm = nn.BatchNorm1d(4)

    def forward(self, ids):
        return self.out(self.norm(self.words(ids)))


def digest(path):
    return hashlib.sha256(open(path, "rb").read()).hexdigest()


if stage == "write":
    torch.manual_seed(0)
    values = torch.randn(3, 4) * 3
    tensors = {str(dtype).removeprefix("torch."): values.to(dtype) for dtype in DTYPES}
    tensors["scalar"], tensors["empty"] = torch.tensor(2.5), torch.empty(0, 3)
    save_file(tensors, "all.safetensors", {"made": "by a test"})
    tell("bytes of all", digest("all.safetensors"))
    tell("in memory", hashlib.sha256(save(tensors)).hexdigest())
    back = load(save(tensors))
    tell("back", {key: [str(t.dtype), list(t.shape)] for key, t in sorted(back.items())})
    tell("same bits", all(torch.equal(t.view(torch.uint8) if t.ndim else t, tensors[k].view(torch.uint8) if t.ndim else tensors[k]) for k, t in back.items() if k != "complex64"))
    torch.manual_seed(1)
    model = Tied()
    save_model(model, "tied.safetensors")
    tell("bytes of a model", digest("tied.safetensors"))
    for name, wrong in (
        ("shared", {"a": values, "b": values.T}), ("a view", {"a": values, "b": values[1:]}),
        ("not contiguous", {"a": values.T}), ("no tensor", {"a": [1.0]}),
    ):
        try:
            save_file(wrong, "wrong.safetensors")
            tell(name, "saved")
        except (RuntimeError, ValueError) as error:
            tell(name, [type(error).__name__, str(error).strip()[:60]])
else:
    found = load_file("all.safetensors")
    tell("read", {key: [str(t.dtype), t.to(torch.float64) if not t.is_complex() else t.real] for key, t in sorted(found.items())})
    with safe_open("all.safetensors", framework="pt", device="cpu") as file:
        tell("metadata", [file.metadata(), sorted(file.keys())])
        part = file.get_slice("float32")
        tell("a slice", [part.get_shape(), str(part.get_dtype()), part[1:, :2], part[0]])
        tell("one", [file.get_tensor("int8"), str(file.get_tensor("bfloat16").dtype)])
    model = Tied()
    missing = load_model(model, "tied.safetensors")
    tell("a model", [list(map(sorted, missing)), model.eval()(torch.arange(5)).sum(-1), model.out.weight is model.words.weight], 1e-6)
    tell("files", sorted(os.listdir(".")))
    loaded = load_file("all.safetensors")["float32"]
    loaded.add_(1)  # memory of its own
    tell("written to", loaded)
