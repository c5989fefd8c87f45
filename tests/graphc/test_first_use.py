"""The first hour with graphc: what a newcomer gets wrong is named, and by the right name."""

from __future__ import annotations

import copy
import gc
import inspect
import multiprocessing
import os
import pickle
import subprocess
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
import graphc.export
import graphc.nn.functional as F
from graphc import nn
from graphc.frontend.errors import TraceError
from tests.reference import torch as reference

# --- devices -------------------------------------------------------------------------------------

X = graphc.ones(2, 2)
DEVICES: dict[str, Callable[[Any], Any]] = {
    "tensor": lambda d: graphc.tensor([1.0], device=d),
    "tensor of a tensor": lambda d: graphc.tensor(X, device=d),
    "tensor of tensors": lambda d: graphc.tensor([X[0, 0]], device=d),
    "as_tensor": lambda d: graphc.as_tensor(X, device=d),
    "zeros": lambda d: graphc.zeros(2, device=d),
    "complex zeros": lambda d: graphc.zeros(2, dtype=graphc.complex64, device=d),
    "empty_like": lambda d: graphc.empty_like(X, device=d),
    "full": lambda d: graphc.full((2,), X[0, 0], device=d),
    "new_zeros": lambda d: X.new_zeros(2, device=d),
    "new_tensor": lambda d: X.new_tensor([1], device=d),
    "empty_strided": lambda d: graphc.empty_strided((2,), (1,), device=d),
    "rand": lambda d: graphc.rand(2, device=d),
    "randn_like": lambda d: graphc.randn_like(X, device=d),
    "randint": lambda d: graphc.randint(3, (2,), device=d),
    "randperm": lambda d: graphc.randperm(3, device=d),
    "normal": lambda d: graphc.normal(0.0, 1.0, (2,), device=d),
    "arange": lambda d: graphc.arange(3, device=d),
    "linspace": lambda d: graphc.linspace(0, 1, 3, device=d),
    "range": lambda d: graphc.range(0, 3, device=d),
    "eye": lambda d: graphc.eye(3, device=d),
    "tril_indices": lambda d: graphc.tril_indices(3, 3, device=d),
    "hann_window": lambda d: graphc.hann_window(3, device=d),
    "fftfreq": lambda d: graphc.fft.fftfreq(3, device=d),
    "Tensor": lambda d: graphc.Tensor([1], device=d),
    "Generator": lambda d: graphc.Generator(d),
    "set_default_device": lambda d: graphc.set_default_device(d),
    "to": lambda d: X.to(d),
    "to by keyword": lambda d: X.to(device=d),
    "Module.to": lambda d: nn.Linear(2, 2).to(d),
    "Module.to_empty": lambda d: nn.Linear(2, 2).to_empty(device=d),
    "Linear": lambda d: nn.Linear(2, 2, device=d),
    "Bilinear": lambda d: nn.Bilinear(2, 2, 2, device=d),
    "Conv2d": lambda d: nn.Conv2d(2, 2, 1, device=d),
    "BatchNorm2d": lambda d: nn.BatchNorm2d(2, device=d),
    "LayerNorm": lambda d: nn.LayerNorm(2, device=d),
    "Embedding": lambda d: nn.Embedding(2, 2, device=d),
    "LSTM": lambda d: nn.LSTM(2, 2, device=d),
    "MultiheadAttention": lambda d: nn.MultiheadAttention(2, 2, device=d),
    "Transformer": lambda d: nn.TransformerEncoderLayer(2, 2, device=d),
}


@pytest.mark.filterwarnings("ignore:To copy construct:UserWarning")
@pytest.mark.filterwarnings("ignore:torch.range is deprecated:UserWarning")
@pytest.mark.parametrize("name", DEVICES)
def test_every_maker_of_tensors_takes_a_device(name: str) -> None:
    with pytest.raises(RuntimeError, match="no CUDA"):
        DEVICES[name](graphc.device("cuda:0"))
    try:
        made = DEVICES[name]("meta")
        made = graphc.ones(1) if made is None else made
    finally:
        graphc.set_default_device("cpu")
    for tensor in made.parameters() if isinstance(made, nn.Module) else [made]:
        assert tensor.device == graphc.device("meta")
    DEVICES[name]("cpu")


def test_meta_as_a_context_goes_on_working() -> None:
    with graphc.device("meta"):
        layer = nn.Linear(2, 3)
        assert layer.weight.is_meta and graphc.zeros(2).is_meta
        assert not graphc.zeros(2, device="cpu").is_meta
    assert layer(graphc.ones(5, 2, device="meta")).shape == (5, 3)
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
        layer.to("cpu")
        assert layer.weight.to("meta") is layer.weight
    assert layer.weight.to("meta") is layer.weight
    assert layer.to_empty(device="cpu")(graphc.ones(1, 2)).shape == (1, 3)
    assert nn.utils.skip_init(nn.Linear, 2, 3).weight.shape == (3, 2)


# --- data by NumPy's protocols, and copies -------------------------------------------------------


class Series:
    """What torch.tensor sees of a pandas Series."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, i: Any) -> Any:
        return self.values[i]


class Interface:
    """An object with `__array_interface__` alone."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    @property
    def __array_interface__(self) -> Any:
        return self.values.__array_interface__


@pytest.mark.parametrize("kind", [Series, Interface])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int32", "uint8",
                                   "bool", "complex128", "object"])
def test_an_array_by_protocol_keeps_its_dtype(kind: Any, dtype: str) -> None:
    values = np.array([1, 0, 1]).astype(dtype)
    want = graphc.int64 if dtype == "object" else getattr(graphc, dtype)
    for make in (graphc.tensor, graphc.as_tensor, graphc.asarray):
        made = make(kind(values))
        assert made.dtype is want and made.tolist() == values.tolist()
    if dtype != "object":
        nested = graphc.tensor([kind(values), kind(values)])
        assert nested.shape == (2, 3) and nested.dtype is want


def test_a_series_is_copied_and_read_at_each_compiled_call() -> None:
    series = Series([1.0, 2.0])
    double = graphc.compile(lambda s: graphc.tensor(s) * 2)
    for values in ([1.0, 2.0], [3.0, 4.0], [5.0, 6.0]):
        series.values[:] = values
        assert double(series).tolist() == [2 * v for v in values]
        assert double(Series(values)).tolist() == [2 * v for v in values]
    made = graphc.as_tensor(series)
    series.values[:] = 0
    assert made.tolist() == [5.0, 6.0]


def test_copies_of_leaves_and_others_are_as_in_torch() -> None:
    for torch in (reference, graphc):
        leaf = torch.ones(2, requires_grad=True)
        leaf.note = 1
        leaf.grad = torch.ones(2)
        for tensor in (leaf, leaf * 2, (leaf * 2)[1:], torch.nn.Parameter(torch.ones(2))):
            twin = copy.copy(tensor)
            assert type(twin) is type(tensor) and twin is not tensor
            assert twin.is_leaf and twin.requires_grad and twin.grad is None
            assert twin.data_ptr() == tensor.data_ptr()
            assert getattr(twin, "note", None) == getattr(tensor, "note", None)
        again = pickle.loads(pickle.dumps(leaf * 2))
        assert again.is_leaf and again.requires_grad and again.tolist() == [2.0, 2.0]
        assert copy.deepcopy(leaf).grad.tolist() == [1.0, 1.0]
        with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
            copy.deepcopy(leaf * 2)


def test_copies_in_a_compiled_function() -> None:
    x = graphc.ones(2, requires_grad=True)
    tripled = graphc.compile(lambda x: copy.copy(x * 2) * 3)
    for _ in range(3):
        assert tripled(x).tolist() == [6.0, 6.0]


# --- errors: whose they are ----------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 8)

    def forward(self, x: Any) -> Any:
        return self.fc(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 3), nn.ReLU(), Block()])

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("hooked", [False, True])
def test_a_shape_error_says_which_module_of_the_model(compiled: bool, hooked: bool) -> None:
    model = Net()
    if hooked:
        model.layers[2].register_forward_hook(lambda *given: None)
    run = graphc.compile(model) if compiled else model
    for _ in range(2):
        with pytest.raises(RuntimeError) as caught:
            run(graphc.ones(2, 4))
        assert "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x8). Cure" in str(caught.value)
        assert f"at {__file__}" in str(caught.value) and "Block.forward" in str(caught.value)
        assert getattr(caught.value, "__notes__", []) == [
            "  in module layers.2.fc (Linear(in_features=4, out_features=8, bias=True))"
        ]
        assert "in module layers.2.fc" in shown(caught.value)


def test_the_path_is_from_the_outermost_module_called() -> None:
    own = type("Own", (nn.Module,), {"forward": lambda self, x: {}["k"]})()
    for model, path in (
        (Block(), "fc (Linear(in_features=4, out_features=8, bias=True))"),
        (Block().fc, "Linear(in_features=4, out_features=8, bias=True)"),
        (nn.Sequential(nn.Flatten(), own), "1 (Own())"),
    ):
        with pytest.raises((RuntimeError, KeyError)) as caught:
            model(graphc.ones(2, 3))
        assert getattr(caught.value, "__notes__", []) == [f"  in module {path}"]


def test_an_exception_leaves_the_model_behind_when_it_is_pickled() -> None:
    with pytest.raises(RuntimeError) as caught:
        Block()(graphc.ones(2, 3))
    again = pickle.loads(pickle.dumps(caught.value))
    assert [type(note) for note in again.__notes__] == [str]


CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "Linear": (nn.Linear(3, 4), r"linear\(\): argument 'input' \(position 1\)"),
    "Conv2d": (nn.Conv2d(1, 1, 1), r"conv2d\(\): argument 'input' \(position 1\)"),
    "matmul": (lambda x: graphc.matmul(x, X), r"matmul\(\): argument 'input' \(position 1\)"),
    "addmm": (lambda x: graphc.addmm(X, x, X), r"addmm\(\): argument 'given' \(position 2\)"),
    "sum": (graphc.sum, r"sum\(\): argument 'input' \(position 1\)"),
    "reshape": (lambda x: graphc.reshape(x, (2,)), r"reshape\(\): argument 'input'"),
    "softmax": (lambda x: F.softmax(input=x, dim=0), r"softmax\(\): argument 'input'"),
    "pad": (lambda x: F.pad(x, (1, 1)), r"pad\(\): argument 'input'"),
    "cross_entropy": (lambda x: F.cross_entropy(X, x), r"argument 'target' \(position 2\)"),
    "linalg.solve": (lambda x: graphc.linalg.solve(X, x), r"linalg_solve\(\): argument 'B'"),
    "fft.rfft": (lambda x: graphc.fft.rfft(x), r"fft_rfft\(\): argument 'input'"),
    "dropout": (nn.Dropout(), r"dropout\(\): argument 'input'"),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_tensor_is_named_with_its_cure(name: str) -> None:
    call, words = CALLS[name]
    for value, rest in (
        (np.ones((2, 3)), r"must be Tensor, not numpy.ndarray. Cure: torch.from_numpy\(array\)"),
        ([[1.0, 2.0]], r"must be Tensor, not list. Cure: torch.tensor\(values\)"),
        (None, "must be Tensor, not NoneType"),
    ):
        with pytest.raises(TypeError, match=f"{words}.*{rest}") as caught:
            call(value)
        assert __file__ in str(caught.value)


@pytest.mark.parametrize("call", [
    lambda x: X.mm(x), lambda x: X.copy_(x), lambda x: X.expand_as(x), lambda x: X.view_as(x),
    lambda x: X.type_as(x), lambda x: X.masked_fill(x, 0), lambda x: X.backward(x),
    lambda x: graphc.einsum("ij->i", x), nn.Parameter,
])
def test_methods_name_what_they_were_given(call: Callable[[Any], Any]) -> None:
    with pytest.raises((TypeError, AttributeError), match=r"Tensor.*numpy\.ndarray") as caught:
        call(np.ones((2, 2)))
    assert __file__ in str(caught.value)


def test_the_explaining_functions_are_pickled_by_their_public_names() -> None:
    for module, names in ((graphc, graphc.frontend.functions.NAMES), (F, vars(F))):
        for name, function in names.items():
            if isinstance(function, types.FunctionType) and (
                function.__module__ == module.__name__ and hasattr(function, "__wrapped__")
            ):
                assert pickle.loads(pickle.dumps(function)) is function, name
    assert inspect.unwrap(graphc.exp).__qualname__ == "exp"


def layers() -> list[str]:
    return [name for name in nn.modules.__all__ if issubclass(getattr(nn, name), nn.Module)]


@pytest.mark.parametrize("name", layers())
def test_wrong_arguments_are_reported_by_the_class_that_was_called(name: str) -> None:
    cls = getattr(nn, name)
    assert not cls.__init__.__qualname__.startswith("_")
    if any(p.kind is p.VAR_KEYWORD for p in inspect.signature(cls).parameters.values()):
        return
    with pytest.raises((TypeError, ValueError, RuntimeError)) as caught:
        cls(frobnicate=1)
    assert "_ConvNd" not in str(caught.value) and " _" not in f" {caught.value}"


def test_plotting_names_the_line_of_the_caller_and_the_cure(tmp_path: Path) -> None:
    library = tmp_path / "site-packages" / "plots.py"
    library.parent.mkdir()
    library.write_text("import numpy\ndef plot(x): return numpy.atleast_1d(x)\n")
    space: dict[str, Any] = {}
    exec(compile(library.read_text(), str(library), "exec"), space)
    with pytest.raises(RuntimeError, match=r"Use tensor\.detach\(\)\.numpy\(\) instead") as caught:
        space["plot"](graphc.ones(2, requires_grad=True))
    assert f"at {__file__}" in str(caught.value)


# --- the DataLoader's workers --------------------------------------------------------------------


class Broken:
    def __init__(self, error: Callable[[], Any]) -> None:
        self.error = error

    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int) -> Any:
        return self.error()


def test_a_workers_exception_is_readable_and_of_its_class() -> None:
    loader = graphc.utils.data.DataLoader
    with pytest.raises(KeyError) as caught:
        list(loader(Broken(lambda: {}["name"]), num_workers=1))
    text = shown(caught.value)
    assert "Caught KeyError in DataLoader worker process 0.\nOriginal Traceback" in text
    assert "\nKeyError: 'name'" in text and __file__ in text and "\\n" not in text
    with pytest.raises(RuntimeError, match="Caught UnicodeDecodeError in DataLoader worker"):
        list(loader(Broken(b"\xff".decode), num_workers=1))


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="the system cannot fork"
)
def test_a_forked_copy_of_an_iterator_leaves_the_workers_alone() -> None:
    batches = iter(graphc.utils.data.DataLoader([1, 2, 3, 4], num_workers=1, prefetch_factor=1))
    assert next(batches).tolist() == [1]
    namespace = {"batches": batches}

    def drop() -> None:
        namespace.clear()
        nonlocal batches
        del batches
        gc.collect()

    process = multiprocessing.get_context("fork").Process(target=drop)
    process.start()
    process.join()
    assert [b.tolist() for b in batches] == [[2], [3], [4]]


# --- compiled functions, jit ---------------------------------------------------------------------


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen = iter(range(99))

    def forward(self, x: Any) -> Any:
        return x * next(self.seen)


def test_fullgraph_is_a_cure_for_those_alone_who_asked_for_it() -> None:
    for function in (Noisy(), lambda x: x * os.getpid()):
        assert "Cure" in str(graphc.explain(function, X))
        assert "leave out fullgraph" not in str(graphc.explain(function, X))
        with pytest.raises(TraceError, match="leave out fullgraph=True"):
            graphc.compile(function, fullgraph=True)(X)


def test_saving_what_jit_gave_back(tmp_path: Path) -> None:
    """What was traced is an archive; what was scripted has no example, and says what to do."""
    for given in (nn.Linear(2, 2), lambda x: x * 2):
        graphc.jit.trace(given, X).save(tmp_path / "traced.pt")
        np.testing.assert_allclose(
            graphc.jit.load(tmp_path / "traced.pt")(X).numpy(), given(X).detach().numpy()
        )
    made = graphc.jit.script(nn.Linear(2, 2))
    with pytest.raises(AttributeError, match=r"'Linear'.*'save'.*torch\.jit\.trace"):
        made.save(tmp_path / "model.pt")
    assert not hasattr(made, "save")
    made = graphc.jit.script(lambda x: x * 2)
    with pytest.raises(NotImplementedError, match=r"not traced(.|\n)*Cure.*torch\.jit\.trace"):
        made.save(tmp_path / "function.pt")
    assert graphc.compile(made)(X).tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_a_misspelled_name_finds_the_right_one() -> None:
    with pytest.raises(AttributeError) as caught:
        _ = nn.Linear(2, 2).wieght
    assert caught.value.name == "wieght"  # by which Python says "Did you mean: 'weight'?"
    assert isinstance(caught.value.obj, nn.Linear)
    with pytest.raises(AttributeError) as caught:
        graphc.zeroes(2)
    assert caught.value.name == "zeroes" and caught.value.obj is graphc


# --- the command line ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of [4, 3] and files for it, right and wrong."""
    place = tmp_path_factory.mktemp("predict")
    model = nn.Linear(3, 2)
    graphc.export.export(model, (graphc.ones(4, 3),)).save(place / "m.gcx")
    graphc.export.export(nn.Unflatten(0, (2, 2)), (graphc.ones(4, 3),)).save(place / "deep.gcx")
    np.save(place / "x.npy", np.ones((4, 3), np.float32))
    np.save(place / "wide.npy", np.ones((4, 5), np.float32))
    np.save(place / "double.npy", np.ones((4, 3)))
    np.save(place / "object.npy", np.array([{}]), allow_pickle=True)
    np.savez(place / "many.npz", x=np.ones(3))
    (place / "junk.gcx").write_text("junk")
    (place / "junk.npy").write_text("junk")
    (place / "want.txt").write_text(repr(model(graphc.ones(4, 3)).tolist()))
    return place


def command(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    root = Path(graphc.__file__).parents[1]
    return subprocess.run(
        [sys.executable, "-m", "graphc", *arguments], cwd=place, capture_output=True, text=True,
        env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin", "HOME": str(place)},
    )


@pytest.mark.parametrize(("arguments", "words"), [
    ("predict no.gcx x.npy", "no.gcx"),
    ("predict m.gcx no.npy", "no.npy"),
    ("predict . x.npy", "directory"),
    ("predict junk.gcx x.npy", "junk.gcx cannot be loaded"),
    ("predict m.gcx junk.npy", "junk.npy cannot be read as a .npy file"),
    ("predict m.gcx object.npy", "object.npy cannot be read as a .npy file"),
    ("predict m.gcx many.npz", "many.npz cannot be read as a .npy file"),
    ("predict m.gcx wide.npy", "must be f32[4,3], got f32[4,5]"),
    ("predict m.gcx double.npy", "got f64[4,3]. Cure: convert it to torch.float32"),
    ("predict m.gcx x.npy x.npy", "takes 1 arguments, got 2"),
    ("predict m.gcx x.npy --out o.txt", "--out o.txt: the name must end in .npy or .csv"),
    ("predict m.gcx x.npy --out o", "the name must end in .npy or .csv"),
    ("predict m.gcx x.npy --out none/o.npy", "none/o.npy"),
    ("predict deep.gcx x.npy --out o.csv", "has no CSV form. Cure: --out o.npy"),
    ("run no.py", "can't open file"),
    ("run .", "can't find '__main__' module"),
    ("run -m no_such_module", "no module named 'no_such_module'"),
])
def test_a_mistake_is_one_line_and_exit_code_2(arguments: str, words: str, folder: Path) -> None:
    done = command(folder, *arguments.split())
    assert done.returncode == 2
    assert words in done.stderr and done.stderr.count("\n") == 1 and not done.stdout


def test_missing_arguments_show_the_usage(folder: Path) -> None:
    for arguments, missing in (("run", "script"), ("run --eager", "script"), ("predict", "model")):
        done = command(folder, *arguments.split())
        assert done.returncode == 2 and done.stderr.startswith("usage: python -m graphc")
        assert f"required: {missing}" in done.stderr and "arguments are required: script, " not in (
            done.stderr
        )
    assert "at least 1" in command(folder, "demo", "--epochs", "0").stderr


def test_outputs_are_written_as_npy_or_csv(folder: Path, tmp_path: Path) -> None:
    want = np.array(eval((folder / "want.txt").read_text()), np.float32)
    for name, read in (
        ("o.npy", np.load), ("o.csv", lambda path: np.loadtxt(path, np.float32, delimiter=",")),
    ):
        done = command(folder, "predict", "m.gcx", "x.npy", "--out", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
        np.testing.assert_allclose(read(tmp_path / name), want, rtol=1e-6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o.csv", "o.npy"]


WARNINGS: dict[str, Callable[[], Any]] = {
    "softmax": lambda: F.softmax(graphc.ones(2)),
    "log_softmax": lambda: F.log_softmax(graphc.ones(2)),
    "mse_loss": lambda: F.mse_loss(graphc.ones(2, 1), graphc.ones(2)),
    "l1_loss": lambda: F.l1_loss(graphc.ones(2, 1), graphc.ones(2)),
    "grid_sample": lambda: F.grid_sample(graphc.ones(1, 1, 2, 2), graphc.ones(1, 2, 2, 2)),
    "upsample": lambda: F.upsample(graphc.ones(1, 1, 2, 2), scale_factor=2),
}


@pytest.mark.parametrize("name", WARNINGS)
def test_a_warning_names_the_line_of_the_caller(name: str) -> None:
    with pytest.warns() as given:
        WARNINGS[name]()
    assert [warning.filename for warning in given] == [__file__]
