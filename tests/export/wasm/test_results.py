"""What WebAssembly computes, under Node, against the same programs in this process."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
from benchmarks import models
from graphc.__main__ import main
from graphc.backends.host.interface import Interface
from graphc.export import Dim, ExportedProgram, ExportError, aot, export, export_step
from graphc.export.aot.web.script import script
from tests.docs.pages import blocks
from tests.export.aot.libraries import arrays, expected, exported
from tests.export.aot.models import CASES

from .node import ask, call, node, results


@pytest.fixture(scope="module", autouse=True)
def _under_node() -> None:
    node()


def script_of(folder: Path, program: ExportedProgram, name: str, **options: Any) -> Path:
    """The loader of a program's module."""
    return aot(program, folder, name=name, targets=["wasm32"], **options).header


def near(found: list[np.ndarray], wanted: list[np.ndarray], rtol: float = 2e-5) -> None:
    """Integers are equal, floats nearly."""
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        if np.issubdtype(one.dtype, np.integer) or one.dtype == np.bool_:
            np.testing.assert_array_equal(one, other)
        else:
            wide = one.astype(np.float64), other.astype(np.float64)
            np.testing.assert_allclose(*wide, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize("name", [
    "small", "kinds", "lenet",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("block", "norms", "sequence")),
])
def test_the_numbers_of_the_program(name: str, freeze: bool, tmp_path: Path) -> None:
    """And the same bits in a second call, and in another context."""
    torch.manual_seed(1)
    program = exported(name)
    calls = [CASES[name].args(), *CASES[name].others()]
    made = script_of(tmp_path, program, name, freeze=freeze)
    found = ask(made, [
        {"do": "create", "context": "second"},
        *(call(*arrays(args)) for args in calls),
        *(call(*arrays(args), context=each) for args in calls for each in ("first", "second")),
    ])
    for number, args in enumerate(calls):
        near(results(found[1 + number]), expected(program(*args)))
        again = found[1 + len(calls) + 2 * number:][:2]
        assert again == [found[1 + number]] * 2


def test_the_module_imports_nothing(tmp_path: Path) -> None:
    weights = nn.Linear(4, 3).eval()
    made = aot(export(weights, (torch.randn(2, 4),)), tmp_path, name="linear", targets=["wasm32"])
    assert made.library == tmp_path / "linear.wasm" and made.header == tmp_path / "linear.mjs"
    told = subprocess.run([node(), "-e", (
        "const module = new WebAssembly.Module(require('fs').readFileSync(process.argv[1]));"
        "console.log(JSON.stringify(['imports', 'exports'].map(of => WebAssembly.Module[of](module)"
        ".map(each => each.name))))"
    ), made.library], capture_output=True, text=True, check=True).stdout
    imports, exports = json.loads(told)
    assert imports == [] and {"memory", "linear_run", "linear_create"} <= set(exports)
    assert not [name for name in exports if "graphc" in name or name == "malloc"]


@pytest.mark.parametrize("weights", ["embedded", "file"])
def test_weights(weights: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(40, 30).eval(), torch.randn(2, 40)
    made = script_of(tmp_path, export(model, (x,)), "linear", weights=weights, freeze=False)
    near(results(ask(made, [call(*arrays((x,)))])[0]), expected(model(x)))
    if weights == "file":
        file = tmp_path / "linear.safetensors"
        file.write_bytes(file.read_bytes().replace(b"weight", b"height"))
        with pytest.raises(AssertionError, match="GRAPHC_FILE: the weights' file is another"):
            ask(made, [])


def test_what_is_refused(tmp_path: Path) -> None:
    """By the loader, or by the module, in words; the context goes on."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 2)).eval()
    free = {"input": {0: Dim("batch", min=1, max=4)}}
    program = export(model, (torch.tensor([1, 2]),), dynamic_shapes=free)
    made = script_of(tmp_path, program, "rows")
    good, bad = np.array([0, 4]), np.array([0, 5])
    found = ask(made, [
        call(good), call(bad), call(good.astype(np.int32)), call(np.zeros(5, np.int64)),
        call(np.zeros((1, 1), np.int64)), {"do": "create", "context": "c", "options": {
            "sizes": {"batch": 9}}}, {"do": "create", "options": {"sizes": {"rows": 1}}}, call(),
        {"do": "save"}, call(good),
        {"do": "create", "context": "few", "options": {"sizes": {"batch": 2}}},
        call(np.zeros(2, np.int64), context="few"),
    ])
    told = [(each.code, each.text) for each in found[1:9]]
    assert [code for code, _ in told[:7]] == [f"GRAPHC_{code}" for code in (
        "VALUE", "DTYPE", "RANGE", "RANK", "RANGE", "ARGUMENT", "ARGUMENT",
    )]
    assert "index 5" in told[0][1] and "1 to 4" in told[2][1] and "is missing" in told[6][1]
    assert "is no training step" in told[7][1]
    near(results(found[0]), expected(model(torch.tensor([0, 4]))))
    assert found[9] == found[0]
    near(results(found[11]), expected(model(torch.tensor([0, 0]))))


@pytest.mark.slow
def test_more_memory_than_there_is(tmp_path: Path) -> None:
    """For the largest sizes; smaller ones fit."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)).eval()
    x = torch.randn(2, 64)
    program = export(model, (x,), dynamic_shapes={"input": {0: Dim("rows", min=1)}})
    made = aot(program, tmp_path, name="large", targets=["wasm32"], sizes={"rows": 1 << 26}).header
    with pytest.raises(AssertionError, match="GRAPHC_MEMORY: there is no memory for"):
        ask(made, [])
    few = {"do": "create", "options": {"sizes": {"rows": 4}}}
    found = ask(made, [few, call(*arrays((x,))), {"do": "create"}], first=few)
    near(results(found[1]), expected(model(x)))
    assert found[2].code == "GRAPHC_MEMORY"


def test_equal_programs_give_equal_files(tmp_path: Path) -> None:
    program = export(nn.Linear(4, 3).eval(), (torch.randn(2, 4),))
    one, other = (
        aot(program, tmp_path / each, name="m", targets=["wasm32"]) for each in ("one", "other")
    )
    assert one.library.read_bytes() == other.library.read_bytes()
    assert one.header.read_bytes() == other.header.read_bytes()


def test_a_context_that_trapped(tmp_path: Path) -> None:
    """Is one no more."""
    made = aot(export(nn.Linear(4, 3).eval(), (torch.randn(2, 4),)), tmp_path, name="m",
               targets=["wasm32"])
    script_text = """
        const { load } = await import(process.argv[1]);
        const context = await (await load()).create();
        const m_run = () => { throw new WebAssembly.RuntimeError("a trap"); };
        context._code = { ...context._code, m_run };
        const told = [];
        for (let call = 0; call < 2; call++) {
            try { context.run([new Float32Array(8)]); } catch (error) {
                told.push(`${error.name}: ${error.message}`);
            }
        }
        console.log(JSON.stringify(told));
    """
    done = subprocess.run(
        [node(), "--input-type=module", "-e", script_text, made.header.as_uri()],
        capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        "RuntimeError: a trap", "ModelError: an earlier call failed: a trap",
    ]


def test_loops_branches_and_several_programs(tmp_path: Path) -> None:
    def steps(x: Any, n: Any) -> Any:
        return torch._higher_order_ops.while_loop(
            lambda i, x: (i < n) & (x.sum() < 1000), lambda i, x: (i + 1, x * 1.5 + 1),
            (torch.tensor(0), x),
        )

    args = (torch.arange(4.0), torch.tensor(5))
    program = export(steps, args)
    made = script_of(tmp_path, program, "steps")
    given = [(args[0], torch.tensor(n)) for n in (0, 3, 100)]
    for each, answer in zip(given, ask(made, [call(*arrays(each)) for each in given]), strict=True):
        near(results(answer), expected(program(*each)))


def test_what_cannot_be_made(tmp_path: Path) -> None:
    program = export(lambda x: torch.sin(x), (torch.rand(3),))
    with pytest.raises(ValueError, match="static=True is for C programs"):
        aot(program, tmp_path, targets=["wasm32"], static=True)
    with pytest.raises(ValueError, match="targets are of wasm32 and x86_64"):
        aot(program, tmp_path, targets=["wasm32", "x86-64"])
    with pytest.raises(ValueError, match="Python does not run wasm32"):
        program.save(tmp_path / "m.gcx", targets=["wasm32"])
    with pytest.raises(ExportError, match="computes by NumPy"):
        aot(export(lambda x: torch.fft.fft(x).real, (torch.rand(3),)), tmp_path, targets=["wasm32"])
    assert list(tmp_path.iterdir()) == []


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "m.gcx"
    export(nn.Linear(4, 3).eval(), (torch.randn(2, 4),)).save(file)
    arguments = ["aot", str(file), "--out", str(tmp_path), "--name", "m", "--target", "wasm32"]
    assert main(arguments) == 0
    told = capsys.readouterr().out
    assert "m.wasm: " in told and "m.mjs: " in told
    assert (tmp_path / "m.wasm").read_bytes().startswith(b"\0asm")


def test_names_of_a_model_are_no_code() -> None:
    from graphc.backends.host.interface import Entry
    from graphc.ir import dtypes

    name = '</script>"; alert(1) //\\\n'
    entry = Entry(name, dtypes.f32, (2,))
    text = script(Interface("m", (entry,), (), (), ()), "m.wasm", None)
    told = text[text.index("const MODEL = ") + 14 : text.index(";\n\n// `load()`")]
    assert "</script>" not in text
    assert json.loads(told)["inputs"] == [{"name": name, "dtype": "f32", "shape": [2]}]


def test_the_script_of_the_page(tmp_path: Path) -> None:
    """docs/how_to/ship.md: its JavaScript, of the model that the page exports."""
    page = (Path(__file__).parents[3] / "docs" / "how_to" / "ship.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```js\n(.*?)^```\n", page, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"__name__": "ship"}
    first = blocks(page)[0].code.replace('targets=["x86-64-v2", "x86-64-v3"]', 'targets=["wasm32"]')
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(first, "ship.md", "exec"), names)
    file = names["out"] / "page.mjs"
    file.write_text(f"{text}console.log(JSON.stringify([...result.data, ...result.shape]));\n")
    done = subprocess.run([node(), file], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    rows = names["program"](torch.tensor([[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]]))
    np.testing.assert_allclose(told, [*rows.numpy().ravel(), 2, 3], 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lenet", "gpt", "resnet18"])
def test_models_of_the_benchmarks(name: str, tmp_path: Path) -> None:
    """Inference, and three steps of training."""
    space = models.load("graphc")
    torch.manual_seed(0)
    model, optimizer = models.make(space, name)
    x, y = (array[:12] for array in models.batch(name))
    given = torch.from_numpy(x), torch.from_numpy(y)
    program = export(model.eval(), given[:1])
    near(results(ask(script_of(tmp_path, program, "model"), [call(x)])[0]),
         expected(program(*given[:1])), 1e-4)
    exported = export_step(models.training_step(space, model.train(), optimizer), given)
    made = aot(exported, tmp_path, name="step", targets=["wasm32"]).header
    for answer in ask(made, [call(x, y)] * 3):
        near(results(answer), expected(exported(*given)), 1e-3)
