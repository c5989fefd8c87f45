"""The folder of the libraries that tests of this folder share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def _on_linux() -> None:
    if sys.platform != "linux":
        pytest.skip("libraries are for Linux")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of all files of tests, so that each library is made once in a process."""
    return tmp_path_factory.mktemp("libraries")
