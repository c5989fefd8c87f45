"""__torch_function__ of all functions: which ask, what they hand over, and that they stay what they
are; nobody asks before there is somebody."""

import inspect
import subprocess
import sys
from typing import Any

import pytest

import graphc
import graphc.overridable

torch = pytest.importorskip("torch")

# what graphc has as something else than a function of Python
_NO_FUNCTIONS = {"torch.autocast": "a class of contexts"}


def found_in(package: Any, path: str) -> Any:
    for name in path.split(".")[1:]:
        package = getattr(package, name, None)
    return package


def test_what_torch_asks_for_is_asked_for_here() -> None:
    asked = graphc.overrides._overridable()[1]
    missing = []
    for functions in torch.overrides.get_overridable_functions().values():
        for function in functions:
            path = torch.overrides.resolve_name(function)
            ours = found_in(graphc, path)
            if ours is not None and ours not in asked and path not in _NO_FUNCTIONS:
                missing.append(path)
    assert missing == []


class Answers:
    """Answers every call by what it got."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func, len(args), types


def test_every_function_hands_itself_over() -> None:
    """The parameters that have no default are such an object: the function gets to its handler."""
    like = Answers()
    assert graphc.add(like, like)[0] is graphc.add  # functions ask from now on
    stand_ins = graphc.overrides.get_testing_overrides()
    assert len(stand_ins) > 1000
    wrong = []
    for function, stand_in in stand_ins.items():
        name = graphc.overrides.resolve_name(function)
        if name in _OF_DATA or name.endswith(".__get__"):
            continue
        parameters = inspect.signature(stand_in).parameters.values()
        needed = [
            p for p in parameters
            if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        given = (like,) * max(len(needed), 1)
        handed, count, types = function(*given)
        alias = graphc.overrides.resolve_name(handed) != name and name not in _OTHER_NAMES
        if alias or count != len(given) or types != (Answers,):
            wrong.append((name, graphc.overrides.resolve_name(handed), count))
    assert wrong == []


_OF_DATA = frozenset(f"torch.{name}" for name in graphc.overridable._OF_DATA)
_OTHER_NAMES = frozenset(f"torch.Tensor.{name}" for name in graphc.overridable.OPERATORS) | {
    "torch.nn.functional.sigmoid", "torch.nn.functional.tanh",
}


def test_functions_stay_what_they_are() -> None:
    from pickle import dumps, loads

    assert loads(dumps(graphc.add)) is graphc.add
    assert [*inspect.signature(graphc.Tensor.to).parameters] == ["self", "args", "kwargs"]
    assert "bias" in inspect.signature(graphc.nn.functional.linear).parameters
    assert graphc.nn.functional.linear.__doc__ and graphc.add.__name__ == "add"


def test_nobody_asks_before_there_is_somebody() -> None:
    """In a process of its own: plain programs run the code that is written."""
    program = """
import graphc, graphc.overrides
from graphc import add
from graphc.nn.functional import relu
codes = add.__code__, relu.__code__, graphc.Tensor.add.__code__, graphc.Tensor.shape.fget.__code__
now = lambda: (add.__code__, relu.__code__, graphc.Tensor.add.__code__,
               graphc.Tensor.shape.fget.__code__)
class Sub(graphc.Tensor): pass
assert now() == codes
with graphc.overrides.BaseTorchFunctionMode():
    assert all(a is not b for a, b in zip(now(), codes))
assert now() == codes
sub = graphc.ones(2).as_subclass(Sub)
assert type(add(sub, 1)) is type(relu(sub)) is type(sub.add(1)) is Sub
assert [a is b for a, b in zip(now(), codes)] == [False, False, False, True]
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


FIRST_CALLS = [
    "graphc.mean(like)", "like_tensor + like", "graphc.stack([like])", "graphc.exp(input=like)",
    "graphc.nn.functional.relu(like)", "like_tensor == like", "graphc.linalg.inv(like)",
    "like_tensor @ like", "graphc.add(like_tensor, like)", "graphc.where(like_tensor > 0, like, 1)",
]


def test_the_first_object_that_is_no_tensor() -> None:
    """Nothing tells of its class before: each of these calls is the first."""
    program = f"""
import graphc
from graphc.frontend.overriding import Installed
class Like:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return "answered"
like, like_tensor = Like(), graphc.ones(2, 2)
for call in {FIRST_CALLS}:
    Installed.forget()
    assert Installed.now == (False, False)
    assert eval(call) == "answered", call
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_einsum_of_a_list_hands_over_its_operands() -> None:
    def handed(t: Any) -> list[Any]:
        seen = []

        class Keeps:
            @classmethod
            def __torch_function__(
                cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> None:
                seen.append([("it" if isinstance(x, Keeps) else x) for x in args])

        x = Keeps()
        t.einsum("ij,jk->ik", x, x)
        t.einsum("ij,jk->ik", [x, x])
        t.einsum("ij,jk->ik", (x, x))
        t.einsum("ij->i", [x])
        t.einsum(x, [0, 1], x, [1, 2])
        return seen

    assert handed(graphc) == handed(torch)


def test_a_mode_sees_the_list_that_einsum_was_given() -> None:
    def handed(t: Any) -> list[Any]:
        seen = []

        class Mode(t.overrides.TorchFunctionMode):
            def __torch_function__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                if func is t.einsum:
                    seen.append([type(x).__name__ for x in args])
                return func(*args, **(kwargs or {}))

        x = t.ones(2, 2)
        with Mode():
            t.einsum("ij,jk->ik", [x, x])
        return seen

    assert handed(graphc) == handed(torch)
