"""torch.export.register_dataclass: arguments, results, dynamic_shapes and files, against torch."""

import importlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.export import ExportError, load
from graphc.utils import _pytree
from tests.export_fuzz.mutate import packed, unpacked

pytest.importorskip("torch")

PACKAGES = ["graphc", "torch"]


@dataclass
class Pair:
    x: Any
    y: Any = None
    gain: float = 2.0


@dataclass
class Held:
    total: Any
    inner: Any = None
    twice: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.made = True


@dataclass
class Unknown:
    x: Any


def models(m: Any) -> dict[str, Any]:
    """By name: a forward and its arguments."""
    x, y = m.arange(6.0).reshape(3, 2), m.full((3, 2), 0.5)

    def nested(p: Any) -> Any:
        return Held(p["a"].x * 2, Pair(p["b"][0].x, p["a"].y))

    return {
        "taken": (lambda p: (p.x + p.y) * p.gain, (Pair(x, y),)),
        "given": (lambda x: Held(x.sum(0), x * 2), (x,)),
        "both": (lambda p: Pair(p.x * p.gain, p.y - 1, 3.0), (Pair(x, y, 0.25),)),
        "none": (lambda p: Pair(p.x if p.y is None else p.y), (Pair(x),)),
        "nested": (nested, ({"a": Pair(x, y), "b": [Pair(y + 1)]},)),
        "beside": (lambda z, p, q: {"out": [Held(z + p.x), q.x]}, (x, Pair(y), Pair(x + 1))),
        "listed": (lambda p: [Held(each) for each in p.x], (Pair([x, y]),)),
        "same": (lambda p: p, (Pair(x, y),)),
        "number": (lambda p: Held(p.x.mean(), 7), (Pair(x, 3),)),
        "size": (lambda p: Held(p.x.shape[0], p.x.sum()), (Pair(x),)),
    }


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    other = importlib.import_module("torch.utils._pytree")
    for package in PACKAGES:
        register = importlib.import_module(f"{package}.export").register_dataclass
        assert register(Pair, serialized_type_name="tests.Pair") is None
        register(Held, serialized_type_name="tests.Held")
    yield
    for cls in (Pair, Held):
        _pytree._deregister_pytree_node(cls)
        other._deregister_pytree_node(cls)


def module_of(m: Any, function: Any) -> Any:
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    scope = {"function": function}
    exec(f"def forward(self, {', '.join(names)}): return function({', '.join(names)})", scope)
    return type("Model", (m.nn.Module,), {"forward": scope["forward"]})()


def plain(value: Any) -> Any:
    """With arrays in place of tensors; classes are told."""
    if isinstance(value, Pair | Held):
        return type(value).__name__, [plain(getattr(value, f.name)) for f in fields(value)]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [plain(v) for v in value]
    return np.asarray(value).tolist() if hasattr(value, "shape") else value


@pytest.mark.parametrize("name", models(graphc))
def test_models_as_in_torch(name: str, tmp_path: Path) -> None:
    found = SimpleNamespace()
    for package in PACKAGES:
        m = importlib.import_module(package)
        function, args = models(m)[name]
        program = m.export.export(module_of(m, function), args)
        m.export.save(program, tmp_path / f"{package}.pt2")
        setattr(found, package, (program, args))
    program, args = found.graphc
    other, theirs = found.torch
    wanted = plain(other.module()(*theirs))
    assert wanted == plain(models(graphc)[name][0](*args))
    for each in (program, program.module(), load(tmp_path / "graphc.pt2")):
        assert plain(each(*args)) == wanted
    signature = program.graph_signature
    assert signature.user_inputs == other.graph_signature.user_inputs
    assert len(signature.user_outputs) == len(other.graph_signature.user_outputs)


@pytest.mark.parametrize("package", PACKAGES)
def test_errors_in_torch_s_words(package: str, tmp_path: Path) -> None:
    m = importlib.import_module(package)
    x, export = m.ones(3, 2), m.export.export
    taken, given = module_of(m, lambda p: p.x), module_of(m, lambda x: Unknown(x))
    with pytest.raises(ValueError, match=r"Unsupported input type <class '.*Unknown'>. Export only "
                                         "supports pytree containers of basic types"):
        export(taken, (Unknown(x),))
    with pytest.raises(RuntimeError, match=r"Found <class '.*Unknown'> in output, which is not a "
                                           "known type. "):
        export(given, (x,))
    for wrong in (int, type(given), 3):
        with pytest.raises(ValueError, match=r"field_names must be specified with a list of all "
                                             "fields used to initialize .*, as it is not a data"):
            m.export.register_dataclass(wrong)
    with pytest.warns(UserWarning, match="Pair'> is already registered as pytree node"):
        m.export.register_dataclass(Pair)  # now without a name
    program = export(taken, (Pair(x),))
    with pytest.raises(NotImplementedError, match=r"No registered serialization name for <class "
                                                  "'.*Pair'> found. Please update your"):
        m.export.save(program, tmp_path / "m.pt2")


@pytest.mark.parametrize("package", PACKAGES)
def test_dynamic_shapes(package: str) -> None:
    m = importlib.import_module(package)
    batch = m.export.Dim("batch", min=2, max=9)
    model = module_of(m, lambda z, p: Pair(z + p.y, p.gain))
    args = m.ones(3), Pair(None, m.ones(3), 2.0)
    program = m.export.export(
        model, args, dynamic_shapes={"z": {0: batch}, "p": [{0: batch}, None]}
    )
    found = program.module()(m.ones(5), Pair(None, m.ones(5), 2.0))
    assert type(found) is Pair and found.x.tolist() == [2.0] * 5 and found.y == 2.0
    assert [(r.lower, r.upper) for r in program.range_constraints.values()] == [(2, 9)]
    for wrong in ([{0: batch}], [None] * 3, {0: batch}):
        with pytest.raises((ValueError, ExportError)):
            m.export.export(model, args, dynamic_shapes={"z": {0: batch}, "p": wrong})


def test_shapes_by_tensor_and_by_example() -> None:
    args = (Pair(graphc.ones(3, 2), graphc.ones(4)),)
    model = module_of(graphc, lambda p: p.x.sum(0) + p.y.sum())
    shapes = graphc.export.ShapesCollection()
    shapes[args[0].y] = {0: graphc.export.Dim("n", min=2)}
    more = graphc.export.AdditionalInputs()
    more.add((Pair(graphc.ones(3, 2), graphc.ones(7)),))
    for each in (shapes, more):
        program = graphc.export.export(model, args, dynamic_shapes=each)
        assert program(Pair(graphc.ones(3, 2), graphc.ones(6))).tolist() == [9.0, 9.0]
        with pytest.raises(ValueError, match=r"p \(part 0\) must be f32\[3,2\]"):
            program(Pair(graphc.ones(4, 2), graphc.ones(6)))


def test_other_arguments_than_exported() -> None:
    x = graphc.ones(3, 2)
    program = graphc.export.export(module_of(graphc, lambda p: p.x), (Pair(x),))
    for wrong in ((x, None, 2.0), {"x": x, "y": None, "gain": 2.0}, Held(x), x):
        with pytest.raises(TypeError, match="p must be a Pair, got a "):
            program(wrong)
    for wrong, said in ((Pair(x, x), "p.y is .*, but the model was exported with None"),
                        (Pair(x, None, 3.0), "p.gain is 3.0, but the model was exported with 2.0")):
        with pytest.raises(ValueError, match=said):
            program(wrong)


def test_training_steps(tmp_path: Path) -> None:
    graphc.manual_seed(0)
    model = graphc.nn.Linear(2, 2)
    optimizer = graphc.optim.SGD(model.parameters(), lr=0.1)

    def step(p: Any) -> Any:
        optimizer.zero_grad()
        loss = model(p.x).sum()
        loss.backward()
        optimizer.step()
        return Held(loss)

    x = graphc.ones(3, 2)
    with pytest.raises(ValueError, match=r"Unsupported input type <class '.*Unknown'>"):
        graphc.export.export_step(step, (Unknown(x),))
    program = graphc.export.export_step(step, (Pair(x),))
    program.save(tmp_path / "s.gcx")
    first = load(tmp_path / "s.gcx")(Pair(x))
    assert type(first) is Held
    np.testing.assert_allclose(first.total.numpy(), step(Pair(x)).total.detach().numpy(), 1e-5)


def test_machine_code(tmp_path: Path) -> None:
    path, x = tmp_path / "m.gcx", graphc.ones(3, 2)
    program = graphc.export.export(lambda p: Held(p.x * p.gain, Pair(p.x.sum())), (Pair(x),))
    trust = list(program.save(path, native=True).values())
    found = load(path, native=True, trust=trust)(Pair(np.ones((3, 2), np.float32)))
    assert type(found) is Held and type(found.inner) is Pair
    assert plain(found) == plain(program(Pair(x)))


def test_files_name_their_classes(tmp_path: Path) -> None:
    x, path = graphc.ones(3, 2), tmp_path / "m.gcx"
    program = graphc.export.export(module_of(graphc, lambda p: Held(p.x)), (Pair(x),))
    program.save(path)
    parts = unpacked(path.read_bytes())
    manifest = json.loads(parts["manifest.json"])
    assert manifest["format"] == 4 and '"dataclass": "tests.Pair"' in parts[
        "manifest.json"].decode()
    plain_one = graphc.export.export(module_of(graphc, lambda x: x), (x,))
    plain_one.save(tmp_path / "plain.gcx")
    said = json.loads(unpacked((tmp_path / "plain.gcx").read_bytes())["manifest.json"])
    assert said["format"] == 2  # which others read, too

    spec = manifest["graphs"][0]["results"]
    for wrong in ("tests.Other", None, 5, ["tests.Held"], {}):
        spec["dataclass"] = wrong
        parts["manifest.json"] = json.dumps(manifest).encode()
        (tmp_path / "bad.gcx").write_bytes(packed(parts))
        with pytest.raises(ExportError, match="which is not registered here"):
            load(tmp_path / "bad.gcx")
    other = make_dataclass("Held", ["total", "more"])
    _pytree._deregister_pytree_node(Held)
    with pytest.raises(ExportError, match=r"the dataclass 'tests.Held', which is not registered"):
        load(path)
    graphc.export.register_dataclass(other, serialized_type_name="tests.Held")
    try:
        with pytest.raises(ExportError, match=r"has the fields .* in the file, but <class"):
            load(path)
    finally:
        _pytree._deregister_pytree_node(other)
