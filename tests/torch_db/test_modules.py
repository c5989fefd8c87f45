"""torch's module_db and optim_db: what passed stays so; the weights of seed 0 by default."""

from __future__ import annotations

import warnings

import pytest

pytest.importorskip("torch")

from tests.torch_db import modules, optimizers

# aspects of modules that do not pass in full: docs/coverage_modules.md says why
KNOWN = {
    ("nn.LinearCrossEntropyLoss", "init"), ("nn.LinearCrossEntropyLoss", "errors"),
    ("nn.NLLLoss", "errors"),
    *((f"nn.LazyConv{kind}{dims}d", "compiled") for kind in ("", "Transpose") for dims in "123"),
}
KNOWN_OPTIMIZERS = {
    ("LBFGS", "steps"), ("Muon", "errors"), ("SparseAdam", "errors"),
}


@pytest.mark.parametrize("name", modules.INFOS)
def test_initial_weights(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in modules.cases(name, modules.dtype_of(name)):
            if case.number < 3:
                if not case.training:
                    break
                try:
                    modules.build(name, case)
                except modules.Untranslatable as error:
                    pytest.skip(str(error))
                except NotImplementedError:
                    assert (name, "init") in KNOWN


@pytest.mark.slow
@pytest.mark.parametrize("name", modules.INFOS)
def test_module(name: str) -> None:
    wrong = [
        outcome for outcome in modules.examine(name)
        if outcome.why and not outcome.why.startswith("skipped")
        and (name, outcome.aspect) not in KNOWN
    ]
    assert not wrong, "\n".join(map(str, wrong[:5]))


@pytest.mark.slow
@pytest.mark.parametrize("name", optimizers.INFOS)
def test_optimizer(name: str) -> None:
    wrong = [
        outcome for outcome in optimizers.examine(name)
        if outcome.why and (name, outcome.aspect) not in KNOWN_OPTIMIZERS
    ]
    assert not wrong, "\n".join(map(str, wrong[:5]))
