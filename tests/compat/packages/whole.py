"""`whole.py PACKAGE OUT`: whether each of a package's models runs as one graph, inference and
a training step. OUT: {"model, mode": [reasons that it does not, compilations after each call]}."""

import json
import os
import sys

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import graphc.compat

graphc.compat.install()

import torch
from architectures import MODELS

CALLS = 4


def tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors(part)
    elif hasattr(value, "values"):
        yield from tensors(list(value.values()))


def loss_of(result):
    loss = getattr(result, "loss", None)
    if loss is not None:
        return loss
    return sum((t.float() ** 2).mean() for t in tensors(result) if t.requires_grad)


def counts(compiled, call, arguments):
    found = []
    for _ in range(CALLS):
        call(arguments())
        segments = compiled.segments
        found.append(compiled.compile_count + (segments.compile_count if segments else 0))
    if segments is not None:
        return [[f"{end.reason} at {end.loc}" for end in segments.ends] or ["segments"], found]
    return [[], found]


def inference(model, arguments):
    called = torch.compile(model.eval())
    with torch.no_grad():
        return counts(called._compiled_function, lambda given: called(**given), arguments)


def training(model, arguments):
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step(given):
        optimizer.zero_grad()
        loss = loss_of(model(**given))
        loss.backward()
        optimizer.step()
        return loss

    compiled = torch.compile(step)
    return counts(compiled, compiled, arguments)


package, out = sys.argv[1:]
results = {}
for name, build in MODELS[package].items():
    for mode in (inference, training):
        torch.manual_seed(0)
        results[f"{name}, {mode.__name__}"] = mode(*build())
with open(out, "w") as file:
    json.dump(results, file)
