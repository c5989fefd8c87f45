"""FlopCounterMode against torch's: in all, and by Module; on "meta" nothing is computed."""

from __future__ import annotations

from typing import Any

import pytest

import graphc
from graphc.utils.flop_counter import FlopCounterMode

reference = pytest.importorskip("torch")


def model(torch: Any) -> Any:
    nn = torch.nn

    class Net(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, 8, 3, padding=1)
            self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
            self.groups = nn.Conv2d(4, 4, 3, groups=2)
            self.head = nn.Sequential(nn.Linear(4 * 14 * 14, 16), nn.ReLU(), nn.Linear(16, 5))

        def forward(self, x: Any) -> Any:
            return self.head(self.groups(self.up(self.first(x))).flatten(1))

    return Net()


def counts(torch: Any, mode: Any, device: str) -> dict[str, int]:
    net = model(torch).to(device)
    x = torch.ones(2, 3, 8, 8, device=device)
    with mode(display=False) as counter:
        y = net(x)
        forward = counter.get_total_flops()
        y.sum().backward()
        (torch.bmm(x[0], x[0].transpose(1, 2)) * 2).sum()
    found = {name: sum(by.values()) for name, by in counter.get_flop_counts().items()}
    assert found["Global"] == counter.get_total_flops()
    return {**found, "forward": forward}


def test_as_torch_counts() -> None:
    from torch.utils.flop_counter import FlopCounterMode as Wanted

    want = counts(reference, Wanted, "cpu")
    for device in ("cpu", "meta"):
        assert counts(graphc, FlopCounterMode, device) == want


def test_a_compiled_function_and_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    net = graphc.compile(model(graphc).to("meta"))
    with FlopCounterMode(depth=1) as counter:
        for _ in range(3):
            net(graphc.ones(1, 3, 8, 8, device="meta"))
    once = 2 * 64 * 8 * 27 + 2 * 64 * 8 * 16 + 2 * 196 * 4 * 18 + 2 * 784 * 16 + 2 * 16 * 5
    assert counter.get_total_flops() == 3 * once
    said = capsys.readouterr().out
    assert "aten.convolution" in said and "Net" in said and "Net.head" not in said
    mm = counter.get_flop_counts()["Net.head"][graphc.ops.aten.mm]
    assert mm == 3 * (2 * 784 * 16 + 2 * 16 * 5)


def test_attention_counts_its_five_products_backward() -> None:
    q = graphc.ones(2, 3, 7, 8, device="meta", requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        y = graphc.nn.functional.scaled_dot_product_attention(q, q, q)
        product = 2 * 2 * 3 * 7 * 7 * 8
        assert counter.get_total_flops() == 2 * product
        y.sum().backward()
    assert counter.get_total_flops() == 7 * product
