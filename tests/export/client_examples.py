"""The programs of examples/clients, as modules and as files; compilers, or their names."""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

CLIENTS = Path(__file__).parents[2] / "examples" / "clients"
WARNINGS = ("-O2", "-Wall", "-Wextra", "-Werror", "-pedantic")


@functools.cache
def example(path: str) -> Any:
    """A program as a module: "make.py", "python/client.py"."""
    spec = importlib.util.spec_from_file_location("example_" + path[:-3].replace("/", "_"),
                                                  CLIENTS / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tool(*names: str) -> str:
    """The first of these programs that is here; else the test is skipped by their names."""
    for name in names:
        if (found := shutil.which(name)) is not None:
            return found
    pytest.skip(f"not installed: {', '.join(names)}")


def run(*command: str | Path) -> str:
    """What a program prints that ends well."""
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def refused(*command: str | Path) -> str:
    """What a program says that ends with 1."""
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr + done.stdout
    return done.stderr
