"""torch's settings of TF32 hang together as in PyTorch, where it has an answer at all."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import graphc
from graphc.ir.tf32 import Setting

# said, and what is told then: cuda.matmul's allow_tf32 and fp32_precision, cudnn.allow_tf32,
# get_float32_matmul_precision; "?": PyTorch does not answer where its two interfaces are mixed
TOLD = {
    "": (False, "none", True, "highest"),
    "cuda.matmul.allow_tf32 = True": (True, "tf32", True, "high"),
    "precision('high')": (True, "tf32", True, "high"),
    "precision('medium')": (True, "tf32", True, "medium"),
    "precision('high'); precision('highest')": (False, "ieee", True, "highest"),
    "cuda.matmul.fp32_precision = 'tf32'": ("?", "tf32", True, "?"),
    "cuda.matmul.fp32_precision = 'ieee'": (False, "ieee", True, "highest"),
    "cuda.matmul.fp32_precision = 'none'": (False, "none", True, "highest"),
    "cuda.matmul.allow_tf32 = True; cuda.matmul.allow_tf32 = False":
        (False, "ieee", True, "highest"),
    "cuda.matmul.fp32_precision = 'tf32'; cuda.matmul.allow_tf32 = False":
        (False, "ieee", True, "highest"),
    "cudnn.allow_tf32 = False": (False, "none", False, "highest"),
    "cudnn.allow_tf32 = False; cudnn.allow_tf32 = True": (False, "none", True, "highest"),
    "cudnn.conv.fp32_precision = 'tf32'": (False, "none", True, "highest"),
    "fp32_precision = 'tf32'": ("?", "tf32", True, "?"),
    "cudnn.fp32_precision = 'tf32'": ("?", "tf32", True, "?"),
}
_READ = (
    "backends.cuda.matmul.allow_tf32", "backends.cuda.matmul.fp32_precision",
    "backends.cudnn.allow_tf32", "get()",
)


def told(t: Any, said: str) -> tuple[Any, ...]:
    names = {
        "precision": t.set_float32_matmul_precision, "backends": t.backends,
        "get": t.get_float32_matmul_precision,
    }
    for line in filter(None, said.split("; ")):
        exec(line if "(" in line else f"backends.{line}", names)
    found = []
    for expression in _READ:
        try:
            found.append(eval(expression, names))
        except RuntimeError:
            found.append("?")
    return tuple(found)


@pytest.fixture(autouse=True)
def as_at_first() -> Iterator[None]:
    """Tests before may have set something."""
    _reset()
    yield
    _reset()


def _reset() -> None:
    Setting.matmul = ""
    cudnn = graphc.backends.cudnn
    cudnn.allow_tf32, cudnn.conv.fp32_precision = True, "tf32"
    cudnn.fp32_precision = graphc.backends.fp32_precision = "none"


@pytest.mark.parametrize("said", TOLD)
def test_what_is_said_is_told(said: str) -> None:
    have = told(graphc, said)
    assert [b if a == "?" else a for a, b in zip(TOLD[said], have, strict=True)] == list(have)


@pytest.mark.slow
def test_so_it_is_in_pytorch() -> None:
    """In processes of their own: what has imported torch.testing may not set these."""
    pytest.importorskip("torch")
    script = (
        "import ast, os, sys, torch\n"
        "from tests.frontend.test_float32_settings import told\n"
        "for said in ast.literal_eval(sys.argv[1]):\n"
        "    if os.fork() == 0:\n"
        "        print((said, told(torch, said)), flush=True)\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
    )
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, repr(list(TOLD))], capture_output=True,
        text=True, check=True,
    )
    assert dict(map(ast.literal_eval, run.stdout.splitlines())) == TOLD


def test_what_there_is_not() -> None:
    with pytest.raises(RuntimeError, match="'highest', 'high', 'medium'"):
        graphc.set_float32_matmul_precision("huge")
    with pytest.raises(RuntimeError, match="does not support precision 'bf16'"):
        graphc.backends.cuda.matmul.fp32_precision = "bf16"
