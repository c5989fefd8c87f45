"""Fixtures shared by all tests."""

import importlib.util
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, and say why."""
    if importlib.util.find_spec("cupy") is not None:
        return
    skip = pytest.mark.skip(reason="needs an NVIDIA GPU and CuPy")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)
