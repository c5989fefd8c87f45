"""What packages that are built on torch ask of it, piece by piece (test_packages.py runs some)."""

import dataclasses
import importlib
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any, get_args

import pytest

import graphc
from graphc import nn

ROOT = Path(__file__).parents[2]


def test_handles_of_hooks_are_of_one_kind() -> None:
    from graphc.utils.hooks import RemovableHandle

    table: OrderedDict[int, str] = OrderedDict()
    extra: OrderedDict[int, int] = OrderedDict()
    handle = RemovableHandle(table, extra_dict=extra)
    table[handle.id], extra[handle.id] = "hook", 1
    handle.remove()
    handle.remove()
    assert not table and not extra
    module, weight = nn.Linear(1, 1), graphc.ones(2, requires_grad=True)
    for made in (module.register_forward_hook(print), weight.register_hook(print)):
        assert isinstance(made, RemovableHandle)
        made.remove()
    assert module(graphc.ones(1, 1)).shape == (1, 1)  # prints nothing, and works


def test_no_module_is_a_script_module() -> None:
    assert not isinstance(nn.Linear(1, 1), graphc.jit.ScriptModule)
    assert graphc.ScriptModule is graphc.jit.ScriptModule
    assert issubclass(graphc.ScriptModule, nn.Module)


def test_a_dtype_is_no_dataclass() -> None:
    assert not dataclasses.is_dataclass(graphc.float32)


class Plain(graphc.optim.Optimizer):
    """As people write them: no decorator, and a closure that calls backward()."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                p.data.add_(p.grad, alpha=-group["lr"])
        return loss


class StandIn(graphc.optim.Optimizer):
    """Wraps an optimizer without being one: no super().__init__()."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        return self.optimizer.step(closure)


@pytest.mark.parametrize("compiled", [False, True])
def test_an_optimizer_of_ones_own(compiled: bool) -> None:
    weight = nn.Parameter(graphc.tensor([1.0, 2.0]))
    optimizer = StandIn(Plain([weight]))

    def closure() -> Any:
        weight.grad = None
        loss = (weight * weight).sum()
        loss.backward()
        return loss

    def step() -> Any:
        return optimizer.step(closure)

    run = graphc.compile(step) if compiled else step
    losses = [run().item() for _ in range(3)]
    assert losses == pytest.approx([5.0, 3.2, 2.048])


class Twice(nn.Module):
    """Two results from two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        h = self.first(x)
        return h, self.second(h).sum(), (self.second(x) * 0).sum()


def test_what_an_unused_result_hangs_on_has_no_gradient() -> None:
    model = Twice()
    run = graphc.compile(model)
    for _ in range(2):
        run(graphc.ones(1, 2))[0].sum().backward()
        assert model.first.weight.grad is not None and model.second.weight.grad is None
    run(graphc.ones(1, 2))[2].backward()
    assert model.second.weight.grad is not None and not model.second.weight.grad.any()


def test_factors_by_keyword() -> None:
    i, a, b = graphc.randn(2, 3, 5), graphc.randn(2, 3, 4), graphc.randn(2, 4, 5)
    want = i * 0.5 + 2 * (a @ b)
    assert graphc.allclose(i.baddbmm(batch1=a, batch2=b, beta=0.5, alpha=2), want, atol=1e-6)
    assert graphc.allclose(graphc.addmm(i[0], a[0], mat2=b[0]), i[0] + a[0] @ b[0], atol=1e-6)
    for given, named in (((a[0],), {}), ((a[0], b[0]), {"mat1": a[0]}), ((a[0],), {"mat3": b[0]})):
        with pytest.raises(TypeError, match="addmm"):
            graphc.addmm(i[0], *given, **named)


def test_names_of_devices_that_are_not_here() -> None:
    assert str(graphc.device("mps")) == "mps" and graphc.device("xla:1").index == 1
    with pytest.raises(RuntimeError, match="Expected one of cpu, cuda"):
        graphc.device("foo")
    for use in (lambda d: graphc.ones(1, device=d), graphc.ones(1).to, nn.Linear(1, 1).to):
        with pytest.raises(RuntimeError, match="'mps' is not supported"):
            use("mps")
    with pytest.raises(RuntimeError, match="'mps' is not supported"), graphc.device("mps"):
        pass
    parsed = graphc._C._nn._parse_to("cpu", graphc.float64, True)
    assert parsed == (graphc.device("cpu"), graphc.float64, True, None)


def test_a_compiled_module_is_given_its_module_again() -> None:
    """accelerate does so once it has taken the wrapper off, and put it on again."""
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    compiled = graphc.compile(model)
    compiled._orig_mod = model
    assert len(compiled.state_dict()) == len(model.state_dict())
    assert len(list(model.modules())) == 3
    with pytest.raises(AttributeError, match=r"Sequential keeps its _orig_mod; got another Linear"):
        compiled._orig_mod = nn.Linear(2, 2)
    compiled.extra = 3
    assert model.extra == 3


def test_another_function_is_compiled_as_a_module_was() -> None:
    """Lightning compiles its Module's training_step so."""
    compiled = graphc.compile(nn.Linear(2, 2), backend="eager", fullgraph=True)
    double = compiled.dynamo_ctx(lambda x: x * 2)
    assert double(graphc.ones(2)).tolist() == [2.0, 2.0]
    assert double.backend == "eager" and double.fullgraph and double.compile_count == 1




def test_what_packages_of_distributions_take_from_its_tools() -> None:
    from graphc.distributions import Categorical, utils

    graphc.manual_seed(3)
    drawn = utils._standard_normal((2, 20), dtype=graphc.float32, device="cpu")
    graphc.manual_seed(3)
    assert drawn.tolist() == graphc.randn(2, 20).tolist()
    assert utils._sum_rightmost(graphc.ones(2, 3, 4), 2).tolist() == [12.0, 12.0]
    assert isinstance(Categorical.logits, utils.lazy_property)
    assert isinstance(Categorical.logits, property)


def test_a_lazy_property_has_its_history_whenever_it_is_asked_for() -> None:
    from graphc.distributions import Categorical

    probs = graphc.tensor([0.25, 0.75], requires_grad=True)
    found = Categorical(probs=probs)
    with graphc.no_grad():
        print(found.logits)  # for the first time: a logger, say
    found.logits[0].backward()
    assert probs.grad is not None and probs.grad.abs().max() > 0
def test_no_stream_is_a_datapipe() -> None:
    from graphc.utils.data.datapipes.iter.combinatorics import ShufflerIterDataPipe

    assert not isinstance(graphc.utils.data.TensorDataset(graphc.ones(1)), ShufflerIterDataPipe)
    with pytest.raises(NotImplementedError, match=r"ShufflerIterDataPipe\. Cure: an Iterable"):
        ShufflerIterDataPipe([1])


CHECKS = [
    lambda t: t._check(True, "not a function, and not called"),
    lambda t: t._check(False), lambda t: t._check(False, lambda: 3),
    lambda t: t._check(False, "text"), lambda t: t._check(1),
    lambda t: t._check(t.tensor(True)), lambda t: t._check_value(False, lambda: "v"),
    lambda t: t._check_index(False, lambda: "i"), lambda t: t._check_type(False, lambda: "k"),
    lambda t: t._check_not_implemented(False, lambda: "n"),
    lambda t: t._check_with(KeyError, False, lambda: "w"),
    lambda t: t._check_with(UserWarning, False, None),
    lambda t: t._check_tensor_all(t.tensor([True, True])), lambda t: t._check_tensor_all(t.ones(2)),
    lambda t: t._check_tensor_all(t.tensor([True, False]), lambda: "of all"),
    lambda t: t._check_tensor_all_with(OSError, t.tensor([False]), lambda: "w"),
    lambda t: t._check_tensor_all(True),
]


@pytest.mark.parametrize("number", range(len(CHECKS)))
def test_checks(number: int) -> None:
    """transformers asks so wherever a condition could fail while it is traced."""
    torch = pytest.importorskip("torch")

    def outcome(package: Any) -> Any:
        try:
            return CHECKS[number](package)
        except Exception as error:
            return type(error), str(error).replace("torch.Tensor", "Tensor")

    ours, theirs = outcome(graphc), outcome(torch)
    if theirs is not None and "<class" in theirs[1]:  # a name with that of its module
        text = theirs[1].partition("<class")[0]
        assert ours[0] is theirs[0] and ours[1].startswith(text)
    else:
        assert ours == theirs


def test_a_check_in_compiled_code() -> None:
    @graphc.compile
    def root(x: Any) -> Any:
        graphc._check(x.shape[0] > 1, lambda: "two or more")
        graphc._check_tensor_all(x >= 0, lambda: "no root")
        return x.sqrt()

    for _ in range(2):
        assert root(graphc.full((2,), 4.0)).tolist() == [2.0, 2.0]
        with pytest.raises(RuntimeError, match="no root"):
            root(-graphc.ones(2))
    with pytest.raises(RuntimeError, match="two or more"):
        root(graphc.ones(1))


FOUND = """
from graphc.optim import Optimizer
def all_of(kind):
    return {kind.__name__}.union(*map(all_of, kind.__subclasses__()))
print(*all_of(Optimizer))
"""


def test_optimizers_are_found_by_name() -> None:
    """LightningCLI's --optimizer=SGD, in a process that has not used any."""
    done = subprocess.run(
        [sys.executable, "-c", FOUND], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert {"SGD", "Adam", "AdamW", "RMSprop", "LBFGS", "Muon"} <= set(done.stdout.split())


def test_a_parameter_is_made_again_of_what_another_holds() -> None:
    """accelerate's init_empty_weights() does so."""
    weight = nn.Parameter(graphc.ones(2))
    (weight * 2).sum().backward()
    fields = weight.__dict__
    fields["requires_grad"] = False
    made = type(weight)(graphc.zeros(3), **fields)
    assert made.tolist() == [0.0] * 3 and not made.requires_grad and made.grad is None
    with pytest.raises(TypeError, match="unexpected argument 'other'"):
        nn.Parameter(graphc.ones(1), other=1)


@pytest.mark.parametrize("compiled", [False, True])
def test_the_train_of_a_module_inside_is_asked(compiled: bool) -> None:
    class Frozen(nn.BatchNorm1d):  # as detectors have it; gpytorch's Modules forget what they kept
        asked = 0

        def train(self, mode: bool = True) -> Any:
            self.asked += 1
            return super().train(False)

    model = nn.Sequential(nn.Sequential(Frozen(2)), nn.Dropout(0.5))
    if compiled:
        graphc.compile(model.train)()
    else:
        assert model.train() is model
    assert model[0][0].asked == 1 and model.training and model[1].training
    assert not model[0][0].training
    model.eval()
    assert model[0][0].asked == 2 and not model[1].training


def test_a_storage_says_how_large_it_is() -> None:
    import sys

    for dtype, size in ((graphc.float32, 4), (graphc.float64, 8)):  # torchinfo adds these up
        storages = [
            graphc.zeros(n, dtype=dtype).untyped_storage() for n in (0, 1000)
        ]
        none, some = map(sys.getsizeof, storages)
        assert some - none == 1000 * size


def test_what_a_star_imports_is_what_torch_says() -> None:
    pytest.importorskip("torch")
    for name in ("constraints", "transforms", "kl", "constraint_registry"):
        ours, theirs = (
            importlib.import_module(f"{root}.distributions.{name}") for root in ("graphc", "torch")
        )
        assert sorted(ours.__all__) == sorted(theirs.__all__), name
        assert all(hasattr(ours, listed) for listed in ours.__all__)


def test_map_locations_have_a_type() -> None:
    from graphc.serialization import MAP_LOCATION

    assert {str, type(None), graphc.device} < set(get_args(MAP_LOCATION))


def test_a_sample_of_vmap_is_known() -> None:
    from graphc._C._functorch import is_batchedtensor

    seen = []

    def one(x: graphc.Tensor, whole: graphc.Tensor) -> graphc.Tensor:
        seen.append((is_batchedtensor(x), is_batchedtensor(whole)))
        return x + whole.sum()

    whole = graphc.ones(2)
    graphc.vmap(one, in_dims=(0, None))(graphc.ones(3, 2), whole)
    assert seen == [(True, False)] and not is_batchedtensor(whole)


def test_sigmoid_within_its_open_interval() -> None:
    from graphc.distributions.transforms import _clipped_sigmoid

    found = _clipped_sigmoid(graphc.tensor([-200.0, 0.0, 200.0]))
    limits = graphc.finfo(graphc.float32)
    assert found.tolist() == [limits.tiny, 0.5, 1 - limits.eps]


def test_older_places_of_sharding() -> None:
    from graphc.distributed import _composable, _tensor, fsdp, tensor

    assert _composable.fsdp.FSDPModule is fsdp.FSDPModule and _tensor.DTensor is tensor.DTensor
    assert not isinstance(nn.Linear(1, 1), _composable.fsdp.FSDPModule)
    for refused in (
        _tensor.experimental.implicit_replication, _composable.fsdp.fully_shard,
        importlib.import_module("graphc.nn.utils._per_sample_grad").call_for_per_sample_grads,
    ):
        with pytest.raises(NotImplementedError, match=r"graphc does not have torch\..*Cure: "):
            refused(nn.Linear(1, 1))


def test_names_in_annotations() -> None:
    from graphc.utils.data.dataloader import _collate_fn_t

    assert len(get_args(_collate_fn_t)) == 2 and not isinstance(
        graphc.device("cpu"), str | graphc.DeviceObjType
    )
    assert graphc._C._get_cudnn_enabled() is graphc.backends.cudnn.enabled
    with graphc.backends.cudnn.flags(enabled=False):
        assert graphc._C._get_cudnn_enabled() is False


class Borrowed:
    """What fastai hands to the iterators in a DataLoader's place: torch's attributes alone."""

    _IterableDataset_len_called, _auto_collation, drop_last, in_order = None, False, False, True
    generator, prefetch_factor, worker_init_fn, timeout = None, 2, None, 0
    pin_memory, persistent_workers, multiprocessing_context = False, False, None

    def __init__(self, dataset: Any, num_workers: int) -> None:
        self.dataset, self.num_workers = dataset, num_workers
        self._dataset_kind = importlib.import_module("graphc.utils.data")._DatasetKind.Iterable

    _index_sampler = range(1 << 30)

    def collate_fn(self, batch: Any) -> Any:
        return batch


class Counted(graphc.utils.data.IterableDataset):
    def __iter__(self) -> Any:
        info = graphc.utils.data.get_worker_info()
        share = (0, 1) if info is None else (info.id, info.num_workers)
        return iter([graphc.tensor(k) for k in range(share[0], 5, share[1])])


@pytest.mark.parametrize("workers", [0, 2])
def test_iterators_of_loaders_take_a_librarys_own(workers: int) -> None:
    from graphc.utils.data import dataloader as loading

    kind = loading._MultiProcessingDataLoaderIter if workers else (
        loading._SingleProcessDataLoaderIter)
    found = list(kind(Borrowed(Counted(), workers)))
    assert [int(each) for each in found] == [0, 1, 2, 3, 4]
