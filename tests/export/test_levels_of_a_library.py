"""One library, code for several CPUs: each level that this machine runs, asked for by its name, has
the bits of this process's code for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import graphc as torch
import graphc.export
import graphc.nn as nn
from graphc import backends
from graphc.backends.llvm.backend import LlvmBackend
from graphc.backends.llvm.freestanding import levels
from graphc.backends.llvm.target import host_target
from graphc.export import program as program_module
from graphc.export.aot.linking import linkers

from .client_examples import WARNINGS, example, tool

client = example("python/client.py")
F32 = [name for name, _ in client.DTYPES].index("f32")
HERE = [
    name for name in levels._NAMED
    if levels.target_named(name).arch == host_target().arch
    and levels.needs(levels.target_named(name)) <= levels.needs(levels.target_named("native"))
]


class Model(nn.Module):
    """A product, whose sums are as long as registers, and what has no instruction below v3."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(37, 11)

    def forward(self, x):
        y = self.layer(x)
        return torch.where(y > 0, y.floor() + y.exp(), torch.fmod(y, 0.3)), y.half().float()


def made(folder: Path, names: Sequence[str]) -> graphc.export.ExportedProgram:
    if not linkers.available(host_target().arch):
        pytest.skip("there is no linker here")
    torch.manual_seed(3)
    program = graphc.export.export(Model().eval(), (torch.randn(5, 37),))
    graphc.export.aot(program, folder, name="m", targets=names, freeze=False)
    return program


@pytest.mark.parametrize("names", [
    [*dict.fromkeys([HERE[0], HERE[min(2, len(HERE) - 1)], HERE[-1]])],
    pytest.param(HERE, marks=pytest.mark.slow),
], ids=["few", "all"])
def test_each_level(names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, path = made(tmp_path, names), tmp_path / "libm.so"
    monkeypatch.setattr(backends, "_entries", dict(backends._entries))
    monkeypatch.setattr(backends, "_loaded", dict(backends._loaded))
    for level in (*names, None):
        model = client.Model(path, "m", level)
        chosen = model.cpu
        assert chosen == (level or names[-1])
        backend = LlvmBackend(levels.target_named(chosen))
        backends.register(f"only {level}", lambda backend=backend: backend)
        monkeypatch.setattr(program_module, "DEFAULT", f"only {level}")
        x = torch.randn(5, 37)
        found = model.run([(F32, (5, 37), x.numpy().tobytes())])
        model.close()
        for (_, shape, data), want in zip(found, program(x), strict=True):
            assert shape == want.shape and data == want.numpy().tobytes(), level
    for level in ("x86-64-v5", " ", "native", "aarch64" if "x86-64" in HERE else "x86-64"):
        with pytest.raises(RuntimeError, match="GRAPHC_CPU"):
            client.Model(path, "m", level)
    # nothing that the library needs has to be there before it
    code = f"import ctypes, os; ctypes.CDLL({str(path)!r}, mode=os.RTLD_NOW | os.RTLD_LOCAL)"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)


def test_static_libraries_of_two_models_in_one_program(tmp_path: Path) -> None:
    """Kernels alike, headers together, in one file of the linker's."""
    x = torch.randn(3, 4)
    expected = []
    for name, bias in (("one", 1.0), ("two", 2.0)):
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        nn.init.constant_(model.bias, bias)
        program = graphc.export.export(model.eval(), (x,))
        graphc.export.aot(program, tmp_path, name=name, static=True, freeze=False)
        expected.append(program(x).numpy())
    (tmp_path / "main.c").write_text("""
        #include <stdio.h>
        #include "one.h"
        #include "two.h"
        int main(void)
        {
            static float x[12], y[6];
            one_context *one;
            two_context *two;
            int64_t shape[2] = {3, 4};
            graphc_tensor given = {x, sizeof x, GRAPHC_F32, 2, shape};
            graphc_tensor made = {y, sizeof y, GRAPHC_F32, 2, NULL};
            if (fread(x, sizeof x, 1, stdin) != 1
                || one_create(NULL, &one) || two_create(NULL, &two)
                || one_run(one, &given, &made) || fwrite(y, sizeof y, 1, stdout) != 1
                || two_run(two, &given, &made) || fwrite(y, sizeof y, 1, stdout) != 1)
                return 1;
            one_destroy(one);
            two_destroy(two);
            return 0;
        }
    """)
    compiled = subprocess.run(
        [tool("gcc", "cc", "clang"), *WARNINGS, "main.c", "libone.a", "libtwo.a", "-lm",
         "-lpthread", "-o", "main"], cwd=tmp_path, capture_output=True, text=True,
    )
    assert compiled.returncode == 0, compiled.stderr
    done = subprocess.run(
        [tmp_path / "main"], input=x.numpy().tobytes(), capture_output=True, check=True
    )
    assert done.stdout == b"".join(each.tobytes() for each in expected)
    assert not np.array_equal(*expected)
