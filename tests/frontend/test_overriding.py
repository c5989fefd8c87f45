"""__torch_function__: who is asked, in which order, and with what, beside PyTorch."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")

Scenario = Callable[[Any], Any]
SCENARIOS: list[Scenario] = []


def scenario(function: Scenario) -> Scenario:
    SCENARIOS.append(function)
    return function


def outcome(t: Any, function: Callable[[], Any]) -> Any:
    """What a call gives: kinds and values, or the kind of the error."""
    try:
        return seen(t, function())
    except Exception as error:
        return type(error).__name__


def seen(t: Any, value: Any) -> Any:
    if isinstance(value, t.Tensor):
        with t._C.DisableTorchFunction():
            array = value.detach().numpy()
        if array.dtype.kind == "f":
            array = np.round(array, 4) + 0.0
        return type(value).__name__, array.shape, array.tolist()
    if isinstance(value, (tuple, list)):
        return type(value).__name__, [seen(t, item) for item in value]
    return value


# --- objects that are no tensors ------------------------------------------------------------------


def scalar_tensor(t: Any) -> Any:
    handled: dict[Any, Any] = {}

    class ScalarTensor:  # N on the diagonal, as in PyTorch's notes on extending
        def __init__(self, size: int, value: float) -> None:
            self.size, self.value = size, value

        def __repr__(self) -> str:
            return f"ScalarTensor({self.size}, {self.value})"

        def tensor(self) -> Any:
            return self.value * t.eye(self.size)

        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func not in handled or not all(
                issubclass(kind, (t.Tensor, ScalarTensor)) for kind in types
            ):
                return NotImplemented
            return handled[func](*args, **(kwargs or {}))

    def implements(function: Any) -> Any:
        def decorate(implementation: Any) -> Any:
            handled[function] = functools.wraps(function)(implementation)
            return implementation
        return decorate

    @implements(t.mean)
    def mean(input: Any) -> float:
        return float(input.value) / input.size

    def dense(value: Any) -> Any:
        return value.tensor() if isinstance(value, ScalarTensor) else value

    @implements(t.add)
    def add(input: Any, other: Any) -> Any:
        if isinstance(input, ScalarTensor) and isinstance(other, ScalarTensor):
            return ScalarTensor(input.size, input.value + other.value)
        return t.add(dense(input), dense(other))

    @implements(t.stack)
    def stack(tensors: Any, dim: int = 0) -> Any:
        return t.stack([dense(x) for x in tensors], dim)

    @implements(t.nn.functional.linear)
    def linear(input: Any, weight: Any, bias: Any = None) -> str:
        return f"linear of {type(weight).__name__}"

    @implements(t.Tensor.mul)
    def mul(input: Any, other: Any) -> str:
        return f"mul of {type(input).__name__}"

    return ScalarTensor


@scenario
def no_tensors(t: Any) -> Any:
    scalar = scalar_tensor(t)
    d, e = scalar(2, 2), t.tensor([[1.0, 1.0], [1.0, 1.0]])
    return [
        outcome(t, lambda: t.mean(d)), outcome(t, lambda: t.add(d, e)),
        outcome(t, lambda: t.add(e, d)), outcome(t, lambda: repr(t.add(d, d))),
        outcome(t, lambda: t.mul(d, e)), outcome(t, lambda: t.stack([e, d])),
        outcome(t, lambda: t.nn.functional.linear(e, d)), outcome(t, lambda: e * d),
        outcome(t, lambda: e - d), outcome(t, lambda: t.sum(input=d)),
        outcome(t, lambda: t.add(e, other=d)),
    ]


@scenario
def metadata(t: Any) -> Any:
    class MetadataTensor:
        def __init__(self, data: Any, metadata: Any = None, **kwargs: Any) -> None:
            self._t = t.as_tensor(data, **kwargs)
            self._metadata = metadata

        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            found = tuple(a._metadata for a in args if hasattr(a, "_metadata"))
            plain = [getattr(a, "_t", a) for a in args]
            assert len(found) > 0
            return MetadataTensor(func(*plain, **(kwargs or {})), metadata=found[0])

    m = MetadataTensor([[1.0], [2.0]], metadata={"owner": "us"})
    other = t.tensor([[1.0, 2.0], [3.0, 4.0]])
    answers = [t.add(other, m), t.mul(m, other), t.exp(m), t.sum(m, dim=0)]
    return [(seen(t, each._t), each._metadata, type(each).__name__) for each in answers]


# --- who is asked ---------------------------------------------------------------------------------


def classes(t: Any, log: list[str]) -> dict[str, Any]:
    """A and its subclass B; C beside them; N answers nothing."""

    class A(t.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            log.append(f"{cls.__name__} of {[k.__name__ for k in types]}")
            return cls.__name__

    class B(A):
        pass

    class C(t.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            log.append(f"{cls.__name__} of {[k.__name__ for k in types]}")
            return cls.__name__

    class N(t.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            log.append(f"{cls.__name__} of {[k.__name__ for k in types]}")
            return NotImplemented

    return {kind.__name__: t.ones(2).as_subclass(kind) for kind in (A, B, C, N)}


@scenario
def precedence(t: Any) -> Any:
    log: list[str] = []
    x = classes(t, log)
    plain = t.ones(2)
    found: list[Any] = []
    for a in "ABCN":
        found.append(outcome(t, lambda a=a: t.add(plain, x[a])))
        for b in "ABCN":
            found.append(outcome(t, lambda a=a, b=b: t.add(x[a], x[b])))
            found.append(outcome(t, lambda a=a, b=b: x[a] + x[b]))
            found.append(outcome(t, lambda a=a, b=b: t.cat([plain, x[a], x[b]])))
            found.append(outcome(t, lambda a=a, b=b: t.where(plain > 0, x[a], x[b])))
    return found, log


@scenario
def messages(t: Any) -> Any:
    x = classes(t, [])["N"]
    found = []
    for call in (lambda: t.add(x, x), lambda: x.exp(), lambda: t.nn.functional.dropout(x, 0.5)):
        with pytest.raises(TypeError) as info:
            call()
        found.append(".N'>" in str(info.value) and "__torch_function__" in str(info.value))
    return found


@scenario
def plain_method_is_deprecated(t: Any) -> Any:
    class Plain(t.Tensor):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return 3

    x = t.ones(2).as_subclass(Plain)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = [t.add(x, 1), x + 1, x.sum()]
    return found, {w.category.__name__ for w in caught}


@scenario
def switched_off(t: Any) -> Any:
    log: list[str] = []
    x = classes(t, log)["A"]
    found = [outcome(t, lambda: t.add(x, 1))]
    with t._C.DisableTorchFunctionSubclass():
        found += [outcome(t, lambda: t.add(x, 1)), t.overrides.has_torch_function((x,))]
        with t.overrides._enable_torch_function():
            found.append(outcome(t, lambda: t.add(x, 1)))
    with t._C.DisableTorchFunction():
        found.append(outcome(t, lambda: x.sum()))
    found.append(t.overrides.has_torch_function_unary(x))
    found.append(t.overrides.has_torch_function_variadic(1, t.ones(1), x))
    found.append(t.overrides.has_torch_function((t.ones(1), t.nn.Parameter(t.ones(1)), 3, None)))
    return found, log


@scenario
def disabled_classes(t: Any) -> Any:
    class Quiet(t.Tensor):
        __torch_function__ = t._C._disabled_torch_function_impl

    class Own(t.nn.Parameter):
        pass

    x, y = t.ones(2).as_subclass(Quiet), Own(t.ones(2))
    return [
        outcome(t, lambda: x + 1), outcome(t, lambda: x.clone()), outcome(t, lambda: y * 2),
        outcome(t, lambda: t.exp(y)), outcome(t, lambda: x.add_(1)), type(y).__name__,
    ]


# --- what a handler gets --------------------------------------------------------------------------


def logging(t: Any) -> tuple[Any, list[Any]]:
    log: list[Any] = []

    class Logged(t.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            name = t.overrides.resolve_name(func)
            log.append((name, len(args), sorted(kwargs or {}), func.__name__))
            return super().__torch_function__(func, types, args, kwargs)

    return Logged, log


OPERATIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda t, x, y: x + y, "add number": lambda t, x, y: x + 1,
    "radd": lambda t, x, y: 1 + x, "radd tensor": lambda t, x, y: y + x,
    "sub": lambda t, x, y: x - y, "rsub": lambda t, x, y: 1 - x,
    "rsub tensor": lambda t, x, y: y - x, "mul": lambda t, x, y: x * y,
    "rmul": lambda t, x, y: 2 * x, "div": lambda t, x, y: x / y, "rdiv": lambda t, x, y: 2 / x,
    "rdiv tensor": lambda t, x, y: y / x, "pow": lambda t, x, y: x ** 2,
    "rpow": lambda t, x, y: 2 ** x, "floordiv": lambda t, x, y: x // 2,
    "rfloordiv": lambda t, x, y: 2 // x, "mod": lambda t, x, y: x % 2,
    "rmod": lambda t, x, y: 2 % x, "matmul": lambda t, x, y: x @ y,
    "rmatmul": lambda t, x, y: y @ x, "neg": lambda t, x, y: -x, "pos": lambda t, x, y: +x,
    "abs": lambda t, x, y: abs(x), "eq": lambda t, x, y: x == y, "ne": lambda t, x, y: x != 1,
    "lt": lambda t, x, y: x < y, "le": lambda t, x, y: x <= 1, "gt": lambda t, x, y: x > y,
    "ge": lambda t, x, y: 1 >= x,  # noqa: SIM300
    "eq None": lambda t, x, y: x == None,  # noqa: E711
    "getitem": lambda t, x, y: x[0], "getitem tuple": lambda t, x, y: x[:, 1],
    "getitem mask": lambda t, x, y: x[x > 1], "getitem of plain": lambda t, x, y: y[x > 1],
    "getitem by a list": lambda t, x, y: x[[0, 1]],
    "len": lambda t, x, y: len(x), "iter": lambda t, x, y: [*x], "unpack": lambda t, x, y: (*x,),
    "contains": lambda t, x, y: 1.0 in x, "reversed": lambda t, x, y: reversed(x),
    "bool": lambda t, x, y: bool(x.sum()), "float": lambda t, x, y: float(x.sum()),
    "int": lambda t, x, y: int(x.sum()), "item": lambda t, x, y: x.sum().item(),
    "tolist": lambda t, x, y: x.tolist(), "numpy": lambda t, x, y: np.asarray(x).tolist(),
    "format": lambda t, x, y: f"{x.sum():.2f}" and None, "hash": lambda t, x, y: hash(x) and None,
    "shape": lambda t, x, y: tuple(x.shape), "dtype": lambda t, x, y: str(x.dtype),
    "device": lambda t, x, y: str(x.device), "ndim": lambda t, x, y: x.ndim,
    "requires_grad": lambda t, x, y: x.requires_grad, "is_leaf": lambda t, x, y: x.is_leaf,
    "grad": lambda t, x, y: x.grad, "T": lambda t, x, y: x.T, "mT": lambda t, x, y: x.mT,
    "data": lambda t, x, y: x.data, "real": lambda t, x, y: x.real,
    "is_cuda": lambda t, x, y: x.is_cuda, "layout": lambda t, x, y: str(x.layout),
    "nbytes": lambda t, x, y: x.nbytes, "itemsize": lambda t, x, y: x.itemsize,
    "size": lambda t, x, y: x.size(), "dim": lambda t, x, y: x.dim(),
    "numel": lambda t, x, y: x.numel(), "nelement": lambda t, x, y: x.nelement(),
    "stride": lambda t, x, y: x.stride(), "is_contiguous": lambda t, x, y: x.is_contiguous(),
    "detach": lambda t, x, y: x.detach(), "clone": lambda t, x, y: x.clone(),
    "to": lambda t, x, y: x.to(t.float64), "double": lambda t, x, y: x.double(),
    "cpu": lambda t, x, y: x.cpu(), "type": lambda t, x, y: x.type(),
    "view": lambda t, x, y: x.view(-1), "reshape": lambda t, x, y: x.reshape(4),
    "unbind": lambda t, x, y: x.unbind(0), "split": lambda t, x, y: x.split(1),
    "chunk": lambda t, x, y: t.chunk(x, 2), "max": lambda t, x, y: x.max(dim=0),
    "sort": lambda t, x, y: t.sort(x), "topk": lambda t, x, y: x.topk(1),
    "min_max": lambda t, x, y: t.aminmax(x), "sum": lambda t, x, y: t.sum(x, dim=1),
    "mean": lambda t, x, y: x.mean(dim=1, keepdim=True), "where": lambda t, x, y: t.where(
        y > 0, x, y),
    "cat": lambda t, x, y: t.cat([y, x]), "stack": lambda t, x, y: t.stack((x, x), dim=1),
    "einsum": lambda t, x, y: t.einsum("ij,jk->ik", x, y), "exp": lambda t, x, y: x.exp(),
    "t.exp": lambda t, x, y: t.exp(x), "t.add": lambda t, x, y: t.add(x, y, alpha=2),
    "out": lambda t, x, y: t.add(y, y, out=x), "iadd": lambda t, x, y: x.__iadd__(1),
    "isub": lambda t, x, y: x.__isub__(y), "imul": lambda t, x, y: x.__imul__(2),
    "add_": lambda t, x, y: x.add_(1), "copy_": lambda t, x, y: x.copy_(y),
    "copy_ into plain": lambda t, x, y: y.copy_(x), "zero_": lambda t, x, y: x.zero_(),
    "fill_": lambda t, x, y: x.fill_(3), "requires_grad_": lambda t, x, y: x.requires_grad_(),
    "linear": lambda t, x, y: t.nn.functional.linear(x, y),
    "relu": lambda t, x, y: t.nn.functional.relu(x),
    "softmax": lambda t, x, y: x.softmax(dim=-1),
    "log_softmax": lambda t, x, y: t.log_softmax(x, 1),
    "sigmoid": lambda t, x, y: t.nn.functional.sigmoid(x),
    "mse": lambda t, x, y: t.nn.functional.mse_loss(x, y),
    "pad": lambda t, x, y: t.nn.functional.pad(x, (1, 1)),
    "interpolate": lambda t, x, y: t.nn.functional.interpolate(x[None, None], scale_factor=2),
    "allclose": lambda t, x, y: t.allclose(x, y), "equal": lambda t, x, y: t.equal(x, y),
    "is_tensor": lambda t, x, y: t.is_tensor(x), "ones_like": lambda t, x, y: t.ones_like(x),
    "zeros_like": lambda t, x, y: t.zeros_like(y), "new_zeros": lambda t, x, y: x.new_zeros(2),
    "new_tensor": lambda t, x, y: x.new_tensor([1.0]),
    "tensor": lambda t, x, y: t.as_tensor(x),
    "is_floating_point": lambda t, x, y: t.is_floating_point(x),
    "squeeze": lambda t, x, y: x.unsqueeze(0).squeeze(0), "flip": lambda t, x, y: x.flip(0),
    "permute": lambda t, x, y: x.permute(1, 0), "transpose": lambda t, x, y: x.transpose(0, 1),
    "expand_as": lambda t, x, y: x[:1].expand_as(y), "masked_fill": lambda t, x, y: x.masked_fill(
        y > 2, 0.0),
    "clamp": lambda t, x, y: x.clamp(min=0), "any": lambda t, x, y: (x > 0).any(),
    "norm": lambda t, x, y: t.linalg.norm(x), "det": lambda t, x, y: t.det(x),
    "inv": lambda t, x, y: t.linalg.inv(x), "fft": lambda t, x, y: t.fft.ifft(t.fft.fft(x)).real,
    "cumsum": lambda t, x, y: x.cumsum(0), "gather": lambda t, x, y: x.gather(
        0, t.zeros(1, 2, dtype=t.int64)),
    "setitem": lambda t, x, y: x.__setitem__(0, 5.0), "repr": lambda t, x, y: repr(x),
    "broadcast_tensors": lambda t, x, y: t.broadcast_tensors(x, y),
    "meshgrid": lambda t, x, y: t.meshgrid(x[0], y[0], indexing="ij"),
    "bitwise_and": lambda t, x, y: (x > 0) & (y > 0), "invert": lambda t, x, y: ~(x > 0),
    "rand": lambda t, x, y: (y > 0) & (x > 0), "xor": lambda t, x, y: (x > 0) ^ True,
    "lshift": lambda t, x, y: x.int() << 1,
    "dropout": lambda t, x, y: t.nn.functional.dropout(x, 0.0),
    "grad_of": lambda t, x, y: t.autograd.grad((x.requires_grad_() * 2).sum(), x),
}
# what torch calls otherwise by name, or with what was left out
_BY_KIND_ALONE = frozenset("""
    relu dropout interpolate pad mse einsum norm numpy repr inv fft rdiv pow split unique grad_of
""".split())


def logged(t: Any, name: str) -> Any:
    kind, log = logging(t)
    x = t.tensor([[1.0, 2.0], [3.0, 5.0]]).as_subclass(kind)
    y = t.tensor([[1.0, 2.0], [3.0, 4.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = outcome(t, lambda: OPERATIONS[name](t, x, y))
    return found, log


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name: str) -> None:
    (ours, our_log), (theirs, their_log) = logged(graphc, name), logged(torch, name)
    assert ours == theirs or (isinstance(ours, float) and ours == pytest.approx(theirs))
    if name in _BY_KIND_ALONE:
        assert [each[0] for each in our_log] == [each[0] for each in their_log]
    else:
        assert our_log == their_log


# --- modes ----------------------------------------------------------------------------------------


@scenario
def modes(t: Any) -> Any:
    log: list[str] = []

    class Log(t.overrides.TorchFunctionMode):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            log.append(f"{self.name} {t.overrides.resolve_name(func)}")
            return func(*args, **(kwargs or {}))

    def work() -> Any:
        x = t.ones(2, 2)
        y = x.exp() + 1
        z = t.nn.functional.linear(y, x)
        return z.shape, round(z.sum().item(), 3), t.zeros(1) @ t.ones(1), t.tensor([1, 2])

    with Log("outer") as outer:
        found = [outcome(t, work), t.overrides._get_current_function_mode() is outer]
        with Log("inner"):
            found.append(outcome(t, lambda: t.add(t.ones(1), 1)))
            found.append(len(t.overrides._get_current_function_mode_stack()))
        with t._C.DisableTorchFunctionSubclass():
            found.append(outcome(t, lambda: t.ones(1)))
        with t._C.DisableTorchFunction():
            found.append(outcome(t, lambda: t.ones(1)))
    found += [outcome(t, work), t.overrides._get_current_function_mode()]
    return found, log


@scenario
def a_mode_changes_results(t: Any) -> Any:
    class Twice(t.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is t.add:
                return func(*args, **(kwargs or {})) * 2
            if func is t.mul:
                with self:
                    return t.add(*args)
            return func(*args, **(kwargs or {}))

    x = t.ones(2)
    with Twice():
        inside = [outcome(t, lambda: t.add(x, 1)), outcome(t, lambda: t.mul(x, 1))]
    return inside, outcome(t, lambda: t.add(x, 1)), outcome(t, lambda: t.mul(x, 1))


@scenario
def a_mode_before_classes(t: Any) -> Any:
    log: list[str] = []
    x = classes(t, log)

    class Mode(t.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            log.append(f"mode of {[k.__name__ for k in types]}")
            return NotImplemented if func is t.sub else func(*args, **(kwargs or {}))

    with Mode():
        found = [outcome(t, lambda: t.add(x["A"], x["C"])), outcome(t, lambda: t.sub(x["A"], 1)),
                 outcome(t, lambda: t.sub(t.ones(1), 1)), outcome(t, lambda: x["B"].shape)]
    return found, log


@scenario
def a_mode_that_fails_is_left(t: Any) -> Any:
    class Fails(t.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            raise ZeroDivisionError

    found = [outcome(t, lambda: t.overrides.BaseTorchFunctionMode().__enter__().__exit__(0, 0, 0))]
    try:
        with Fails():
            t.ones(1)
    except ZeroDivisionError:
        found.append("left")
    return [*found, outcome(t, lambda: t.ones(1) + 1)]


# --- functions of a user's ------------------------------------------------------------------------


@scenario
def wrapped_functions(t: Any) -> Any:
    log: list[str] = []
    x = classes(t, log)

    @t.overrides.wrap_torch_function(lambda a, b=None: (a, b))
    def twice(a: Any, b: Any = None) -> Any:
        return a + a

    def by_hand(a: Any, b: Any) -> Any:
        if t.overrides.has_torch_function((a, b)):
            return t.overrides.handle_torch_function(by_hand, (a, b), a, b=b)
        return a

    return [
        outcome(t, lambda: twice(t.ones(1))), outcome(t, lambda: twice(x["A"])),
        outcome(t, lambda: twice(t.ones(1), x["B"])), outcome(t, lambda: by_hand(x["A"], x["B"])),
        outcome(t, lambda: by_hand(x["N"], 1)), outcome(t, lambda: by_hand(t.ones(1), 1)),
        t.overrides.is_tensor_like(x["A"]), t.overrides.is_tensor_like(t.ones(1)),
        t.overrides.is_tensor_like(3), t.overrides.is_tensor_like(type("L", (), {
            "__torch_function__": classmethod(lambda *a: 1)})()),
    ], log


@scenario
def redispatched(t: Any) -> Any:
    depth: list[str] = []

    class Deep(t.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
            depth.append(f"{func.__name__}")
            return t.overrides.redispatch_function(func, types, args, kwargs or {})

    def scaled(a: Any, b: Any) -> Any:
        if t.overrides.has_torch_function((a, b)):
            return t.overrides.handle_torch_function(scaled, (a, b), a, b)
        return a * b + 1

    x = t.tensor([3.0]).as_subclass(Deep)
    return outcome(t, lambda: scaled(x, t.tensor([4.0]))), depth


@scenario
def names_of_functions(t: Any) -> Any:
    name = t.overrides.resolve_name
    tensor = t.Tensor
    return [
        name(t.add), name(tensor.add), name(t.nn.functional.relu), name(tensor.shape.__get__),
        name(t.linalg.inv), name(tensor.grad.__set__), name(print),
        t.overrides.is_tensor_method_or_property(tensor.add),
        t.overrides.is_tensor_method_or_property(tensor.shape.__get__),
        t.overrides.is_tensor_method_or_property(t.add),
        t.add in t.overrides.get_ignored_functions(),
        tensor.as_subclass in t.overrides.get_ignored_functions(),
        t.Tensor.grad.__get__ in t.overrides.get_default_nowrap_functions(),
        tensor.shape.__get__ == tensor.shape.__get__, t.add.__name__, tensor.add.__name__,
    ]


@pytest.mark.parametrize("function", SCENARIOS, ids=lambda each: each.__name__)
def test_as_torch(function: Scenario) -> None:
    assert function(graphc) == function(torch)
