"""Packages whose names are imported when they are asked for."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import graphc
from graphc import export, nn, optim
from graphc.nn import functional as F
from graphc.on_demand import on_demand

ROOT = Path(graphc.__file__).parent


def listed(file: str) -> dict[str, set[str]]:
    """What the imports for type checkers say, by module."""
    found: dict[str, set[str]] = {}
    for node in ast.parse((ROOT / file).read_text()).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for each in node.body:
                if isinstance(each, ast.ImportFrom) and each.module and each.names[0].name != "*":
                    names = {alias.asname or alias.name for alias in each.names}
                    found[each.module] = found.get(each.module, set()) | names
    return found


@pytest.mark.parametrize("package", [nn, nn.modules, F, optim, export], ids=lambda p: p.__name__)
def test_what_type_checkers_read_is_what_there_is(package: object) -> None:
    file = Path(package.__file__).relative_to(ROOT).as_posix()  # type: ignore[attr-defined]
    names = {
        module: set(text.split())
        for module, text in package._NAMES.items()  # type: ignore[attr-defined]
        if not (package is nn and module == "modules")
    }
    assert names == listed(file)


@pytest.mark.parametrize("package", [nn, nn.modules, F, optim, export], ids=lambda p: p.__name__)
def test_every_name_is_there(package: object) -> None:
    every = package.__all__  # type: ignore[attr-defined]
    assert len(set(every)) == len(every) and set(every) <= set(dir(package))
    for name in dir(package):
        value = getattr(package, name)
        if name in every and isinstance(value, type):
            assert value.__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Frobnicator'"):
        package.Frobnicator  # type: ignore[attr-defined]  # noqa: B018


USE = """
import sys
import graphc, graphc.nn as nn
loaded = [name for name in sys.modules if name.startswith("graphc.nn.")]
assert "graphc.nn.modules.rnn" not in loaded and "graphc.nn.functional.loss" not in loaded, loaded
assert "graphc.ir.kernel" not in sys.modules and "llvmlite" not in sys.modules
assert "ml_dtypes" not in sys.modules and graphc.bfloat16.itemsize == 2
assert "ml_dtypes" in sys.modules
def gelu(x): return x
nn.functional.gelu = gelu  # before its file is loaded
assert nn.functional.relu is nn.functional.relu and nn.functional.gelu is gelu
from graphc.nn.modules.activation import MultiheadAttention, ReLU
from graphc.nn.modules.conv import LazyConv2d
from graphc.nn import *
from graphc.nn.functional import *
assert MultiheadAttention is nn.MultiheadAttention and LazyConv2d is nn.LazyConv2d
assert Linear is nn.Linear and init is nn.init and callable(fold) and callable(unfold)
assert isinstance(nn.Sequential(nn.ReLU()), Module)
assert nn.modules.loss.CTCLoss is CTCLoss and graphc.optim.adam.Adam is graphc.optim.Adam
assert graphc.optim.lr_scheduler.StepLR
"""


LOOKED_THROUGH = """
import sys
import graphc
from graphc import export, nn, optim
assert "graphc.optim.sgd" not in sys.modules and "graphc.nn.modules.rnn" not in sys.modules
assert optim.__dict__["SGD"] is optim.SGD and "graphc.optim.rprop" in sys.modules
assert {"Adam", "LBFGS", "Optimizer", "lr_scheduler"} <= set(vars(optim))
assert nn.__dict__["CrossEntropyLoss"](reduction="sum").reduction == "sum" and "LSTM" in vars(nn)
assert nn.functional.__dict__["relu"] is nn.functional.relu
optim.__dict__["Mine"] = 3
del optim.__dict__["SGD"]
assert optim.Mine == 3 and optim.__dict__["SGD"] is optim.SGD
@graphc.compile(fullgraph=True)
def step(x, name):
    return getattr(nn.functional, name)(x) + nn.functional.__dict__["tanh"](x)
assert step(graphc.zeros(2), "relu").tolist() == [0, 0]
"""


def test_a_package_is_whole_where_somebody_looks_through_it() -> None:
    subprocess.run([sys.executable, "-c", LOOKED_THROUGH], check=True)


def test_a_program_loads_what_it_uses() -> None:
    subprocess.run([sys.executable, "-c", USE], check=True)


HALVES = """
import sys
import numpy as np
import graphc
def step(x):
    return (x.to(graphc.bfloat16) * 2).sum()
assert "ml_dtypes" not in sys.modules
compiled = graphc.compile(step, fullgraph=True)
assert compiled(graphc.ones(3)).item() == compiled(graphc.ones(3)).item() == 6
assert "ml_dtypes" in sys.modules
"""
GIVEN = """
import sys
import ml_dtypes, numpy as np
import graphc
x = graphc.from_numpy(np.ones(3, ml_dtypes.bfloat16))
assert x.dtype is graphc.bfloat16 and (x + 1).tolist() == [2, 2, 2]
"""
FEW = """
import sys
import graphc
graphc.nn.Conv2d(3, 6, 5)
graphc.ones(6, 4).t().reshape(3, 8).to(graphc.float64)
assert "graphc.engine.eager_copies" not in sys.modules and "graphc.ir.kernel" not in sys.modules
"""
COLD = """
import os, sys, tempfile
os.environ["GRAPHC_CACHE_DIR"] = tempfile.mkdtemp()
import graphc

def step(x):
    return (x * 2).softmax(-1).sum()

assert graphc.compile(step, fullgraph=True)(graphc.ones(2, 3)).item() == 2
assert "llvmlite" in sys.modules and "ml_dtypes" not in sys.modules
"""
WAITS = """
import sys
import numpy as np
import graphc

def step(x):
    return x * float(np.fft.fftfreq(4)[1]) * len(np.char.upper("a").item())

compiled = graphc.compile(step, fullgraph=True)
assert not {"numpy.fft", "numpy.char"} & set(sys.modules)
assert compiled(graphc.ones(2)).tolist() == compiled(graphc.ones(2)).tolist() == [0.25, 0.25]
"""


@pytest.mark.parametrize("program", [HALVES, GIVEN, FEW, COLD, WAITS])
def test_what_numpy_lacks_or_has_not_imported_waits_for_its_use(
    program: str, tmp_path: Path
) -> None:
    file = tmp_path / "program.py"
    file.write_text(program)
    subprocess.run([sys.executable, str(file)], check=True)


def test_two_threads_ask_at_once() -> None:
    code = """
import threading, graphc.nn.functional as F
found, start = [], threading.Barrier(8)
def ask():
    start.wait()
    found.append((F.cross_entropy, F.max_pool2d))
threads = [threading.Thread(target=ask) for _ in range(8)]
[each.start() for each in threads]; [each.join() for each in threads]
assert len(set(found)) == 1, found
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_module_that_lacks_a_listed_name() -> None:
    ask, _, _ = on_demand("graphc.optim", {"adam": "Adamantine"})
    with pytest.raises(AttributeError, match="Adamantine"):
        ask("Adamantine")


def test_capture_looks_at_no_package_whole() -> None:
    """One that is reached by a compiled function, in an object of the user's, has its names when
    they are asked for; nothing is imported while the function is recorded."""
    program = """
import sys, types
import graphc
space = types.SimpleNamespace(nn=graphc.nn, functional=graphc.nn.functional, optim=graphc.optim)
weight = graphc.ones(3, requires_grad=True)

def step(x):
    weight.grad = None
    return (space.functional.relu(x) * weight).sum()

space.functional.relu
before = set(sys.modules)
graphc.compile(step, fullgraph=True)(graphc.ones(3))
late = "graphc.nn.functional."
print(sorted(name for name in set(sys.modules) - before if name.startswith(late)))
"""
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stdout.strip()) == (0, "[]"), found.stderr
