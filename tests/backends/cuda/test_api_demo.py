"""The demo and the doctor with a GPU, which is emulated."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from graphc import demo, doctor
from graphc.backends.cuda.emulator import Toolchain
from graphc.utils.data import TensorDataset

from .emulated_device import CountingDriver, there


@pytest.fixture(autouse=True)
def driver(toolchain: Toolchain) -> Iterator[CountingDriver]:
    driver = CountingDriver(toolchain)
    with there(driver):
        yield driver


def test_the_doctor_computes_on_each_gpu(
    driver: CountingDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = doctor.render(doctor.examine())
    assert "ok      tensors on cuda:0" in said and "The CPU path works." in said
    monkeypatch.setattr(driver, "launch", lambda launch, stream: None)  # a device that does nothing
    (wrong,) = doctor._on_gpus()
    assert wrong.found is None and "wrong numbers" in wrong.cure


@pytest.mark.slow
def test_the_demo_trains_there_as_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps of four digits each, twice."""
    whole = demo.digits
    monkeypatch.setattr(demo, "BATCH", 4)
    monkeypatch.setattr(
        demo, "digits", lambda train: TensorDataset(*(part[:8] for part in whole(train)[:8]))
    )
    found, want = (demo.train(2, 0, device) for device in ("cuda", "cpu"))
    assert found.model.head.weight.is_cuda
    np.testing.assert_allclose(found.losses, want.losses, rtol=1e-5)
    assert demo.accuracy(found.model) == demo.accuracy(want.model)
