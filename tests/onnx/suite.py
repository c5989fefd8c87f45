"""onnx's own backend tests, run by graphc.onnx.load: cases, their run, and how they end."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import graphc
from graphc.onnx.reading.compute.carried import held_array, kind_for

KINDS_OF_TESTS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
_LIGHT = "onnx/backend/test/data/light/"  # `real` models without their weights


@dataclass
class Case:
    """A model with inputs and outputs."""

    name: str
    kind: str
    model: Any  # ModelProto, or a path
    data: list[tuple[list[Any], list[Any]]]
    rtol: float = 1e-3
    atol: float = 1e-7


@dataclass
class Outcome:
    """How a case ended: "passed", "refused" (OnnxError), "unavailable", or "failed"."""

    name: str
    kind: str
    status: str
    text: str = ""


def cases(kinds: tuple[str, ...] = KINDS_OF_TESTS) -> Iterator[Case]:
    """All of them, in the package's order."""
    from onnx.backend.test.loader import load_model_tests

    for kind in kinds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the package computes its expectations with NumPy
            found = load_model_tests(kind=kind)
        for each in found:
            if each.model is not None:
                yield Case(each.name, kind, each.model, each.data_sets, each.rtol, each.atol)
            elif each.model_dir is not None:
                folder = Path(each.model_dir)
                yield Case(each.name, kind, folder / "model.onnx", [], each.rtol, each.atol)
            elif each.url.startswith(_LIGHT):
                yield Case(each.name, "light", _package() / each.url, [], each.rtol, each.atol)
            else:
                yield Case(each.name, kind, None, [])


def _package() -> Path:
    import onnx

    return Path(onnx.__file__).parents[1]


def run(case: Case, compiled: bool = False) -> Outcome:
    """Load the model, and hold what it gives to what is expected."""
    if case.model is None:
        return Outcome(case.name, case.kind, "unavailable", "it has to be downloaded")
    try:
        model = graphc.onnx.load(case.model)
        function = graphc.compile(model) if compiled else model
        for inputs, outputs in case.data or _stored(case, model):
            with graphc.no_grad():
                found = function(*[given(x) for x in inputs])
            hold(found if isinstance(found, tuple) else (found,), outputs, case)
    except graphc.onnx.OnnxError as error:
        return Outcome(case.name, case.kind, "refused", str(error))
    except Exception as error:
        notes = " ".join(getattr(error, "__notes__", ()))
        return Outcome(
            case.name, case.kind, "failed", f"{type(error).__name__}: {error} {notes}"[:600]
        )
    return Outcome(case.name, case.kind, "passed")


def given(value: Any) -> Any:
    """An input as graphc takes it."""
    import onnx

    if isinstance(value, onnx.TensorProto):
        value = onnx.numpy_helper.to_array(value)
    if isinstance(value, (list, tuple)):
        return [given(x) for x in value]
    if value is None:
        return None
    array = np.asarray(value)
    if array.dtype.kind in "OUS":
        raise graphc.onnx.OnnxError("strings")
    kind = kind_for(array.dtype)
    if kind is not None:
        return graphc.tensor(held_array(array, kind))
    try:
        return graphc.tensor(array)
    except TypeError as error:
        raise graphc.onnx.OnnxError(str(error)) from error


def hold(found: Any, expected: Any, case: Case) -> None:
    """Raise AssertionError where values, shapes or types differ."""
    import onnx

    assert len(found) == len(expected), f"{len(found)} outputs for {len(expected)}"
    for have, want in zip(found, expected, strict=True):
        if isinstance(want, onnx.TensorProto):
            want = onnx.numpy_helper.to_array(want)
        if isinstance(want, (list, tuple)):
            assert isinstance(have, list), f"a {type(have).__name__} for a sequence"
            hold(have, want, case)
            continue
        if want is None:
            assert have is None
            continue
        want = np.asarray(want)
        carried = kind_for(want.dtype)
        if carried is not None:  # of the dtype that has all its values
            want = held_array(want, carried)
        kind = have.dtype.numpy
        array = have.detach().float().numpy() if kind.name == "bfloat16" else have.detach().numpy()
        assert kind == want.dtype, f"{kind} for {want.dtype}"
        assert array.shape == want.shape, f"{array.shape} for {want.shape}"
        rtol = case.rtol
        if kind.name == "bfloat16":
            want, rtol = want.astype(np.float32), max(rtol, 2**-6)
        np.testing.assert_allclose(array, want, rtol=rtol, atol=case.atol)


def _stored(case: Case, model: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    import onnx

    path = Path(case.model)
    if case.kind == "light":
        sizes = _declared(path)
        inputs = [
            (np.arange(np.prod(shape)).reshape(shape) / np.prod(shape)).astype(np.float32)
            for shape in sizes
        ]
        expected = path.with_name(f"{path.stem}_output_0.pb")
        yield inputs, [_tensor(expected)]
        return
    proto = onnx.load(str(path), load_external_data=False)
    for folder in sorted(path.parent.glob("test_data_set*")):
        yield tuple(
            [
                _value(folder / f"{what}_{i}.pb", info.type)
                for i, info in enumerate(infos) if (folder / f"{what}_{i}.pb").exists()
            ]
            for what, infos in (("input", proto.graph.input), ("output", proto.graph.output))
        )


def _declared(path: Path) -> list[tuple[int, ...]]:
    import onnx

    graph = onnx.load(str(path)).graph
    held = {each.name for each in graph.initializer}
    return [
        tuple(d.dim_value or 1 for d in each.type.tensor_type.shape.dim)
        for each in graph.input if each.name not in held
    ]


def _tensor(path: Path) -> np.ndarray:
    import onnx

    proto = onnx.TensorProto()
    proto.ParseFromString(path.read_bytes())
    return onnx.numpy_helper.to_array(proto)


def _value(path: Path, type_: Any) -> Any:
    import onnx

    if type_.HasField("sequence_type"):
        proto = onnx.SequenceProto()
        proto.ParseFromString(path.read_bytes())
        return onnx.numpy_helper.to_list(proto)
    if type_.HasField("optional_type"):
        proto = onnx.OptionalProto()
        proto.ParseFromString(path.read_bytes())
        return onnx.numpy_helper.to_optional(proto)
    return _tensor(path)


def report(outcomes: list[Outcome]) -> str:
    """Of each kind of test: how many there are, and how they ended."""
    rows = {}
    for outcome in outcomes:
        row = rows.setdefault(outcome.kind, dict.fromkeys(
            ("passed", "refused", "failed", "unavailable"), 0
        ))
        row[outcome.status] += 1
    lines = []
    for kind, row in rows.items():
        total = sum(row.values())
        share = 100 * row["passed"] / total
        lines.append(f"{kind:18} {row['passed']:5} of {total:5} passed ({share:.1f} %)  {row}")
    return "\n".join(lines)


def saved(outcomes: list[Outcome], path: Path) -> None:
    """The outcomes as JSON lines."""
    path.write_text("".join(json.dumps(vars(each)) + "\n" for each in outcomes))


