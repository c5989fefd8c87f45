"""Run an exported model on arrays from files: no code of the model is needed."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

import graphc
import graphc.export


def main(model: Path, inputs: Sequence[Path], out: Path) -> int:
    """Write the model's outputs for `inputs` (.npy files) to `out`.

    One output is written as it is; several as `out` with .0, .1, ... before its suffix.
    """
    program = graphc.export.load(model)
    arguments = [graphc.from_numpy(np.load(path, allow_pickle=False)) for path in inputs]
    result = program(*arguments)
    single = isinstance(result, graphc.Tensor)
    for number, tensor in enumerate([result] if single else result):
        path = out if single else out.with_suffix(f".{number}{out.suffix}")
        array = tensor.detach().numpy()
        np.save(path, array)
        print(f"{path}: {array.dtype} {list(array.shape)}")
    return 0
