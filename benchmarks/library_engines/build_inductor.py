"""Compile a model of models.py by AOTInductor: `build_inductor.py MODEL WEIGHTS INPUT THREADS
PACKAGE`, with the weights of a .safetensors file that has its state_dict."""

import json
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from models import load, make


def read(path: str) -> dict[str, torch.Tensor]:
    """The tensors of a .safetensors file, float32 and int64."""
    data = Path(path).read_bytes()
    length = int.from_bytes(data[:8], "little")
    kinds = {"F32": np.float32, "I64": np.int64}
    found = {}
    for name, about in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + each for each in about["data_offsets"])
            array = np.frombuffer(data[begin:end], kinds[about["dtype"]])
            found[name] = torch.from_numpy(array.reshape(about["shape"]).copy())
    return found


def main(name: str, weights: str, given: str, threads: str, package: str) -> None:
    torch.set_num_threads(int(threads))
    model, _ = make(load("torch"), name)
    model.load_state_dict(read(weights))
    with torch.no_grad():
        program = torch.export.export(model.eval(), (torch.from_numpy(np.load(given)),))
        torch._inductor.aoti_compile_and_package(
            program, package_path=package, inductor_configs={"freezing": True}
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
