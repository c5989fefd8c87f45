"""Convolutions of bfloat16 in a library, of any number of images up to a bound."""

from pathlib import Path
from typing import Any

import pytest

import graphc as torch
from graphc.export import Dim, aot, export

from .client import Library
from .libraries import arrays, expected, same


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(6, 8, 3, padding=1)  # few rows: windows of pairs of channels
        self.second = torch.nn.Conv2d(8, 40, 3, stride=2)

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x.bfloat16()).relu()).float()


@pytest.mark.usefixtures("quick_pairs")  # as a library's code, which is for many CPUs
@pytest.mark.parametrize("size", [9, 40])
def test_convolutions_of_any_number_of_images(tmp_path: Path, size: int) -> None:
    torch.manual_seed(0)
    model = Small().bfloat16().eval()
    x = torch.randn(7, 6, size, size)
    program = export(model, (x,), dynamic_shapes={"x": {0: Dim("batch", max=9)}})
    aot(program, tmp_path, name="small")
    library = Library(tmp_path / "libsmall.so", "small")
    context = library.context(threads=2)
    for threads in (1, 2):
        assert library.set_threads(context.pointer, threads) == 0
        for images in (1, 2, 7, 9):
            x = torch.randn(images, 6, size, size)
            same(context(*arrays((x,))), expected(program(x)))
    context.close()
