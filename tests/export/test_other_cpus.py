"""Whole libraries on CPUs that are not this one: emulated, as a loader puts them there."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.export
import graphc.nn as nn
from graphc import backends
from graphc.backends.llvm.freestanding.levels import target_named
from graphc.export import program as program_module
from graphc.export.aot.linking import linkers
from tests.backends.llvm.emulated import EmulatedBackend
from tests.export.client_examples import example
from tests.export.emulated_library import EmulatedLibrary, refuses_wide_code

client = example("python/client.py")
F32 = [name for name, _ in client.DTYPES].index("f32")


class Emulated:
    """A library's context on an emulated CPU; what it is given lies in this process."""

    def __init__(self, path: Path, cpu: bytes | None = None) -> None:
        self.library = EmulatedLibrary(path.read_bytes())
        self.wide = refuses_wide_code(self.library)
        self.context, message = ctypes.c_void_p(), ctypes.create_string_buffer(256)
        options = client.Options(
            abi=client.ABI, cpu=cpu, message=ctypes.cast(message, ctypes.c_char_p),
            message_bytes=len(message),
        )
        code = self.library.call("m_create", ctypes.addressof(options),
                                 ctypes.addressof(self.context))
        self.code, self.message = code & 0xFFFFFFFF, message.value.decode()

    @property
    def level(self) -> str:
        return self.library.text(self.library.call("m_cpu", self.context.value))

    def run(self, array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        made = np.zeros(shape, np.float32)
        tensors = []
        for each in (array, made):
            sizes = (ctypes.c_int64 * each.ndim)(*each.shape)
            tensors.append((client.Tensor(
                each.ctypes.data, each.nbytes, F32, each.ndim,
                ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64)),
            ), sizes))
        code = self.library.call("m_run", self.context.value, *(
            ctypes.addressof(tensor) for tensor, _ in tensors
        ))
        if code & 0xFFFFFFFF:
            said = self.library.call("m_message", self.context.value)
            raise RuntimeError(self.library.text(said))
        return made

    def close(self) -> None:
        self.library.call("m_destroy", self.context.value)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(9, 17), nn.Tanh(), nn.Linear(17, 5)), (3, 9)),
    "convolution": (lambda: nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(27, 4), nn.Softmax(1),
    ), (2, 1, 8, 8)),
}


def exported(model: str, most: int | None = None) -> graphc.export.ExportedProgram:
    """`most`: of batches; one size for all where it is left out."""
    make, shape = MODELS[model]
    torch.manual_seed(1)
    x = torch.randn(*shape)
    free = {"input": {0: graphc.export.Dim("batch", min=1, max=most)}} if most else None
    return graphc.export.export(make().eval(), (x,), dynamic_shapes=free)


def made(
    folder: Path, model: str, targets: Sequence[str], most: int | None = None
) -> tuple[Path, np.ndarray, np.ndarray]:
    """The library of a model, an input, and what this machine makes of it."""
    program = exported(model, most)
    graphc.export.aot(program, folder, name="m", targets=[*targets], freeze=False)
    x = torch.randn(*MODELS[model][1])
    return folder / "libm.so", x.numpy(), program(x).numpy()


@pytest.fixture(autouse=True)
def a_linker(request: Any) -> None:
    arch = "aarch64" if "arm" in request.node.name else "x86_64"
    if not linkers.available(arch):
        pytest.skip(f"there is no linker for {arch} here: pip install ziglang")


def test_a_cpu_without_avx_gets_code_without_avx(tmp_path: Path) -> None:
    """A Nehalem: the library has code for AVX-512, too, and comes to none of it."""
    path, x, expected = made(tmp_path, "mlp", ["x86-64-v2", "x86-64-v4"])
    emulated = Emulated(path)
    assert (emulated.code, emulated.message, emulated.level) == (0, "", "x86-64-v2")
    np.testing.assert_allclose(emulated.run(x, expected.shape), expected, rtol=1e-5, atol=1e-6)
    emulated.close()
    assert not emulated.wide


def test_a_cpu_below_all_levels_is_told(tmp_path: Path) -> None:
    path, _, _ = made(tmp_path, "mlp", ["x86-64-v4"])
    for cpu in (None, b"x86-64-v4"):  # asking for one by its name makes no CPU have it
        emulated = Emulated(path, cpu)
        assert emulated.code == 11 and "this CPU" in emulated.message, emulated.message
        assert not emulated.context and not emulated.wide


@pytest.mark.parametrize("model", MODELS)
def test_arm(tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """NEON: other lanes, so other sums than this machine's; those of code for the same target."""
    path, x, expected = made(tmp_path, model, ["aarch64"], most=8)
    emulated = Emulated(path)
    assert (emulated.code, emulated.message, emulated.level) == (0, "", "aarch64")
    monkeypatch.setattr(backends, "_entries", dict(backends._entries))
    monkeypatch.setattr(backends, "_loaded", dict(backends._loaded))
    backends.register("arm", lambda: EmulatedBackend(target_named("aarch64")))
    monkeypatch.setattr(program_module, "DEFAULT", "arm")
    program = exported(model, 8)
    for rows in (len(x), 1):
        found = emulated.run(x[:rows].copy(), (rows, *expected.shape[1:]))
        np.testing.assert_allclose(found, expected[:rows], rtol=1e-5, atol=1e-6)
        assert found.tobytes() == program(torch.from_numpy(x[:rows])).numpy().tobytes()
    emulated.close()
