"""A model's WebAssembly under Node: requests in, answers out."""

from __future__ import annotations

import base64
import functools
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphc.export.aot.linking import webassembly
from graphc.ir import dtypes

FIRST = {"do": "create"}
DRIVER = Path(__file__).with_name("driver.mjs")


class Refused(Exception):
    """What the loader throws: a code and its text."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code, self.text = code, text


@functools.cache
def node() -> str:
    """Node, with WebAssembly's vectors. Skips the test where there is none, or no linker."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("there is no node")
    version = subprocess.run([found, "--version"], capture_output=True, text=True).stdout
    if int(version.lstrip("v").split(".")[0]) < 18:
        pytest.skip(f"node {version.strip()} is too old")
    if not webassembly.available():
        pytest.skip("there is no linker for WebAssembly")
    return found


def told(array: np.ndarray) -> dict[str, Any]:
    """A tensor as a request has it."""
    data = base64.b64encode(array.tobytes()).decode()
    return {"dtype": dtypes.from_numpy(array.dtype).name, "shape": array.shape, "data": data}


def heard(answer: dict[str, Any]) -> np.ndarray:
    """A tensor of an answer."""
    kind = dtypes.by_name(answer["dtype"]).numpy
    return np.frombuffer(base64.b64decode(answer["data"]), kind).reshape(answer["shape"])


def ask(
    script: Path, requests: Iterable[dict[str, Any]], first: Mapping[str, Any] = FIRST
) -> list[Any]:
    """What comes of each request, behind the first, which makes a context; a Refused for an error.
    """
    with tempfile.TemporaryDirectory() as name:
        given, answers = Path(name) / "requests.json", Path(name) / "answers.json"
        given.write_text(json.dumps([first, *requests]))
        done = subprocess.run(
            [node(), str(DRIVER), str(script), str(given), str(answers)],
            capture_output=True, text=True,
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(answers.read_text())
    made = [Refused(each["error"], each["text"]) if "error" in each else each["value"]
            for each in found]
    assert made[0] is None, made[0]
    return made[1:]


def call(*arrays: np.ndarray, **more: Any) -> dict[str, Any]:
    """A request to run the model, or a step."""
    return {"do": "call", "inputs": [told(each) for each in arrays], **more}


def results(answer: Any) -> list[np.ndarray]:
    """The tensors that a call answers."""
    if isinstance(answer, Refused):
        raise answer
    return [heard(each) for each in answer.values()]
