"""A compiled Module's names, in what it says and in files, are those of torch's OptimizedModule."""

import copy
import io
from typing import Any

import pytest

import graphc

torch = pytest.importorskip("torch")


def compiled(t: Any, model: Any) -> Any:
    return t.compile(model, backend="eager")


def model_of(t: Any) -> Any:
    t.manual_seed(0)
    layers = t.nn.Sequential(t.nn.Linear(2, 3), t.nn.BatchNorm1d(3))
    layers[1].register_buffer("kept", t.ones(1))
    layers[1].register_buffer("not_kept", t.ones(1), persistent=False)
    return layers


def alone(t: Any) -> Any:
    return compiled(t, model_of(t))


def inside(t: Any) -> Any:
    return t.nn.ModuleDict({"a": compiled(t, model_of(t)), "b": t.nn.Linear(2, 2)})


def a_layer(t: Any) -> Any:
    return t.nn.Sequential(compiled(t, t.nn.Linear(2, 2)), t.nn.Linear(2, 1))


def twice(t: Any) -> Any:
    return compiled(t, inside(t))


def disabled(t: Any) -> Any:
    return t.compiler.disable(model_of(t))


def averaged(t: Any) -> Any:
    return t.optim.swa_utils.AveragedModel(alone(t))


def saving_its_own(t: Any) -> Any:
    class Own(t.nn.Linear):
        def state_dict(self, *args: Any, prefix: str = "", **kwargs: Any) -> Any:
            found = super().state_dict(*args, prefix=prefix, **kwargs)
            found[prefix + "more"] = t.ones(1)
            return found

        def get_extra_state(self) -> Any:
            return t.tensor([3.0])

        def set_extra_state(self, state: Any) -> None:
            assert state.item() == 3.0

    return compiled(t, Own(2, 2))


CASES = [alone, inside, a_layer, twice, disabled, averaged, saving_its_own]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_names_of_state(case: Any) -> None:
    def told(t: Any) -> Any:
        model = case(t)
        saved = model.state_dict()
        moved = model.state_dict(prefix="x.")
        return [
            list(saved), {k: dict(v) for k, v in saved._metadata.items()}, list(moved),
            [name for name, _ in model.named_parameters()],
            [name for name, _ in model.named_parameters("y", remove_duplicate=False)],
            [name for name, _ in model.named_buffers()],
            [list(p.shape) for p in model.parameters()],
            [list(model.get_parameter(name).shape) for name, _ in model.named_parameters()],
        ]

    assert told(graphc) == told(torch)


@pytest.mark.parametrize("case", [c for c in CASES if c is not saving_its_own],
                         ids=lambda case: case.__name__)
def test_what_one_side_saves_the_other_loads(case: Any) -> None:
    for ours, theirs in ((graphc, torch), (torch, graphc)):
        written = {k: v + 1 for k, v in case(theirs).state_dict().items()}
        own = {key: ours.tensor(value.numpy()) for key, value in written.items()}
        model = case(ours)
        assert str(model.load_state_dict(own)) == "<All keys matched successfully>"
        for key, value in model.state_dict().items():
            assert (value.numpy() == written[key].numpy()).all(), key


@pytest.mark.parametrize("strict", [True, False])
def test_names_without_the_prefix_are_of_another_model(strict: bool) -> None:
    def told(t: Any) -> Any:
        plain = model_of(t).state_dict()
        with_more = {**alone(t).state_dict(), "0.weight": t.ones(3, 2)}
        said: list[Any] = []
        for model, state in (
            (alone(t), plain), (alone(t), with_more), (model_of(t), alone(t).state_dict()),
            (inside(t), {f"a.{key}": value for key, value in plain.items()}),
        ):
            try:
                found = model.load_state_dict(state, strict=strict)
                said.append([sorted(found.missing_keys), sorted(found.unexpected_keys)])
            except RuntimeError as error:
                said.append(str(error))
        return said

    assert told(graphc) == told(torch)


def test_hooks_and_names_are_met_once() -> None:
    """In torch the Module around is another one; here it would be the same, asked twice."""
    model = model_of(graphc)
    run = graphc.compile(model)
    assert len(list(run.modules())) == 3 and next(iter(run.modules())) is run
    assert [name for name, _ in run.named_modules()] == ["", "_orig_mod.0", "_orig_mod.1"]
    assert run.get_submodule("_orig_mod.0") is model[0]
    seen: list[Any] = []
    run.apply(seen.append)
    assert len(seen) == 3


def test_functions_of_state_take_these_names() -> None:
    run = graphc.compile(model_of(graphc).eval())
    x = graphc.randn(4, 2)
    zeros = {name: graphc.zeros_like(p) for name, p in run.named_parameters()}
    assert not graphc.func.functional_call(run, zeros, (x,)).any()
    with pytest.warns(FutureWarning, match="deprecated"):
        assert not graphc.nn.utils.stateless.functional_call(run, zeros, (x,)).any()
    assert run(x).any()
    with graphc.no_grad():
        want = run(x)
    buffer = io.BytesIO()
    graphc.save(run.state_dict(), buffer)
    buffer.seek(0)
    again = graphc.compile(model_of(graphc).eval())
    again[0].reset_parameters()
    again.load_state_dict(graphc.load(buffer))
    assert graphc.equal(again(x), want)
    assert list(copy.deepcopy(run).state_dict()) == list(run.state_dict())
    exported = graphc.export.export(run, (x,))
    assert "0.weight" in exported.state_dict and graphc.equal(exported.module()(x), want)
