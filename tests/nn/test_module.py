"""nn.Module's machinery, by running the same script on both packages."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import graphc
from graphc import nn as our_nn
from graphc.frontend import state_version
from tests.nn.both import SPACES


def both(script: Callable[[Any], Any]) -> Any:
    """What a script tells (plain data) on graphc, after checking it against torch."""
    theirs, ours = (script(s) for s in SPACES)
    assert ours == theirs
    return ours


def error(action: Callable[[], Any]) -> str:
    """The type and the text of the error that an action raises."""
    with pytest.raises(Exception) as info:
        action()
    return f"{type(info.value).__name__}: {info.value}"


def rounded(tensor: Any) -> Any:
    """Values to 5 digits, for comparing exactly."""
    return np.round(tensor.detach().numpy(), 5).tolist()


def net(s: Any) -> Any:
    """A small model with all kinds of state."""

    class Net(s.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = s.nn.Linear(3, 4)
            self.body = s.nn.Sequential(s.nn.ReLU(), s.nn.BatchNorm1d(4), s.nn.Linear(4, 3))
            self.tied = self.first
            self.scale = s.nn.Parameter(s.torch.ones(1))
            self.register_buffer("seen", s.torch.zeros(()))
            self.register_buffer("scratch", s.torch.zeros(2), persistent=False)
            self.register_parameter("absent", None)
            self.absent_module = None

        def forward(self, x: Any) -> Any:
            return self.body(self.first(x)) * self.scale

    return Net()


def test_traversal() -> None:
    def script(s: Any) -> Any:
        m = net(s)
        return (
            [n for n, _ in m.named_modules()], [n for n, _ in m.named_children()],
            [n for n, _ in m.named_parameters()], [n for n, _ in m.named_buffers()],
            [n for n, _ in m.named_parameters(remove_duplicate=False)],
            [n for n, _ in m.named_parameters(prefix="p", recurse=False)],
            [n for n, _ in m.named_modules(remove_duplicate=False)],
            len(list(m.parameters())), len(list(m.buffers())), len(list(m.modules())),
            len(list(m.modules(remove_duplicate=False))),
            list(m.state_dict()), dict(m.state_dict()._metadata), repr(m),
        )

    both(script)


def test_reset_parameters() -> None:
    def script(s: Any) -> Any:
        s.torch.manual_seed(3)
        layers = [
            s.nn.Bilinear(2, 3, 4), s.nn.PReLU(2, init=0.1), s.nn.Linear(2, 3),
            s.nn.Conv1d(2, 2, 2),
            s.nn.Embedding(3, 2, padding_idx=1), s.nn.LayerNorm(2), s.nn.GRU(2, 2),
            s.nn.LSTMCell(2, 2), s.nn.GroupNorm(1, 2), s.nn.BatchNorm1d(2),
        ]
        found = []
        for layer in layers:
            for p in layer.parameters():
                p.data.fill_(7)
            layer.reset_parameters()
            found += [p.detach().double().round(decimals=6).tolist() for p in layer.parameters()]
        return found

    both(script)


def test_lookup() -> None:
    def script(s: Any) -> Any:
        m = net(s)
        return (
            type(m.get_submodule("body.2")).__name__, m.get_submodule("") is m,
            m.get_parameter("body.2.weight") is m.body[2].weight,
            m.get_buffer("body.1.running_mean") is m.body[1].running_mean,
            error(lambda: m.get_submodule("body.9")), error(lambda: m.get_submodule("scale")),
            error(lambda: m.nothing), hasattr(m, "first"), "scale" in dir(m),
        )

    both(script)


def test_assignment() -> None:
    def script(s: Any) -> Any:
        m = net(s)
        told = [
            error(lambda: setattr(m, "scale", 3)),
            error(lambda: setattr(m, "scale", s.torch.ones(1))),
            error(lambda: setattr(m, "body", 3)),
            error(lambda: setattr(m, "seen", 3)).replace("torch.nn.Buffer, ", ""),
            error(lambda: m.register_buffer("a.b", None)),
            error(lambda: m.register_buffer("", None)),
            error(lambda: m.register_buffer("first", None)),
            error(lambda: m.register_buffer("x", 3)).replace("torch Tensor", "Tensor"),
            error(lambda: m.register_parameter("y", s.torch.ones(1))).split("'")[0],
            error(lambda: m.register_parameter(
                "z", s.nn.Parameter(s.torch.ones(1)) * 2)).split(":")[0],
            error(lambda: m.add_module("first", 3)).split(":")[0],
            error(lambda: m.train(3)),
        ]
        m.scale = None
        m.plain = s.nn.Linear(1, 1)
        m.plain = None
        m.seen = s.torch.ones(())
        m.later = 3
        m.later = s.nn.Parameter(s.torch.ones(2))
        del m.body
        told += [[n for n, _ in m.named_parameters()], list(m.state_dict()), m.absent is None]
        return told

    both(script)


def test_before_init() -> None:
    def script(s: Any) -> Any:
        class Late(s.nn.Module):
            def __init__(self) -> None:
                self.weight = s.nn.Parameter(s.torch.ones(1))

        class LateModule(s.nn.Module):
            def __init__(self) -> None:
                self.child = s.nn.Linear(1, 1)

        return error(Late), error(LateModule), error(lambda: s.nn.Module(1)), error(
            lambda: s.nn.Module(x=1)
        )

    both(script)


def test_modes_and_conversion() -> None:
    def script(s: Any) -> Any:
        m = net(s)
        first = m.first.weight
        before = [x.training for x in m.modules()]
        m.eval()
        after = [x.training for x in m.modules()]
        m.body.train()
        mixed = [x.training for x in m.modules()]
        m.double()
        dtypes = [str(v.dtype) for v in m.state_dict().values()]
        same = m.first.weight is first
        m.to(s.torch.float16).float()
        m.requires_grad_(False)
        frozen = [p.requires_grad for p in m.parameters()]
        count: list[str] = []
        m.apply(lambda x: count.append(type(x).__name__))
        return before, after, mixed, dtypes, same, frozen, count, error(
            lambda: m.to(s.torch.int32)
        )

    both(script)


def test_to_keeps_gradients() -> None:
    def script(s: Any) -> Any:
        m = s.nn.Linear(2, 2)
        m(s.torch.ones(1, 2)).sum().backward()
        m.double()
        kinds = [str(m.weight.grad.dtype), m.weight.grad.tolist()]
        m.zero_grad(set_to_none=False)
        kinds.append(m.weight.grad.tolist())
        m.zero_grad()
        return [*kinds, m.weight.grad]

    both(script)


def test_load_state_dict() -> None:
    def script(s: Any) -> Any:
        m = net(s)
        state = OrderedDict((k, s.torch.full_like(v, 2)) for k, v in m.state_dict().items())
        loaded = str(m.load_state_dict(state)), m.first.weight.sum().item()
        del state["seen"]
        state["other.weight"] = s.torch.ones(1)
        state["scale"] = s.torch.ones(7)
        state["absent"] = s.torch.ones(7)
        strict = error(lambda: m.load_state_dict(state))
        state["scale"] = s.torch.ones(1)
        loose = str(m.load_state_dict(state, strict=False))
        weight = m.first.weight
        fresh = OrderedDict((k, s.torch.zeros_like(v)) for k, v in m.state_dict().items())
        m.load_state_dict(fresh, assign=True)
        return loaded, strict, loose, m.first.weight is weight, m.first.weight.sum().item(), error(
            lambda: m.load_state_dict([1])
        )

    both(script)


def test_old_batch_norm_state() -> None:
    def script(s: Any) -> Any:
        m = s.nn.BatchNorm1d(2)
        state = {k: v for k, v in m.state_dict().items() if k != "num_batches_tracked"}
        return str(m.load_state_dict(state))

    both(script)


def test_state_dict_shares_memory() -> None:
    m = our_nn.Linear(2, 2)
    state = m.state_dict()
    with graphc.no_grad():
        m.weight.fill_(3.0)
    assert state["weight"].tolist() == [[3.0, 3.0], [3.0, 3.0]]
    assert not state["weight"].requires_grad
    assert m.state_dict(keep_vars=True)["weight"] is m.weight


def test_extra_state_and_hooks_of_state_dicts() -> None:
    def script(s: Any) -> Any:
        told: list[Any] = []

        class Counted(s.nn.Module):
            count = 1

            def get_extra_state(self) -> Any:
                return {"count": self.count}

            def set_extra_state(self, state: Any) -> None:
                self.count = state["count"]

        m = s.nn.Sequential(Counted())
        m.register_state_dict_pre_hook(lambda *a: told.append(("pre", a[1:])))
        m.register_state_dict_post_hook(lambda mod, state, *a: told.append((list(state), a)))
        m.register_load_state_dict_pre_hook(lambda mod, state, prefix, *a: told.append(prefix))
        m.register_load_state_dict_post_hook(lambda mod, keys: told.append(str(keys)))
        state = m.state_dict()
        state["0._extra_state"] = {"count": 5}
        m.load_state_dict(state)
        return told, m[0].count, error(lambda: m.load_state_dict({}))

    both(script)


def test_forward_hooks() -> None:
    def script(s: Any) -> Any:
        told: list[Any] = []
        m = s.nn.Linear(2, 2)
        with s.torch.no_grad():
            m.weight.copy_(s.torch.eye(2))
            m.bias.zero_()
        x = s.torch.ones(1, 2)
        handles = [
            m.register_forward_pre_hook(lambda mod, args: told.append("pre")),
            m.register_forward_pre_hook(lambda mod, args: args[0] * 2),
            m.register_forward_pre_hook(lambda mod, args: told.append("first"), prepend=True),
            m.register_forward_hook(lambda mod, args, out: out + 1),
            m.register_forward_hook(
                lambda mod, args, kwargs, out: told.append(sorted(kwargs)), with_kwargs=True),
        ]
        told.append(m(x).tolist())
        told.append(m(input=x).tolist() if False else None)
        with handles[3]:
            pass
        told.append(m(x).tolist())
        for handle in handles:
            handle.remove()
            handle.remove()
        told.append(m(x).tolist())
        return told

    both(script)


def test_hooks_print_as_an_ordered_dict() -> None:
    layer = our_nn.Linear(1, 1)
    assert repr(layer._forward_hooks) == repr(OrderedDict())
    layer.register_forward_hook(print)
    assert repr(layer._forward_hooks) == repr(OrderedDict(layer._forward_hooks))


def test_always_called_hooks() -> None:
    def script(s: Any) -> Any:
        told: list[Any] = []

        class Bad(s.nn.Module):
            def forward(self, x: Any) -> Any:
                raise ValueError("bad")

        m = Bad()
        m.register_forward_hook(lambda *a: told.append("never"))
        m.register_forward_hook(lambda mod, args, out: told.append(out), always_call=True)
        return error(lambda: m(1)), told

    both(script)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
def test_backward_hooks() -> None:
    def script(s: Any) -> Any:
        told: list[Any] = []

        def note(name: str) -> Callable[..., None]:
            def hook(module: Any, *grads: Any) -> None:
                told.append((name, [[None if t is None else rounded(t) for t in g]
                                    for g in grads]))

            return hook

        m = s.nn.Sequential(s.nn.Linear(2, 2), s.nn.Tanh(), s.nn.Linear(2, 1))
        with s.torch.no_grad():
            for p in m.parameters():
                p.fill_(0.5)
        m[0].register_full_backward_hook(note("0"))
        m[2].register_full_backward_hook(note("2"))
        m[2].register_full_backward_pre_hook(note("2 pre"))
        scale = m[1].register_full_backward_hook(lambda mod, gi, go: (gi[0] * 2,))
        x = s.torch.zeros(1, 2, requires_grad=True)
        m(x).sum().backward()
        told.append(rounded(x.grad))
        scale.remove()
        m(s.torch.zeros(1, 2)).sum().backward()
        told.append([rounded(p.grad) for p in m.parameters()])
        return told

    both(script)


def test_copies_and_pickles() -> None:
    m = our_nn.Sequential(our_nn.Linear(2, 3), our_nn.BatchNorm1d(3))
    m[0].tied = m[0].weight
    for twin in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert repr(twin) == repr(m)
        assert twin[0].tied is twin[0].weight is not m[0].weight
        for (name, a), (_, b) in zip(
            m.state_dict().items(), twin.state_dict().items(), strict=True
        ):
            np.testing.assert_array_equal(a.numpy(), b.numpy(), err_msg=name)
        with graphc.no_grad():
            twin[0].weight.zero_()
        assert m[0].weight.abs().sum().item() > 0
    shallow = copy.copy(m)
    assert shallow[0] is m[0]


def test_containers() -> None:
    def script(s: Any) -> Any:
        nn = s.nn

        def names(m: Any) -> list[str]:
            return [f"{n}:{type(c).__name__}" for n, c in m.named_children()]

        seq = nn.Sequential(OrderedDict(a=nn.ReLU(), b=nn.Tanh(), c=nn.ReLU()))
        told = [names(seq), names(seq[1:]), type(seq[-1]).__name__, len(seq)]
        seq[1] = nn.Sigmoid()
        seq.append(nn.GELU())
        told += [names(seq), error(lambda: seq[9]), error(lambda: seq.insert(9, nn.ReLU()))]
        plain = nn.Sequential(nn.ReLU(), nn.Tanh())
        plain.insert(1, nn.GELU())
        plain.extend([nn.Tanh()])
        del plain[0]
        told += [names(plain), names(plain + plain), names(plain * 2), type(plain.pop(0)).__name__]
        plain += nn.Sequential(nn.SiLU())
        told += [names(plain), repr(plain)]
        many = nn.ModuleList([nn.Linear(1, 1) for _ in range(3)])
        many += [nn.ReLU()]
        many.insert(0, nn.Tanh())
        del many[1]
        told += [names(many), repr(many), names(many[1:]), type(many.pop(-1)).__name__, len(many),
                 error(lambda: many.extend(3)), names(many.__add__([nn.ReLU()]))]
        named = nn.ModuleDict({"x": nn.ReLU(), "y": nn.Tanh()})
        named["z"] = nn.GELU()
        named.update([("w", nn.SiLU())])
        told += [names(named), list(named.keys()), "x" in named, type(named.pop("x")).__name__,
                 len(named), repr(named), [type(m).__name__ for m in named.values()],
                 error(lambda: named.update(3)), error(lambda: named.update([(1, 2, 3)]))]
        return told

    both(script)


def test_parameter_containers() -> None:
    def script(s: Any) -> Any:
        nn, one = s.nn, s.torch.ones
        plist = nn.ParameterList([nn.Parameter(one(2, 3)), one(2)])
        plist.append(one(1))
        plist += [3]
        told = [
            repr(plist), len(plist), [n for n, _ in plist.named_parameters()], plist[-1],
            len(plist[1:]), error(lambda: plist(1)), error(lambda: plist.extend(one(1))),
            repr(nn.ParameterList([one(2)])),
        ]
        pdict = nn.ParameterDict({"b": one(2), "a": nn.Parameter(one(3))})
        pdict["c"] = 4
        told += [repr(pdict), list(pdict), len(pdict), list(pdict.keys()), pdict.get("q", 5),
                 [n for n, _ in pdict.named_parameters()], pdict.pop("c"), "c" in pdict,
                 list(pdict | nn.ParameterDict({"z": one(1)})), error(lambda: pdict(1)),
                 pdict.popitem()[0], list(reversed(pdict))]
        return told

    both(script)


@pytest.mark.parametrize("write", [
    lambda m: setattr(m, "flag", 1),
    lambda m: m.train(False),
    lambda m: m[0].register_buffer("b", None),
    lambda m: m.append(our_nn.ReLU()),
    lambda m: m._modules.pop("0"),
    lambda m: m[0]._parameters.__setitem__("bias", None),
    lambda m: m.register_forward_hook(print),
    lambda m: m.load_state_dict(m.state_dict()),
    lambda m: m.double(),
    lambda m: m.__delitem__(0),
])
def test_writes_are_counted(write: Callable[[Any], Any]) -> None:
    m = our_nn.Sequential(our_nn.Linear(2, 2))
    before = state_version.current()
    write(m)
    assert state_version.current() > before


def test_removing_a_hook_is_counted() -> None:
    m = our_nn.ReLU()
    handle = m.register_forward_hook(lambda *a: None)
    before = state_version.current()
    handle.remove()
    assert state_version.current() > before


class Once(our_nn.Module):
    """Has a hook that takes itself out, as torch_geometric's lazy layers have."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.handle = self.register_forward_pre_hook(self.first)

    def first(self, module: Any, args: Any) -> None:
        self.calls += 1
        self.handle.remove()

    def forward(self, x: Any) -> Any:
        return x


def test_a_copied_handle_removes_the_copys_hook() -> None:
    module = Once()
    copies = [copy.deepcopy(module), copy.deepcopy(our_nn.Sequential(module))[0]]
    copies.append(copy.deepcopy(copies[0]))
    for each in [*copies, module]:
        for _ in range(3):
            each(graphc.ones(1))
        assert each.calls == 1 and not each._forward_pre_hooks


def test_files_name_plain_containers_only() -> None:
    data = pickle.dumps(our_nn.Sequential(our_nn.Linear(2, 2)))
    assert b"Watched" not in data and b"OrderedDict" in data


def test_a_module_that_holds_a_plain_tensor_is_copied() -> None:
    module = our_nn.Linear(2, 2)
    module.mask = graphc.ones(3)
    assert copy.deepcopy(module).mask.tolist() == [1, 1, 1]
