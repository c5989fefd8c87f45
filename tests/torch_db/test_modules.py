"""torch's module_db and optim_db: what passed stays so; the weights of seed 0 by default."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import pytest

pytest.importorskip("torch")

from tests.torch_db import modules, optimizers

# aspects of modules that do not pass in full: docs/coverage_modules.md says why
KNOWN = {
    ("nn.LinearCrossEntropyLoss", "init"), ("nn.LinearCrossEntropyLoss", "errors"),
    ("nn.NLLLoss", "errors"),
}
KNOWN_OPTIMIZERS = {
    ("LBFGS", "steps"), ("Muon", "errors"), ("SparseAdam", "errors"),
}


@pytest.mark.parametrize("name", modules.INFOS)
def test_initial_weights(name: str) -> None:
    refused = False
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
                    refused = True
    assert refused == ((name, "init") in KNOWN)


def _compared(outcomes: Iterable[modules.Outcome], known: set[str]) -> None:
    """What is known to be wrong is all that is wrong, and still is."""
    wrong = [o for o in outcomes if o.why and not o.why.startswith("skipped")]
    new = [outcome for outcome in wrong if outcome.aspect not in known]
    assert not new, "\n".join(map(str, new[:5]))
    right = known - {outcome.aspect for outcome in wrong}
    assert not right, f"listed as wrong, and right: {sorted(right)}"


@pytest.mark.slow
@pytest.mark.parametrize("name", modules.INFOS)
def test_module(name: str) -> None:
    _compared(modules.examine(name), {aspect for each, aspect in KNOWN if each == name})


@pytest.mark.slow
@pytest.mark.parametrize("name", optimizers.INFOS)
def test_optimizer(name: str) -> None:
    known = {aspect for each, aspect in KNOWN_OPTIMIZERS if each == name}
    _compared(optimizers.examine(name), known)


def test_what_is_known_exists() -> None:
    assert {name for name, _ in KNOWN} <= set(modules.INFOS)
    assert {name for name, _ in KNOWN_OPTIMIZERS} <= set(optimizers.INFOS)
