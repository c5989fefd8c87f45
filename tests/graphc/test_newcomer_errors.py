"""Wrong calls of a newcomer: PyTorch's class of exception, and the words that say what is wrong."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc

# name: (the call, words of PyTorch's message that graphc's has too)
Cases = dict[str, tuple[Callable[[Any], Any], list[str]]]


def _model(t: Any) -> Any:
    return t.nn.Sequential(t.nn.Linear(3, 4), t.nn.ReLU(), t.nn.Linear(4, 2))


def _sgd(t: Any, **options: Any) -> Any:
    return t.optim.SGD([t.nn.Parameter(t.ones(2))], **{"lr": 0.1, **options})


def _adam(t: Any, **options: Any) -> Any:
    return t.optim.Adam([t.nn.Parameter(t.ones(2))], **options)


class _Data:
    def __len__(self) -> int:
        return 3

    def __getitem__(self, i: int) -> Any:
        return {"a": 1}["b"]


def _load(t: Any, change: Callable[[dict[str, Any]], Any], strict: bool = True) -> Any:
    state = dict(_model(t).state_dict())
    changed = change(state)
    return _model(t).load_state_dict(state if changed is None else changed, strict=strict)


def _without_super(t: Any) -> Any:
    class Net(t.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.layer = t.nn.Linear(2, 2)

    return Net()


def _without_forward(t: Any) -> Any:
    class Net(t.nn.Module):  # type: ignore[misc, name-defined]
        pass

    return Net()(t.ones(2))


def _backward(t: Any, loss: Callable[[Any], Any]) -> Any:
    return loss(t.ones(2, requires_grad=True)).backward()


MODULES: Cases = {
    "linear of too few": (lambda t: t.nn.Linear(4, 8)(t.ones(2, 3)), ["2x3 and 4x8"]),
    "linear of a number": (lambda t: t.nn.Linear(4, 8)(3.0), ["linear()", "input", "float"]),
    "linear of a list": (lambda t: t.nn.Linear(2, 8)([1.0, 2.0]), ["must be Tensor, not list"]),
    "linear of an array": (
        lambda t: t.nn.Linear(2, 8)(np.ones((1, 2))), ["must be Tensor, not numpy.ndarray"],
    ),
    "linear of doubles": (
        lambda t: t.nn.Linear(2, 8)(t.ones(1, 2).double()), ["same dtype", "Double and Float"],
    ),
    "linear without sizes": (lambda t: t.nn.Linear(), ["Linear.__init__() missing 2 required"]),
    "linear misspelled": (lambda t: t.nn.Linear(2, 3, biass=True), ["Linear.__init__()", "biass"]),
    "linear of text sizes": (lambda t: t.nn.Linear("2", 3), ["str"]),
    "linear of float sizes": (lambda t: t.nn.Linear(2.5, 3), ["float"]),
    "linear of negative sizes": (lambda t: t.nn.Linear(-2, 3), ["negative dimension", "-2"]),
    "conv misspelled": (
        lambda t: t.nn.Conv2d(1, 2, 3, stridee=2), ["Conv2d.__init__()", "stridee"],
    ),
    "conv without kernel": (lambda t: t.nn.Conv2d(1, 2), ["Conv2d.__init__()", "kernel_size"]),
    "conv of NHWC": (
        lambda t: t.nn.Conv2d(3, 4, 3)(t.ones(1, 8, 8, 3)), ["to have 3 channels, but got 8"],
    ),
    "conv of a flat input": (
        lambda t: t.nn.Conv2d(3, 4, 3)(t.ones(5, 8)), ["Expected 3D", "[5, 8]"],
    ),
    "conv of doubles": (
        lambda t: t.nn.Conv2d(3, 4, 3)(t.ones(1, 3, 8, 8).double()),
        ["Input type (double) and bias type (float) should be the same"],
    ),
    "conv of bytes": (
        lambda t: t.nn.Conv2d(3, 4, 3)(t.ones(1, 3, 8, 8).byte()), ["Input type (unsigned char)"],
    ),
    "conv of an array": (
        lambda t: t.nn.Conv2d(3, 4, 3)(np.ones((1, 3, 8, 8))), ["conv2d()", "numpy.ndarray"],
    ),
    "conv groups": (lambda t: t.nn.Conv2d(3, 4, 3, groups=2), ["divisible by groups"]),
    "conv padding": (lambda t: t.nn.Conv2d(3, 4, 3, padding="foo"), ["foo", "valid"]),
    "pool misspelled": (lambda t: t.nn.MaxPool2d(kernal_size=2), ["__init__()", "kernal_size"]),
    "batch norm of channels": (
        lambda t: t.nn.BatchNorm2d(3)(t.ones(2, 4, 5, 5)), ["should contain 4 elements not 3"],
    ),
    "batch norm of dims": (lambda t: t.nn.BatchNorm2d(3)(t.ones(2, 3)), ["expected 4D", "got 2D"]),
    "layer norm of sizes": (
        lambda t: t.nn.LayerNorm(4)(t.ones(2, 3)), ["normalized_shape=[4]", "[2, 3]"],
    ),
    "embedding of floats": (
        lambda t: t.nn.Embedding(4, 2)(t.ones(3)), ["Long, Int", "FloatTensor"],
    ),
    "embedding out of range": (
        lambda t: t.nn.Embedding(4, 2)(t.tensor([4])), ["index out of range in self"],
    ),
    "lstm of sizes": (lambda t: t.nn.LSTM(3, 4)(t.ones(2, 1, 5)), ["Expected 3, got 5"]),
    "attention heads": (
        lambda t: t.nn.MultiheadAttention(5, 2), ["embed_dim must be divisible by num_heads"],
    ),
    "no super().__init__()": (_without_super, ["before Module.__init__() call"]),
    "no forward": (_without_forward, ["forward"]),
    "no such attribute": (lambda t: t.nn.Linear(2, 2).wieght, ["Linear", "wieght"]),
    "not a module": (lambda t: t.nn.Sequential(t.nn.Linear(2, 2), 3), ["int", "Module subclass"]),
    "a list in Sequential": (
        lambda t: t.nn.Sequential([t.nn.Linear(2, 2)]), ["list", "Module subclass"],
    ),
    "too many arguments": (
        lambda t: t.nn.Linear(2, 2)(t.ones(2), t.ones(2)),
        ["forward() takes 2 positional arguments but 3 were given"],
    ),
    "sequential out of range": (lambda t: _model(t)[7], ["index 7 is out of range"]),
    "train of a number": (lambda t: t.nn.ReLU().train(1), ["boolean"]),
    "dropout's p": (lambda t: t.nn.Dropout(2), ["between 0 and 1, but got 2"]),
    "a tensor for a parameter": (
        lambda t: setattr(t.nn.Linear(2, 2), "weight", t.ones(2, 2)), ["'weight'", "Parameter"],
    ),
    "register twice": (
        lambda t: t.nn.Linear(2, 2).register_buffer("weight", t.ones(2)),
        ["'weight' already exists"],
    ),
    "a dot in a name": (
        lambda t: t.nn.Module().register_buffer("a.b", t.ones(2)), ['contain "."'],
    ),
    "to an integer dtype": (lambda t: t.nn.Linear(2, 2).to(t.int64), ["floating point", "int64"]),
    "to an unknown device": (lambda t: t.nn.Linear(2, 2).to("gpu"), ["device", "gpu"]),
    "to with a wrong keyword": (lambda t: t.nn.Linear(2, 2).to(foo=1), ["to()"]),
}

LOSSES: Cases = {
    "cross entropy of batches": (
        lambda t: t.nn.CrossEntropyLoss()(t.ones(2, 3), t.tensor([0, 1, 2])),
        ["input batch_size (2) to match target batch_size (3)"],
    ),
    "cross entropy of float classes": (
        lambda t: t.nn.CrossEntropyLoss()(t.ones(2, 3), t.ones(2)), ["Long or Byte, but got Float"],
    ),
    "cross entropy of int32 classes": (
        lambda t: t.nn.CrossEntropyLoss()(t.ones(2, 3), t.ones(2).int()), ["Long", "got Int"],
    ),
    "cross entropy of columns": (
        lambda t: t.nn.CrossEntropyLoss()(t.ones(2, 3), t.tensor([[0], [1]])),
        ["0D or 1D target tensor expected, multi-target not supported"],
    ),
    "cross entropy of a class too many": (
        lambda t: t.nn.CrossEntropyLoss()(t.ones(2, 3), t.tensor([0, 3])),
        ["Target 3 is out of bounds"],
    ),
    "cross entropy of one-hot ints": (
        lambda t: t.nn.CrossEntropyLoss()(t.ones(2, 3), t.ones(2, 3).long()),
        ["Expected floating point type", "got Long"],
    ),
    "cross entropy's weights": (
        lambda t: t.nn.CrossEntropyLoss(t.ones(2))(t.ones(2, 3), t.tensor([0, 1])),
        ["weight tensor", "3 classes", "[2]"],
    ),
    "cross entropy's reduction": (
        lambda t: t.nn.functional.cross_entropy(t.ones(2, 3), t.tensor([0, 1]), reduction="avg"),
        ["avg is not a valid value for reduction"],
    ),
    "nll of float classes": (
        lambda t: t.nn.functional.nll_loss(t.ones(2, 3), t.ones(2)),
        ["Long or Byte, but got Float"],
    ),
    "mse of ints": (
        lambda t: t.nn.MSELoss()(t.ones(2).long(), t.ones(2).long()),
        ["not implemented for 'Long'"],
    ),
    "mse of shapes": (
        lambda t: t.nn.MSELoss()(t.ones(2), t.ones(3)), ["tensor a (2) must match", "tensor b (3)"],
    ),
    "bce of logits": (
        lambda t: t.nn.BCELoss()(t.ones(2) * 2, t.ones(2)), ["between 0 and 1"],
    ),
    "smooth l1's beta": (
        lambda t: t.nn.SmoothL1Loss(beta=-1)(t.ones(2), t.ones(2)), ["negative values for beta"],
    ),
    "bce of shapes": (lambda t: t.nn.BCELoss()(t.ones(2, 1), t.ones(2)), ["target size", "[2, 1]"]),
    "bce of ints": (
        lambda t: t.nn.BCELoss()(t.ones(2), t.ones(2).long()),
        ["Found dtype Long but expected Float"],
    ),
    "bce with logits of shapes": (
        lambda t: t.nn.BCEWithLogitsLoss()(t.ones(2, 1), t.ones(2)),
        ["Target size", "same as input"],
    ),
    "a loss called like a function": (
        lambda t: t.nn.CrossEntropyLoss(t.ones(2, 3), t.tensor([0, 1])), ["ambiguous"],
    ),
    "an unknown reduction": (
        lambda t: t.nn.L1Loss(reduction="avg")(t.ones(2), t.ones(2)), ["avg is not a valid value"],
    ),
}

OPTIMIZERS: Cases = {
    "no parameters": (lambda t: t.optim.SGD([], lr=0.1), ["empty parameter list"]),
    "a consumed generator": (
        lambda t: t.optim.SGD(iter(()), lr=0.1), ["empty parameter list"],
    ),
    "the model itself": (lambda t: t.optim.SGD(_model(t), lr=0.1), ["can only optimize Tensors"]),
    "a parameter itself": (
        lambda t: t.optim.SGD(t.nn.Parameter(t.ones(2)), lr=0.1), ["iterable of Tensors or dicts"],
    ),
    "parameters uncalled": (lambda t: t.optim.SGD(_model(t).parameters, lr=0.1), ["not iterable"]),
    "no tensors": (lambda t: t.optim.SGD([1, 2], lr=0.1), ["can only optimize Tensors", "int"]),
    "a non-leaf": (
        lambda t: t.optim.SGD([t.ones(2, requires_grad=True) * 2], lr=0.1), ["non-leaf"],
    ),
    "the same parameter in two groups": (
        lambda t: (lambda p: t.optim.SGD([{"params": [p]}, {"params": [p]}], lr=0.1))(
            t.nn.Parameter(t.ones(2))
        ),
        ["more than one parameter group"],
    ),
    "a group without params": (lambda t: t.optim.SGD([{"lr": 0.1}], lr=0.1), ["params"]),
    "a set": (
        lambda t: t.optim.SGD([{"params": {t.nn.Parameter(t.ones(2))}}], lr=0.1), ["ordered"],
    ),
    "a negative lr": (lambda t: _sgd(t, lr=-1.0), ["Invalid learning rate: -1.0"]),
    "a negative momentum": (lambda t: _sgd(t, momentum=-1.0), ["Invalid momentum value: -1.0"]),
    "nesterov alone": (lambda t: _sgd(t, nesterov=True), ["Nesterov momentum requires a momentum"]),
    "a beta of 1": (
        lambda t: _adam(t, betas=(1.0, 0.9)), ["Invalid beta parameter at index 0: 1.0"],
    ),
    "a negative decay": (lambda t: _adam(t, weight_decay=-1), ["Invalid weight_decay value: -1"]),
    "a misspelled option": (lambda t: _adam(t, learning_rate=1), ["__init__()", "learning_rate"]),
    "another's state": (
        lambda t: _sgd(t).load_state_dict(t.optim.SGD(_model(t).parameters(), lr=1).state_dict()),
        ["size", "group"],
    ),
    "another's groups": (
        lambda t: _sgd(t).load_state_dict(
            t.optim.SGD([{"params": [p]} for p in _model(t).parameters()], lr=1).state_dict()
        ),
        ["different number of parameter groups"],
    ),
    "LBFGS without closure": (
        lambda t: t.optim.LBFGS([t.nn.Parameter(t.ones(2))]).step(), ["closure"],
    ),
    "a scheduler of a model": (
        lambda t: t.optim.lr_scheduler.StepLR(_model(t), 1), ["Sequential", "Optimizer"],
    ),
    "a scheduler without step_size": (
        lambda t: t.optim.lr_scheduler.StepLR(_sgd(t)), ["StepLR.__init__()", "step_size"],
    ),
    "LambdaLR of a few": (
        lambda t: t.optim.lr_scheduler.LambdaLR(_sgd(t), [abs, abs]), ["Expected 1", "got 2"],
    ),
    "plateau without metrics": (
        lambda t: t.optim.lr_scheduler.ReduceLROnPlateau(_sgd(t)).step(), ["metrics"],
    ),
    "plateau's mode": (
        lambda t: t.optim.lr_scheduler.ReduceLROnPlateau(_sgd(t), mode="low"),
        ["mode low is unknown"],
    ),
    "one cycle without steps": (
        lambda t: t.optim.lr_scheduler.OneCycleLR(_sgd(t), 0.1), ["total_steps"],
    ),
    "one cycle past its end": (
        lambda t: [s.step() for s in [t.optim.lr_scheduler.OneCycleLR(_sgd(t), 0.1, 2)] * 4],
        ["Tried to step 3 times"],
    ),
    "resumed without initial_lr": (
        lambda t: t.optim.lr_scheduler.StepLR(_sgd(t), 1, last_epoch=3), ["initial_lr"],
    ),
}

LOADING: Cases = {
    "a batch of 0": (lambda t: t.utils.data.DataLoader([1], batch_size=0), ["batch_size", "0"]),
    "a batch of text": (lambda t: t.utils.data.DataLoader([1], batch_size="2"), ["batch_size"]),
    "negative workers": (lambda t: t.utils.data.DataLoader([1], num_workers=-1), ["num_workers"]),
    "shuffle and sampler": (
        lambda t: t.utils.data.DataLoader(
            [1], shuffle=True, sampler=t.utils.data.SequentialSampler([1])
        ),
        ["mutually exclusive with shuffle"],
    ),
    "a misspelled argument": (lambda t: t.utils.data.DataLoader([1], bach_size=1), ["bach_size"]),
    "the dataset's error": (lambda t: list(t.utils.data.DataLoader(_Data())), ["b"]),
    "the dataset's error in a worker": (
        lambda t: list(t.utils.data.DataLoader(_Data(), num_workers=1)),
        ["Caught KeyError in DataLoader worker process 0.\nOriginal Traceback", "\nKeyError: 'b'"],
    ),
    "an empty dataset, shuffled": (
        lambda t: t.utils.data.DataLoader([], shuffle=True), ["positive integer", "num_samples=0"],
    ),
    "items of different sizes": (
        lambda t: next(iter(t.utils.data.DataLoader([t.ones(1), t.ones(2)], batch_size=2))),
        ["equal size", "[1] at entry 0 and [2] at entry 1"],
    ),
    "items of None": (lambda t: next(iter(t.utils.data.DataLoader([None]))), ["NoneType"]),
    "a split too long": (
        lambda t: t.utils.data.random_split([1, 2], [2, 1]), ["does not equal the length"],
    ),
    "tensors of different lengths": (
        lambda t: t.utils.data.TensorDataset(t.ones(2), t.ones(3)), ["Size mismatch"],
    ),
}

TENSORS: Cases = {
    "item of two": (lambda t: t.ones(2).item(), ["2 elements cannot be converted to Scalar"]),
    "bool of two": (lambda t: bool(t.ones(2)), ["more than one value is ambiguous"]),
    "float of two": (lambda t: float(t.ones(2)), ["converted"]),
    "numpy with grad": (
        lambda t: t.ones(2, requires_grad=True).numpy(), ["Use tensor.detach().numpy() instead"],
    ),
    "an array with grad": (
        lambda t: np.asarray(t.ones(2, requires_grad=True)),
        ["Use tensor.detach().numpy() instead"],
    ),
    "view": (lambda t: t.ones(6).view(4), ["shape '[4]' is invalid for input of size 6"]),
    "reshape": (lambda t: t.ones(6).reshape(4, -1), ["shape '[4, -1]' is invalid"]),
    "view of text": (lambda t: t.ones(6).view("six"), ["view()", "str"]),
    "two -1": (lambda t: t.ones(6).reshape(-1, -1), ["only one dimension can be inferred"]),
    "add": (lambda t: t.ones(2) + t.ones(3), ["tensor a (2) must match", "tensor b (3)"]),
    "add text": (lambda t: t.ones(2) + "a", ["str"]),
    "matmul": (lambda t: t.ones(2, 3) @ t.ones(2, 3), ["2x3 and 2x3"]),
    "matmul of doubles": (lambda t: t.ones(2, 3) @ t.ones(3, 2).double(), ["float != double"]),
    "bmm of matrices": (lambda t: t.bmm(t.ones(2, 3), t.ones(3, 2)), ["must be a 3D tensor"]),
    "bmm of doubles": (
        lambda t: t.bmm(t.ones(1, 2, 3), t.ones(1, 3, 2).double()),
        ["expected scalar type Float but found Double"],
    ),
    "addmm of doubles": (
        lambda t: t.addmm(t.ones(2, 2), t.ones(2, 3), t.ones(3, 2).double()),
        ["self and mat2 must have the same dtype, but got Float and Double"],
    ),
    "cat of shapes": (
        lambda t: t.cat([t.ones(2, 3), t.ones(2, 4)]), ["Sizes of tensors must match"],
    ),
    "cat of one": (lambda t: t.cat(t.ones(2)), ["cat()", "tensors"]),
    "cat of nothing": (lambda t: t.cat([]), ["non-empty list of Tensors"]),
    "cat of arrays": (lambda t: t.cat([np.ones(2)]), ["element 0", "numpy.ndarray"]),
    "stack of shapes": (lambda t: t.stack([t.ones(2), t.ones(3)]), ["equal size"]),
    "squeeze's dim": (lambda t: t.ones(2).squeeze(3), ["[-1, 0], but got 3"]),
    "sum's dim": (lambda t: t.ones(2).sum(dim=3), ["[-1, 0], but got 3"]),
    "transpose's dim": (lambda t: t.ones(2).transpose(0, 1), ["[-1, 0], but got 1"]),
    "permute's dims": (lambda t: t.ones(2, 3).permute(0), ["permute"]),
    "expand": (lambda t: t.ones(2, 3).expand(4, 3), ["expanded size", "(4)", "(2)"]),
    "mean of ints": (lambda t: t.tensor([1, 2]).mean(), ["could not infer output dtype", "Long"]),
    "an index too large": (lambda t: t.ones(2)[2], ["index 2 is out of bounds for dimension 0"]),
    "too many indices": (lambda t: t.ones(2)[0, 0], ["too many indices for tensor of dimension 1"]),
    "a text index": (lambda t: t.ones(2)["a"], []),
    "a float index": (lambda t: t.ones(2)[0.5], ["ind"]),
    "a mask's shape": (
        lambda t: t.ones(2)[t.tensor([True, False, True])], ["mask [3]", "indexed tensor [2]"],
    ),
    "a float tensor index": (lambda t: t.ones(2)[t.ones(1)], ["long, int, byte or bool"]),
    "an element of a 0-d": (lambda t: t.ones(())[0], ["invalid index of a 0-dim tensor"]),
    "iterate a 0-d": (lambda t: list(t.ones(())), ["iteration over a 0-d tensor"]),
    "len of a 0-d": (lambda t: len(t.ones(())), ["len() of a 0-d tensor"]),
    "write a wrong shape": (
        lambda t: t.ones(2).__setitem__(slice(None), t.ones(3)), ["3", "2"],
    ),
    "ragged data": (
        lambda t: t.tensor([[1, 2], [3]]), ["expected sequence of length 2 at dim 1 (got 1)"],
    ),
    "text data": (lambda t: t.tensor("abc"), ["invalid data type 'str'"]),
    "texts": (lambda t: t.tensor(["a", "b"]), ["too many dimensions 'str'"]),
    "a text among numbers": (lambda t: t.tensor([[1], ["a"]]), ["invalid data type 'str'"]),
    "None as data": (lambda t: t.tensor(None), ["Could not infer dtype of NoneType"]),
    "a dict as data": (lambda t: t.tensor({"a": 1}), ["Could not infer dtype of dict"]),
    "objects": (lambda t: t.tensor(np.array([None])), ["numpy", "object"]),
    "from_numpy of a list": (lambda t: t.from_numpy([1, 2]), ["expected np.ndarray (got list)"]),
    "zeros of a float": (lambda t: t.zeros(2.0), ["float"]),
    "a negative size": (lambda t: t.zeros(-1), ["dimension", "negative"]),
    "a dtype by name": (lambda t: t.zeros(2, dtype="float32"), ["dtype"]),
    "to a dtype by name": (lambda t: t.ones(2).to("float32"), ["float32"]),
    "arange the wrong way": (lambda t: t.arange(3, 1), ["bound"]),
    "randint without high": (lambda t: t.randint(size=(2,)), ["randint()"]),
    "where": (lambda t: t.where(t.ones(2) > 0, t.ones(2), t.ones(3)), ["must match"]),
    "one_hot of floats": (lambda t: t.nn.functional.one_hot(t.ones(2)), ["index tensor"]),
    "softmax without dim": (lambda t: t.softmax(t.ones(2)), ["softmax()"]),
    "argmax's dim": (lambda t: t.ones(2).argmax(dim=2), ["[-1, 0], but got 2"]),
    "max of two results": (lambda t: t.ones(2).max(dim=5), ["[-1, 0], but got 5"]),
    "clamp without bounds": (lambda t: t.ones(2).clamp(), ["'min' or 'max' must not be None"]),
    "multinomial": (lambda t: t.multinomial(t.zeros(3), 1), ["sum", "0"]),
    "split": (lambda t: t.ones(5).split([2, 2]), ["split_sizes", "[2, 2]"]),
    "chunk": (lambda t: t.ones(5).chunk(0), ["chunk", "0"]),
    "an unknown method": (lambda t: t.ones(2).sofmax(), ["Tensor", "sofmax"]),
    "an unknown function": (lambda t: t.sofmax(t.ones(2)), ["sofmax"]),
    "save nowhere": (lambda t: t.save(t.ones(2), "/no/such/folder/x.pt"), ["/no/such/folder"]),
    "load nothing": (lambda t: t.load("/no/such/file.pt"), ["/no/such/file.pt"]),
    "deepcopy of a non-leaf": (
        lambda t: copy.deepcopy(t.ones(2, requires_grad=True) * 2),
        ["Only Tensors created explicitly by the user"],
    ),
}

AUTOGRAD: Cases = {
    "of a vector": (lambda t: _backward(t, lambda a: a * 2), ["only for scalar outputs"]),
    "of no graph": (
        lambda t: t.ones(()).backward(),
        ["element 0 of tensors does not require grad and does not have a grad_fn"],
    ),
    "of detached": (lambda t: _backward(t, lambda a: a.detach().sum()), ["does not require grad"]),
    "of item()": (lambda t: _backward(t, lambda a: a.sum().item()), ["'float'", "backward"]),
    "twice": (
        lambda t: [y.backward() for y in [(t.ones(2, requires_grad=True) ** 2).sum()] * 2],
        ["backward through the graph a second time", "retain_graph=True"],
    ),
    "a gradient of another shape": (
        lambda t: (t.ones(2, requires_grad=True) * 2).backward(t.ones(3)), ["shape", "[3]", "[2]"],
    ),
    "an int that requires grad": (
        lambda t: t.tensor([1, 2], requires_grad=True), ["floating point", "require gradients"],
    ),
    "in place on a leaf": (lambda t: t.ones(2, requires_grad=True).add_(1), ["leaf", "in-place"]),
    "grad of an unused": (
        lambda t: t.autograd.grad(
            t.ones(2, requires_grad=True).sum(), t.ones(2, requires_grad=True)
        ),
        ["appears to not have been used in the graph"],
    ),
    "retain_grad of no graph": (lambda t: t.ones(2).retain_grad(), ["requires_grad=False"]),
    "assign a wrong grad": (
        lambda t: setattr(t.ones(2, requires_grad=True), "grad", t.ones(3)), ["grad"],
    ),
    "requires_grad_ of a non-leaf": (
        lambda t: (t.ones(2, requires_grad=True) * 2).requires_grad_(False), ["leaf variables"],
    ),
}

STATE: Cases = {
    "a key too few": (
        lambda t: _load(t, lambda s: s.__delitem__("0.bias")), ["Missing key(s)", "0.bias"],
    ),
    "a key too many": (
        lambda t: _load(t, lambda s: s.update({"9.bias": t.ones(1)})),
        ["Unexpected key(s)", "9.bias"],
    ),
    "a shape": (
        lambda t: _load(t, lambda s: s.update({"0.bias": t.ones(7)})),
        ["size mismatch for 0.bias", "[7]", "[4]"],
    ),
    "a shape, not strict": (
        lambda t: _load(t, lambda s: s.update({"0.bias": t.ones(7)}), strict=False),
        ["size mismatch for 0.bias"],
    ),
    "an array": (
        lambda t: _load(t, lambda s: s.update({"0.bias": np.ones(4)})), ["0.bias", "ndarray"],
    ),
    "the model": (lambda t: _load(t, lambda s: _model(t)), ["Expected state_dict to be dict-like"]),
    "a path": (lambda t: _load(t, lambda s: "model.pt"), ["Expected state_dict to be dict-like"]),
    "DataParallel's prefix": (
        lambda t: _load(t, lambda s: {f"module.{k}": v for k, v in s.items()}),
        ["Missing key(s)", "module.0.bias"],
    ),
}

CASES = {
    f"{group}: {name}": case
    for group, cases in [
        ("module", MODULES), ("loss", LOSSES), ("optimizer", OPTIMIZERS), ("data", LOADING),
        ("tensor", TENSORS), ("backward", AUTOGRAD), ("state", STATE),
    ]
    for name, case in cases.items()
}


def error_of(call: Callable[[Any], Any], torch: Any) -> BaseException:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception) as caught:
            call(torch)
    return caught.value


@pytest.mark.parametrize("name", CASES)
def test_the_class_and_the_words_are_torchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    call, words = CASES[name]
    expected, found = error_of(call, torch), error_of(call, graphc)
    assert isinstance(found, type(expected)), (expected, found)
    for word in words:
        assert word.lower() in str(expected).lower(), (word, str(expected))
        assert word.lower() in str(found).lower(), (word, str(found), str(expected))
