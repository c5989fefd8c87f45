"""Names of torch whose modules load when used: cells, storages, streams, symbolic numbers."""

import warnings

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")

CELLS = [("lstm_cell", 4, 2), ("gru_cell", 3, 1), ("rnn_tanh_cell", 1, 1), ("rnn_relu_cell", 1, 1)]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("name", "gates", "states"), CELLS)
def test_cells(name: str, gates: int, states: int, bias: bool) -> None:
    random = np.random.default_rng(3)
    arrays = [random.standard_normal(shape) for shape in [
        (2, 3), *[(2, 5)] * states, (gates * 5, 3), (gates * 5, 5), *[(gates * 5,)] * 2 * bias
    ]]

    def step(lib):
        given = [lib.tensor(array, requires_grad=True) for array in arrays]
        state = tuple(given[1 : 1 + states])
        found = getattr(lib, name)(
            given[0], state if states == 2 else state[0], *given[1 + states :]
        )
        outputs = found if states == 2 else (found,)
        sum((output * output).sum() for output in outputs).backward()
        return [*(o.tolist() for o in outputs), *(g.grad.tolist() for g in given)]

    for ours, theirs in zip(step(graphc), step(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)


def test_functions_that_write_in_place() -> None:
    for name, arguments in [("selu_", ()), ("celu_", ()), ("rrelu_", ()), ("arctan_", ()),
                            ("threshold_", (0.0, 5.0)), ("arcsinh_", ())]:
        ours, theirs = graphc.tensor([-1.0, 2.0]), torch.tensor([-1.0, 2.0])
        assert getattr(graphc, name)(ours, *arguments) is ours
        getattr(torch, name)(theirs, *arguments)
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)


def test_adaptive_max_pool1d_gives_places_too() -> None:
    values, places = graphc.adaptive_max_pool1d(graphc.tensor([[1.0, 4.0, 2.0, 3.0]]), 2)
    assert (values.tolist(), places.tolist()) == ([[4.0, 3.0]], [[1, 3]])


@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_typed_storages_share_the_memory() -> None:
    x = graphc.arange(6.0).reshape(2, 3)
    held = x[1].storage()
    assert (held.size(), len(held), held.nbytes(), held.element_size()) == (6, 6, 24, 4)
    assert held.data_ptr() == x.data_ptr()
    held[4] = 40.0
    assert x[1, 1].item() == 40.0
    assert held.tolist() == [0.0, 1.0, 2.0, 3.0, 40.0, 5.0] == list(held)
    assert graphc.is_storage(held)
    assert graphc.is_storage(x.untyped_storage())
    assert not graphc.is_storage(x)
    assert isinstance(held, graphc.FloatStorage)
    assert not isinstance(held, graphc.LongStorage)
    assert held.long().tolist() == [0, 1, 2, 3, 40, 5]
    assert graphc.IntStorage([3, 1]).tolist() == [3, 1]
    assert repr(graphc.LongStorage(2).fill_(7)) == repr(torch.LongStorage(2).fill_(7))
    with pytest.raises(RuntimeError, match="slices are only supported"):
        held[1:2]
    held.fill_(1.0)
    assert x.sum().item() == 6.0


def test_a_typed_storage_warns_once() -> None:
    from graphc import storage

    storage._Warned.already = False
    with pytest.warns(UserWarning, match="TypedStorage is deprecated"):
        graphc.zeros(2).storage()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graphc.zeros(2).storage()


def test_streams_and_events_of_the_cpu() -> None:
    stream, event = graphc.Stream("cpu"), graphc.Event("cpu")
    assert repr(stream) == repr(torch.Stream("cpu"))
    assert repr(event) == repr(torch.Event("cpu"))
    event.record(stream)
    stream.wait_event(event)
    stream.synchronize()
    assert stream.query()
    assert event.query()
    start, end = (graphc.Event("cpu", enable_timing=True) for _ in range(2))
    with pytest.raises(RuntimeError, match="must be recorded"):
        start.elapsed_time(end)
    start.record()
    end.record()
    assert start.elapsed_time(end) >= 0.0
    assert graphc.get_device_module("cpu").__name__ == "graphc.cpu"


def test_symbolic_numbers() -> None:
    for text in [
        "sym_int(-3.5)", "sym_int(3.5)", "sym_float(3)", "sym_max(1, 2.0)", "sym_max(3, 2.0)",
        "sym_ite(True, 1, 2)", "sym_min(1, 2.0)", "sym_not(True)", "sym_sum([1, 2])",
    ]:
        ours, theirs = (eval(f"lib.{text}", {"lib": lib}) for lib in (graphc, torch))
        assert (type(ours), ours) == (type(theirs), theirs), text


def test_deterministic_debug_mode() -> None:
    for mode in ("warn", 2, "error", "default", 1, 0):
        states = []
        for lib in (graphc, torch):
            lib.set_deterministic_debug_mode(mode)
            states.append((
                lib.get_deterministic_debug_mode(), lib.are_deterministic_algorithms_enabled(),
                lib.is_deterministic_algorithms_warn_only_enabled(),
            ))
            lib.set_deterministic_debug_mode(0)
        assert states[0] == states[1]
    for wrong in ("x", 3):
        with pytest.raises(RuntimeError, match="invalid value of debug_mode"):
            graphc.set_deterministic_debug_mode(wrong)
