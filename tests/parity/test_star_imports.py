"""`from torch... import *`: no name more than torch's, lest the user's own are hidden."""

import importlib

import pytest

import graphc

torch = pytest.importorskip("torch")

MODULES = """
    nn nn.functional nn.init nn.utils nn.utils.rnn nn.parallel optim optim.lr_scheduler autograd
    distributions utils.data linalg fft special func amp jit multiprocessing
""".split()


def star(module: object) -> set[str]:
    found: dict[str, object] = {}
    exec(f"from {module.__name__} import *", found)  # type: ignore[attr-defined]
    return {name for name in found if not name.startswith("__")}


@pytest.mark.parametrize("name", ["", *MODULES])
def test_a_star_gives_torchs_names(name: str) -> None:
    ours = importlib.import_module(f"graphc.{name}".rstrip("."))
    theirs = importlib.import_module(f"torch.{name}".rstrip("."))
    assert star(ours) - star(theirs) == set()


def test_the_star_of_torch_gives_functions_that_load_late() -> None:
    names = star(graphc)
    assert {"tensor", "compile", "svd", "conv2d", "vmap", "SymInt", "float32", "pi"} <= names
    assert not names & {"nn", "math", "sys", "config", "ir", "np"}
