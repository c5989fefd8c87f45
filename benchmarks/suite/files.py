"""What engines are given that do not run torch's code: the parameters, and the graph as ONNX.

    python files.py WORKLOAD FOLDER      (needs PyTorch, and onnx with onnxscript)
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
from workloads import every, space


def write(name: str, folder: Path) -> None:
    """state.npz, and model.onnx where the workload says that it can be exported."""
    import torch

    row = every()[name]
    work = row.make(space("torch"))
    if work.module is not None:
        named = work.module.named_parameters()
        state = {key: value.detach().numpy() for key, value in named}
        np.savez(folder / "state.npz", **state)
    if not row.exports:
        return
    inputs = tuple(torch.from_numpy(array) for array in row.inputs(0))
    warnings.simplefilter("ignore")
    torch.backends.mha.set_fastpath_enabled(False)  # has no ONNX
    path = str(folder / "model.onnx")
    with torch.no_grad():
        try:
            torch.onnx.export(work.module.eval(), inputs, path, dynamo=True, external_data=False)
        except Exception:  # what torch.export refuses (an LSTM's state, say)
            torch.onnx.export(work.module.eval(), inputs, path, dynamo=False)


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]))
