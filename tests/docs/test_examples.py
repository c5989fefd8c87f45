"""The programs in examples/ run, and learn what they are to learn."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "examples"

# program -> arguments of a short run, and what it has to reach
SHORT: dict[str, tuple[dict[str, Any], Any]] = {
    "digits": ({"steps": 40}, lambda right: right > 0.7),
    "gpt": ({"steps": 25}, lambda right: 0 <= right <= 1),
    "vae": ({"steps": 60}, lambda nats: nats < 230),
    "gan": ({"steps": 20}, lambda heaps: 0 <= heaps <= 8),
    "tagger": ({"steps": 15}, lambda right: right > 0.6),
    "cart_pole": ({"episodes": 12}, lambda length: length > 5),
    "graph_network": ({"steps": 60}, lambda right: right > 0.85),
    "fine_tuning": ({"steps": 40}, lambda found: found[0] > 0.85 and found[1] > 0.6),
    "export_model": ({"steps": 60}, lambda right: right > 0.4),
    "diffusion": ({"steps": 30}, lambda distance: distance < 3),
    "physics": ({"steps": 60}, lambda worst: worst < 50),
    "matrix_slow": ({"steps": 60}, lambda found: found[0] > 0.8 and found[3] < 2),
}
# what a whole run has to reach
WHOLE: dict[str, Any] = {
    "digits": lambda right: right > 0.93,
    "gpt": lambda right: right > 0.8,
    "vae": lambda nats: nats < 140,
    "gan": lambda heaps: heaps >= 7,
    "tagger": lambda right: right > 0.97,
    "cart_pole": lambda length: length > 100,
    "graph_network": lambda right: right > 0.9,
    "fine_tuning": lambda found: found[0] > 0.95 and found[1] > 0.85,
    "export_model": lambda right: right > 0.9,
    "diffusion": lambda distance: distance < 0.25,
    "physics": lambda worst: worst < 0.1,
    "matrix_slow": lambda found: min(found[:3]) > 0.9 and found[3] < 0.1,
}


@pytest.fixture
def program(request: Any) -> Iterator[Any]:
    """The module of an example."""
    path = FOLDER / f"{request.param}.py"
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # pickles and tracebacks look there
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_all_are_here() -> None:
    found = {path.stem for path in FOLDER.glob("*.py")}
    assert found == SHORT.keys() == WHOLE.keys()


@pytest.mark.parametrize("program", SHORT, indirect=True)
def test_a_short_run(program: Any) -> None:
    arguments, reached = SHORT[program.__name__.removeprefix("example_")]
    found = program.main(**arguments)
    assert reached(found), found


@pytest.mark.slow
@pytest.mark.parametrize("program", WHOLE, indirect=True)
def test_a_whole_run(program: Any) -> None:
    found = program.main()
    assert WHOLE[program.__name__.removeprefix("example_")](found), found
