"""Run an exported model on arrays from files: no code of the model is needed."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import graphc
import graphc.export

# what is wrong with a file or an input is said by these
_MISTAKES = (OSError, ValueError, TypeError, graphc.export.ExportError)
# digits that give the same number when read again
_CSV_DIGITS = {2: 5, 4: 9, 8: 17}


def main(
    model: Path, inputs: Sequence[Path], out: Path, trust: Sequence[str] = ()
) -> int:
    """Write the model's outputs for `inputs` (.npy files) to `out`: a .npy or a .csv file.

    Where `trust` has the SHA-256 of machine code in the file, that computes: nothing is compiled.
    One output is written as it is; several as `out` with .0, .1, ... before its suffix. Returns 0,
    or 2 where a file or an array is wrong, which one line on stderr says.
    """
    try:
        _predict(model, inputs, out, trust)
    except _MISTAKES as error:
        print(f"graphc predict: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _predict(model: Path, inputs: Sequence[Path], out: Path, trust: Sequence[str]) -> None:
    if out.suffix not in (".npy", ".csv"):
        raise ValueError(f"--out {out}: the name must end in .npy or .csv")
    program: Any = graphc.export.load(model, native=True, trust=trust) if trust else (
        graphc.export.load(model)
    )
    result = program(*[graphc.from_numpy(_read(path)) for path in inputs])
    single = isinstance(result, graphc.Tensor)
    for number, tensor in enumerate([result] if single else result):
        path = out if single else out.with_suffix(f".{number}{out.suffix}")
        array = tensor.detach().numpy()
        if out.suffix == ".csv":
            _write_csv(path, array)
        else:
            np.save(path, array)
        print(f"{path}: {array.dtype} {list(array.shape)}")


def _read(path: Path) -> np.ndarray:
    with path.open("rb") as file:
        try:
            return np.lib.format.read_array(file, allow_pickle=False)
        except ValueError as error:
            raise ValueError(f"{path} cannot be read as a .npy file: {error}") from None


def _write_csv(path: Path, array: np.ndarray) -> None:
    """One line a row; a vector is one column."""
    if array.ndim > 2 or array.dtype.kind not in "fiub":
        raise ValueError(
            f"{path}: an array of {array.dtype} {list(array.shape)} has no CSV form. Cure: "
            f"--out {path.with_suffix('.npy')}"
        )
    form = f"%.{_CSV_DIGITS[array.dtype.itemsize]}g" if array.dtype.kind == "f" else "%d"
    np.savetxt(path, np.atleast_1d(array), form, delimiter=",")
