"""`import torch` finds graphc, in processes of their own: this one has the real torch."""

import pkgutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from graphc.compat.finder import is_own

ROOT = Path(__file__).parents[2]


def run(body: str) -> str:
    """Run a program after install(); its output. It must leave the real torch alone."""
    program = "import graphc, graphc.compat\ngraphc.compat.install()\n" + textwrap.dedent(body)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_both_names_are_one_module() -> None:
    run("""
        import importlib.metadata, importlib.util, sys
        import torch, torch.nn as nn, torch.nn.functional as F, torch.utils.data as data
        import torch.backends.cudnn as cudnn, torch.random, torch.utils._pytree
        import torchvision.transforms as transforms
        from torch.nn import functional as F2
        from torch.autograd import Variable
        import torch.optim.lr_scheduler
        assert torch is graphc and nn is graphc.nn and F is F2 is graphc.nn.functional
        assert data is graphc.utils.data and transforms is graphc.vision.transforms
        assert torch.random.manual_seed is graphc.manual_seed
        assert isinstance(nn.Linear(1, 1), graphc.nn.Module) and torch.torch is torch
        assert str(type(torch.ones(1))) == "<class 'torch.Tensor'>"  # libraries look for the name
        assert nn.__name__ == nn.__spec__.name == "graphc.nn" and torch.__spec__ is not None
        assert sys.modules["torch.nn.functional"] is F
        assert importlib.util.find_spec("torch") and importlib.util.find_spec("torch.nn.init")
        assert importlib.util.find_spec("torch.no_such_thing") is None
        cudnn.benchmark = True
        assert graphc.backends.cudnn.benchmark is True
        assert importlib.metadata.version("torch") == str(torch.__version__) == "2.13.0+graphc"
        assert importlib.metadata.version("torchvision")
        from packaging.version import Version
        assert Version(torch.__version__) >= Version("2.6") and torch.__version__ >= "2.10"
        assert torch.__version__ >= (1, 8) and not torch.__version__ < "2.6.0"
    """)


def test_parts_that_torch_lacks_say_so() -> None:
    """The docstring of a part of graphc begins with torch's name, or torch has no such part."""
    torch = pytest.importorskip("torch")
    parts = {module.name for module in pkgutil.iter_modules([str(ROOT / "graphc")])}
    theirs = {module.name for module in pkgutil.iter_modules(torch.__path__)}
    assert {part for part in parts if is_own(f"torch.{part}")} == parts - theirs
    assert {"engine", "ir", "frontend", "doubt"} <= parts - theirs


# (what a program does, the error's type, a part of its text)
MISSING = [
    ("import torch.foo", "ModuleNotFoundError", "graphc does not have torch.foo"),
    ("import torch.engine", "ModuleNotFoundError", "graphc does not have torch.engine"),
    ("import torch.doubt.compare", "ModuleNotFoundError", "does not have torch.doubt"),
    ("import torch.nn.foo.bar", "ModuleNotFoundError", "graphc does not have torch.nn.foo"),
    ("from torch import foo", "ImportError", "graphc does not have torch.foo"),
    ("from torch.nn import Foo", "ImportError", "from 'torch.nn'"),
    ("from torch.nn.init import foo", "ImportError", "does not have torch.nn.init.foo"),
    ("import torch; torch.foo", "AttributeError", "graphc does not have torch.foo"),
    ("import torch.nn as n; n.Foo", "AttributeError", "does not have torch.nn.Foo"),
    ("import torch; torch.export.Foo", "AttributeError", "does not have torch.export.Foo"),
    ("import torch.frontend", "ModuleNotFoundError", "does not have torch.frontend"),
    ("import torchvision.foo", "ModuleNotFoundError", "does not have torchvision.foo"),
]


def test_what_is_missing_says_so() -> None:
    out = run(f"""
        for code in {[code for code, _, _ in MISSING]!r}:
            try:
                exec(code)
            except Exception as problem:
                print(type(problem).__name__, problem)
            else:
                print("nothing is missing:", code)
        import torch, torch.nn
        assert not hasattr(torch, "foo") and not hasattr(torch.nn, "Foo")
        assert hasattr(torch.nn, "Linear")
    """)
    for line, (_, error, text) in zip(out.splitlines(), MISSING, strict=True):
        assert line.startswith(f"{error} ") and text in line


def test_uninstall_brings_torch_back() -> None:
    pytest.importorskip("torch")
    run("""
        import sys
        import torch.nn
        graphc.compat.install()
        graphc.compat.uninstall()
        graphc.compat.uninstall()
        assert not [name for name in sys.modules if name.split(".")[0] == "torch"]
        assert graphc.__version__ == "0.1.0"
        import importlib.metadata
        assert importlib.metadata.version("torch") != "2.13.0+graphc"
        try:
            graphc.nn.Foo
        except AttributeError as error:
            assert "torch" not in str(error)
        graphc.compat.install()
        import torch
        assert torch is graphc
    """)


def test_the_packages_say_torchs_names() -> None:
    """Libraries ask a namespace for its name (Pyro, array_api_compat)."""
    run("""
        import sys
        import torch, torchvision
        assert torch.__name__ == "torch" and torchvision.__name__ == "torchvision"
        assert torch.__package__ == torch.__spec__.name == "graphc"

        @torch.compile(fullgraph=True)
        def length(x):
            return x + len(torch.__name__)

        assert length(torch.ones(())).item() == 6
        # graphc's own imports of parts that torch lacks, and of what is there only now
        exec("from . import doctor as own", {"__package__": "graphc"}, names := {})
        assert names["own"] is sys.modules["graphc.doctor"] and graphc.doctor is names["own"]
        exec("from .. import cache_command", {"__package__": "graphc.nn"}, names)
        assert not {"torch.doctor", "torch.cache_command"} & {*sys.modules}
        for text in ("import torch.explain_command", "from torch import explain_command"):
            try:
                exec(text)
            except ImportError as error:
                assert "graphc does not have torch.explain_command" in str(error)
            else:
                raise AssertionError(text)
        assert "graphc.explain_command" not in sys.modules
        graphc.compat.uninstall()
        assert graphc.__name__ == "graphc" and graphc.vision.__name__ == "graphc.vision"
    """)


def test_install_refuses_a_torch_that_is_in_use() -> None:
    run("""
        import sys, types
        graphc.compat.uninstall()
        sys.modules["torch"] = types.ModuleType("torch")
        try:
            graphc.compat.install()
        except ImportError as error:
            assert "before anything imports it" in str(error)
        else:
            raise AssertionError
    """)


def test_importing_is_quick() -> None:
    """Modules name each other in circles: walking them all takes minutes."""
    out = run("""
        import time
        started = time.perf_counter()
        import torch, torch.nn, torch.optim
        print(time.perf_counter() - started)
    """)
    assert float(out) < 10


def test_classes_that_are_named_as_torchs_are_graphcs_own() -> None:
    run("""
        import torch
        from graphc import config
        from graphc.engine.capture.kinds import is_ours
        from graphc.engine.update import rows

        class Mine(torch.nn.Parameter):
            pass

        assert is_ours(torch.Tensor) and is_ours(torch.nn.Parameter) and is_ours(torch.nn.Linear)
        assert not is_ours(Mine) and not is_ours(dict)
        calls = []
        right = rows.Batch.run
        rows.Batch.run = lambda self: (calls.append(self), right(self))
        config.set_default(steps="1")
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        assert len(calls) == 3, calls  # all but the first, which makes state
    """)
