"""mode(): all rows at once find what each finds by itself."""

from typing import Any

import numpy as np
import pytest

import graphc as torch

NAN = float("nan")


def _expected(row: np.ndarray) -> int:
    values, counts = np.unique(row, return_counts=True, equal_nan=False)
    most = values[np.argmax(counts)]
    return int(np.nonzero(row == most)[0][-1]) if most == most else 0


@pytest.mark.parametrize("dtype", [
    torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool, torch.float16,
    torch.bfloat16,
], ids=str)
@pytest.mark.parametrize("shape", [(5,), (1, 1), (40, 7), (3, 8, 5), (0, 3)])
def test_rows(dtype: Any, shape: tuple[int, ...]) -> None:
    torch.manual_seed(len(shape))
    x = torch.randint(0, 4, shape).to(dtype)
    for dim in range(len(shape)):
        if not shape[dim]:
            continue
        values, index = x.mode(dim)
        lines = np.moveaxis(x._graphc_array, dim, -1)
        want = [_expected(row) for row in lines.reshape(-1, shape[dim])]
        assert index.flatten().tolist() == want and index.shape == lines.shape[:-1]
        assert torch.equal(values, x.gather(dim, index.unsqueeze(dim)).squeeze(dim))


@pytest.mark.parametrize("row", [
    [NAN, NAN, NAN], [NAN, 2.0, NAN], [1.0, NAN, 1.0, NAN], [-0.0, 0.0, 1.0], [3.0], [2.0, 1.0],
    [float("inf"), float("inf"), -1.0],
])
def test_nan_and_zeros(row: list[float]) -> None:
    assert int(torch.tensor(row).mode()[1]) == _expected(np.array(row, np.float32))
