"""Training steps in WebAssembly, under Node: state by name, files, random numbers."""

from __future__ import annotations

import base64
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.export import ExportedStep, aot, export_step, safetensors
from tests.export.aot.steps import CASES, exported_small, small_batch

from .node import Refused, ask, call, heard, node, results, told
from .test_results import near


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The loader of a small step: embeddings, statistics, dropout, a rate, momentum."""
    node()
    return aot(exported_small(), tmp_path_factory.mktemp("step"), name="small",
               targets=["wasm32"]).header


def arrays(args: tuple[Any, ...]) -> list[np.ndarray]:
    return [np.array(each if isinstance(each, float) else each.numpy()) for each in args]


def turns(first: int, last: int, **more: Any) -> list[dict[str, Any]]:
    return [call(*arrays(small_batch(k)), **more) for k in range(first, last)]


def file_of(answer: Any) -> bytes:
    assert not isinstance(answer, Refused), answer
    return base64.b64decode(answer)


def file_near(
    file: bytes, step: ExportedStep, rtol: float = 2e-5, noise: tuple[str, ...] = ()
) -> None:
    """The state in a file is the step's; but for what ends in `noise`."""
    found, _ = safetensors.loads(file)
    wanted = {name: tensor.numpy() for name, tensor in step.state_dict().items()}
    assert found.keys() == wanted.keys()
    names = [name for name in wanted if not name.endswith(noise)]
    near([found[name] for name in names], [wanted[name] for name in names], rtol)


def test_a_step(small: Path) -> None:
    """The numbers of the step in Python: which are dropped is drawn alike."""
    step = exported_small()
    step.manual_seed(3)
    found = ask(small, [{"do": "seed", "seed": 3}, *turns(0, 12), {"do": "save"}])
    for k in range(12):
        item, made, number = step(*small_batch(k))
        loss, out, counted = results(found[1 + k])
        near([loss, counted], [np.float32(item)[()].reshape(()), np.float64(number).reshape(())])
        near([out], [made.numpy()])
        np.testing.assert_array_equal(out == 0, made.numpy() == 0)
    file_near(file_of(found[-1]), step)


def test_stop_save_and_go_on(small: Path) -> None:
    """In another context, to the bit; and in Python."""
    answers = ask(small, [*turns(0, 4), {"do": "save"}, *turns(4, 9), {"do": "save"}])
    file = file_of(answers[4])
    load = {"do": "load", "file": base64.b64encode(file).decode(), "context": "b"}
    other = ask(small, [
        {"do": "create", "context": "b"}, *turns(2, 3, context="b"), load,
        *turns(4, 9, context="b"), {"do": "save", "context": "b"},
    ])
    assert other[3:] == answers[5:]
    twin = exported_small()
    twin.load_state_dict(safetensors.loads(file)[0])
    near([results(answers[5])[1]], [twin(*small_batch(4))[1].numpy()])


def test_state_by_name(small: Path) -> None:
    entry = exported_small().entries[0]
    rows = np.arange(20, dtype=np.float32).reshape(entry.shape)
    found = ask(small, [
        {"do": "write", "name": entry.name, "tensor": told(rows)},
        {"do": "read", "name": entry.name}, {"do": "read", "name": "nothing"},
        {"do": "write", "name": entry.name, "tensor": told(rows[0])},
    ])
    np.testing.assert_array_equal(heard(found[1]), rows)
    assert (found[2].code, found[2].text) == (
        "GRAPHC_ARGUMENT", "nothing is no part of the state"
    )
    assert found[3].code == "GRAPHC_SHAPE"


def test_what_is_refused_changes_nothing(small: Path) -> None:
    x, index, rate = arrays(small_batch(0))
    broken = base64.b64encode(b"\x08\0\0\0\0\0\0\0{}      ").decode()
    found = ask(small, [
        {"do": "save"}, call(x, index + 5, rate), {"do": "load", "file": broken},
        {"do": "load", "file": ""}, {"do": "save"},
    ])
    assert [each.code for each in found[1:4]] == ["GRAPHC_VALUE", "GRAPHC_FILE", "GRAPHC_FILE"]
    assert "the file lacks" in found[2].text and found[4] == found[0]


@pytest.mark.parametrize("name", [
    "convolutions", *(pytest.param(name, marks=pytest.mark.slow) for name in CASES
                      if name != "convolutions"),
])
def test_training(name: str, tmp_path: Path) -> None:
    """So many steps of each optimizer as Python's, and the state behind them."""
    node()
    case, count = CASES[name], 100
    step, _, _ = case.step()
    exported = export_step(step, case.batch(0), **({"calls": case.calls} if case.calls else {}))
    made = aot(exported, tmp_path, name="trained", targets=["wasm32"]).header
    requests = [call(*arrays(case.batch(k))) for k in range(count)]
    found = ask(made, [{"do": "seed", "seed": 5}, *requests, {"do": "save"}])
    if exported.generators:
        exported.manual_seed(5)
    else:
        assert found[0].text == "the step draws no random numbers"
    for k in range(count):
        near(results(found[1 + k]), [exported(*case.batch(k)).detach().numpy()], 2e-3)
    # what has no slope but by rounding, of which Adam makes steps: a bias in front of a norm, which
    # takes it off again, and that of attention's keys
    noise = {
        "convolutions": ("layers.0.bias", "running_mean"), "gpt": ("attention.bias",),
    }.get(name, ())
    file_near(file_of(found[-1]), exported, 5e-3, noise)


def test_numbers_of_python(tmp_path: Path) -> None:
    """Computed between calls as libm would, to the last bits; refused where Python raises."""
    node()

    def step(x: Any, rate: float) -> Any:
        return (
            x * (rate ** 1.7), math.exp(rate), math.sin(rate * 1e9), math.log1p(rate),
            math.fmod(7.5, rate), math.atan2(rate, -0.3), math.erf(rate), rate % 0.3, rate // 0.1,
            math.sqrt(rate), math.log(rate), math.pow(rate, 3), math.cosh(rate),
            math.cbrt(rate * 1e-310), math.cbrt(-rate), math.cbrt(rate * 1e300),
        )

    args = torch.ones(2), 0.7
    exported = export_step(step, args)
    made = aot(exported, tmp_path, name="numbers", targets=["wasm32"], weights="file").header
    rates = (0.7, 0.01, 3.25, 40.0, 0.0)
    found = ask(made, [call(np.ones(2, np.float32), np.array(rate)) for rate in rates])
    for rate, answer in zip(rates[:-1], found, strict=False):
        x, *others = results(answer)
        y, *wanted = step(torch.ones(2), rate)
        near([x], [y.numpy()])
        np.testing.assert_allclose(np.array(others), wanted, 5e-16)
    assert found[-1].code == "GRAPHC_VALUE" and "cannot be computed" in found[-1].text
