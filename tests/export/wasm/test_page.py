"""The page of examples/clients/web: its logic under Node, and the page in a real browser."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.export.client_examples import example

from .browser import browser, served
from .node import node

UNDER_NODE = Path(__file__).with_name("page_under_node.mjs")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    node()
    folder = tmp_path_factory.mktemp("page")
    example("web/page.py").main(folder, steps=100)
    return folder


def test_reads_and_learns(page: Path) -> None:
    """A stroke is a 1, until it is taught to be a 7; the other digits are not forgotten."""
    done = subprocess.run([node(), UNDER_NODE, page], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    image = np.array(told["image"]).reshape(28, 28)
    for axis, longest in ((1, 22), (0, 4)):  # 20 high, 2 wide, and shares of neighbours
        ink = image.sum(axis)
        assert np.count_nonzero(ink) <= longest
        assert ink @ np.arange(28) / ink.sum() == pytest.approx(13.5, abs=0.05)
    assert image.sum() / 255 == pytest.approx(40, abs=1)
    assert told["nothing"] is None
    assert told["read"] == 1 and told["taught"] == 7
    assert told["losses"][-1] < told["losses"][0] / 3
    assert told["before"] > 0.8 and told["after"] > 0.6


@pytest.mark.slow
def test_in_a_browser(page: Path, tmp_path: Path) -> None:
    """Drawn with the mouse, read, taught, read again."""
    with served(page) as address, browser(tmp_path / "profile") as chromium:
        chromium.open(address)
        chromium.wait("return document.getElementById('said').textContent === ''")
        stroke = [(0, -100), (0, 0), (0, 100)]
        chromium.draw("#paper", *stroke)
        bars = "const values = [...document.querySelectorAll('meter')].map((bar) => bar.value);"
        digit = "const found = document.getElementById('digit').textContent;"
        assert chromium.wait(f"{digit} return found === '-' ? null : found") == "1"
        chromium.run("document.getElementById('truth').value = '7'")
        chromium.click("#teach")
        said = chromium.wait("return document.getElementById('said').textContent")
        first, last = (float(each) for each in said.removeprefix("loss ").split(" to "))
        assert last < first / 3
        assert chromium.run(f"{digit} return found") == "7"
        chromium.click("#clear")
        assert chromium.run(f"{digit} return found") == "-"
        assert chromium.run(f"{bars} return values") == [0] * 10
        chromium.draw("#paper", *stroke)
        assert chromium.wait(f"{digit} return found === '-' ? null : found") == "7"
        values = chromium.run(f"{bars} return values")
        assert len(values) == 10 and sum(values) == pytest.approx(1, abs=1e-5)
        assert values.index(max(values)) == 7
        chromium.click("#clear")
        angles = np.linspace(0, 2 * np.pi, 21)
        ring = np.stack([60 * np.sin(angles), -90 * np.cos(angles)], 1).astype(int).tolist()
        chromium.draw("#paper", *map(tuple, ring))
        assert chromium.wait(f"{digit} return found === '-' ? null : found") == "0"
