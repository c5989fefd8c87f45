""""cuda" as users say it: tensors, modules, seeds, autocast and pinned memory on emulated GPUs, of
which there are two."""

from __future__ import annotations

import gc
import io
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc import config, nn
from graphc.backends.cuda.emulator import Toolchain
from graphc.backends.cuda.emulator.driver import EmulatedDriver
from graphc.frontend.device import registered
from graphc.frontend.values import Eager
from graphc.utils.data import DataLoader, TensorDataset

from .emulated_device import CountingDriver, there

MB = 1 << 20


class Two(CountingDriver):
    """Two devices, in one memory of 64 MiB."""

    def __init__(self, toolchain: Toolchain) -> None:
        super().__init__(toolchain, 64 * MB)

    def device_count(self) -> int:
        return 2


@pytest.fixture(scope="module", autouse=True)
def driver(toolchain: Toolchain) -> Iterator[Two]:
    driver = Two(toolchain)
    with there(driver):
        yield driver


def test_the_first_question_makes_the_device(toolchain: Toolchain) -> None:
    for ask in (
        lambda: torch.ones(2).cuda(), lambda: torch.ones(2, device="cuda"),
        lambda: nn.Linear(2, 2).to("cuda").weight, lambda: torch.ones(2).to(torch.device("cuda")),
        lambda: torch.Generator(device="cuda"), lambda: torch.ones(2).cuda(0),
        lambda: torch.cuda.FloatTensor([1, 2]), lambda: loaded(torch.ones(2), "cuda"),
    ):
        before = Eager.elsewhere  # other tests may have made the device meta
        with there(EmulatedDriver(toolchain)):
            assert torch.cuda.is_available() and Eager.elsewhere is before
            assert "cuda" not in registered
            assert ask().device == torch.device("cuda:0")


def loaded(value: Any, where: Any) -> Any:
    """Saved, and read again."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, map_location=where)


def test_tensors() -> None:
    x = torch.arange(6.0).reshape(2, 3).cuda()
    assert x.is_cuda and not x.is_cpu and x.get_device() == 0
    assert repr(x) == (
        "tensor([[0., 1., 2.],\n        [3., 4., 5.]], device='cuda:0')"
    )
    assert x.type() == "torch.cuda.FloatTensor" and isinstance(x, torch.cuda.FloatTensor)
    assert not isinstance(x, torch.FloatTensor) and not isinstance(x, torch.cuda.LongTensor)
    assert x.cuda() is x and x.to("cuda") is x and x.cpu().device.type == "cpu"
    assert x.t().cpu().tolist() == [[0, 3], [1, 4], [2, 5]]
    assert x.type("torch.cuda.HalfTensor").dtype is torch.float16
    assert torch.ones(2).type("torch.cuda.LongTensor").device == x.device
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        x.numpy()
    y = loaded({"x": x}, None)["x"]
    assert y.device == x.device and torch.equal(y, x)
    assert loaded(x, "cpu").device.type == "cpu"
    assert loaded(torch.ones(2), lambda storage, where: storage.cuda()).is_cuda


def test_where_new_tensors_go() -> None:
    torch.set_default_device("cuda")
    try:
        assert torch.zeros(2).is_cuda and nn.Linear(2, 2).weight.is_cuda
        assert torch.zeros(2, device="cpu").is_cpu and torch.tensor([1]).is_cuda
    finally:
        torch.set_default_device("cpu")
    with torch.device("cuda"):
        assert torch.arange(3).is_cuda
    assert torch.zeros_like(torch.ones(1).cuda()).is_cuda and torch.zeros(2).is_cpu


MIXED: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y, "add to": lambda x, y: y + x, "matmul": lambda x, y: x @ y,
    "where": lambda x, y: torch.where(x > 0, x, y), "in place": lambda x, y: y.add_(x),
    "linear": lambda x, y: nn.Linear(3, 3)(x), "cat": lambda x, y: torch.cat([y, x]),
}


@pytest.mark.parametrize("name", MIXED)
def test_mixed_devices(name: str) -> None:
    with pytest.raises(
        RuntimeError, match=r"Expected all tensors to be on the same device, but found at least "
        r"two devices, cuda:0 and cpu!",
    ):
        MIXED[name](torch.ones(3, 3).cuda(), torch.ones(3, 3))
    assert (torch.ones(3).cuda() * torch.tensor(2.0)).tolist() == [2, 2, 2]


def test_two_devices() -> None:
    x, y = torch.ones(3).cuda(), torch.ones(3).to("cuda:1")
    assert y.device == torch.device("cuda:1") and torch.cuda.device_count() == 2
    assert (y * 2).device == y.device and (y.to(x.device) + x).tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="two devices, cuda:0 and cuda:1!"):
        x + y
    with torch.cuda.device(1):
        assert torch.ones(1).cuda().device == y.device == torch.ones(1, device="cuda").device
    compiled = torch.compile(lambda x: x.exp().sum())
    for each in (x, y):
        assert compiled(each).device == each.device
    assert torch.cuda.memory_allocated(1) > 0
    with pytest.raises(RuntimeError, match="invalid device ordinal 2: there are 2"):
        torch.ones(1, device="cuda:2")


def test_a_module_trains_with_autocast_and_a_scaler(driver: Two) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**8)
    x, want = torch.randn(16, 4).cuda(), torch.ones(16, 1).cuda()
    losses = []

    def backward() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = model(x)
            assert out.dtype is torch.bfloat16
            loss = (out.float() - want).square().mean()
        scaler.scale(loss).backward()
        losses.append(loss)

    for _ in range(3):
        backward()
        before = driver.calls["wait"]
        scaler.unscale_(optimizer)
        assert driver.calls["wait"] == before  # for no parameter
        scaler.step(optimizer)
        scaler.update()
    assert scaler._scale is not None and scaler._scale.is_cuda
    assert losses[-1].item() < losses[0].item() and scaler.get_scale() == 256
    before_step = [p.detach().clone() for p in model.parameters()]
    backward()
    model.weight.grad[0, 0] = float("inf")
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 128
    assert all(torch.equal(a, b) for a, b in zip(before_step, model.parameters(), strict=True))


def test_seeds() -> None:
    torch.manual_seed(7)
    first = torch.rand(4, device="cuda")
    assert torch.cuda.initial_seed() == 7
    torch.cuda.manual_seed(7)
    assert torch.equal(torch.rand(4, device="cuda"), first)
    state = torch.cuda.get_rng_state()
    again = torch.rand(4, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.rand(4, device="cuda"), again)
    generator = torch.Generator(device="cuda").manual_seed(7)
    assert torch.equal(torch.rand(4, device="cuda", generator=generator), first)
    torch.cuda.manual_seed_all(7)
    assert torch.equal(torch.rand(4, device="cuda"), first)
    assert len(torch.cuda.get_rng_state_all()) == 2
    torch.cuda.seed_all()
    assert torch.cuda.initial_seed() != 7
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator"):
        torch.rand(2, device="cuda", generator=torch.Generator())


# --- memory -----------------------------------------------------------------------------------


def test_default_generators() -> None:
    torch.cuda.default_generators[1].manual_seed(5)
    with torch.cuda.device(1):
        assert torch.cuda.initial_seed() == 5
    assert len(torch.cuda.default_generators) == 2


def test_numbers_of_devices() -> None:
    of_any, of_cuda = torch._utils._get_device_index, torch.cuda._utils._get_device_index
    with torch.cuda.device(1):
        assert of_cuda(torch.cuda.device(0)) == 0 and of_cuda("cuda:1") == 1
        assert of_cuda("cpu", allow_cpu=True) == -1 == of_any("cpu", allow_cpu=True)
        assert of_any(torch.device("cuda", 1)) == 1 == of_any(1)
        assert of_any(None, optional=True) == torch.accelerator.current_device_index()
    for ask in (of_any, of_cuda):
        for wrong in ("cpu", None, "cuda"):
            with pytest.raises(ValueError, match="Expected a"):
                ask(wrong)


def test_memory_is_counted_and_comes_back() -> None:
    gc.collect()
    before = torch.cuda.memory_allocated()
    x = torch.empty(MB, device="cuda")
    assert torch.cuda.memory_allocated() - before == 4 * MB
    view = x[10:]
    del x
    assert torch.cuda.memory_allocated() - before == 4 * MB
    del view
    assert torch.cuda.memory_allocated() == before


def test_too_much_is_an_error_after_which_all_goes_on() -> None:
    x = torch.ones(1000, device="cuda")
    for error in (torch.cuda.OutOfMemoryError, torch.OutOfMemoryError, RuntimeError):
        with pytest.raises(error, match=r"^CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0"):
            torch.empty(1 << 28, device="cuda")
    step = torch.compile(lambda x: x.expand(300_000, 1000).exp().clone())
    with pytest.raises(torch.OutOfMemoryError):
        step(x)
    assert x.sum().item() == 1000 and torch.compile(lambda x: x + 1)(x)[0].item() == 2


def test_streams_that_wait_see_what_was_written() -> None:
    side = torch.cuda.Stream()
    x = torch.ones(512, device="cuda")
    for _ in range(3):
        y = x * 3
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            z = y + 1
        y.record_stream(side)
        del y
        other = x * 5  # not in y's memory
        torch.cuda.current_stream().wait_stream(side)
        assert (z * 1).tolist() == [4] * 512 and other[0].item() == 5


def test_a_recording_ends_where_the_stream_changes() -> None:
    """What is written in a context runs on its stream, before and after it on the other one."""
    side = torch.cuda.Stream()

    def function(x: Any) -> Any:
        y = x * 3
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            return y + 1

    compiled = torch.compile(function)
    for _ in range(3):
        x = torch.ones(8, device="cuda")
        torch.cuda.synchronize()
        y = compiled(x)
        assert not side.query()
        side.synchronize()
        assert y.tolist() == [4] * 8
    with pytest.raises(Exception, match="change of the current stream"):
        torch.compile(lambda x: torch.cuda.set_stream(side) or x + 1, fullgraph=True)(x)
    assert torch.cuda.current_stream() != side


def test_default_tensor_types() -> None:
    try:
        torch.set_default_tensor_type("torch.cuda.HalfTensor")
        assert torch.zeros(2).is_cuda and torch.zeros(2).dtype is torch.float16
        torch.set_default_tensor_type(torch.cuda.FloatTensor)
        assert torch.zeros(2).is_cuda and torch.zeros(2).dtype is torch.float32
    finally:
        torch.set_default_tensor_type(torch.FloatTensor)
    assert torch.zeros(2).is_cpu


def test_constants_are_there_for_every_stream() -> None:
    """A number that is kept was written on the stream that met it first."""
    for number in range(3):
        with torch.cuda.stream(torch.cuda.Stream()):
            x = torch.ones(4, device="cuda") * 4.25
        with torch.cuda.stream(torch.cuda.Stream()):
            assert (torch.ones(4, device="cuda") * 4.25 + number).tolist() == [4.25 + number] * 4
        del x


# --- pinned memory ----------------------------------------------------------------------------


def test_pinned_memory(driver: Two) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    pinned = x.pin_memory()
    assert pinned.is_pinned() and not x.is_pinned() and pinned.pin_memory() is pinned
    assert pinned[1:].is_pinned() and torch.equal(pinned, x) and pinned.is_cpu
    assert not x.cuda().is_pinned()
    with pytest.raises(RuntimeError, match="cannot pin a tensor on cuda:0"):
        x.cuda().pin_memory()
    blocking = pinned.cuda()
    pinned.fill_(9)  # too late for that copy
    assert blocking.tolist() == x.tolist()
    before = driver.calls["wait"]
    first = pinned.cuda(non_blocking=True)
    second = torch.empty(2, 3, device="cuda").copy_(pinned, non_blocking=True)
    third = pinned.to("cuda", non_blocking=True)
    assert driver.calls["wait"] == before
    pinned.zero_()  # in time: nobody has waited
    assert first.sum().item() == second.sum().item() == third.sum().item() == 0


def test_pinned_memory_stays_until_it_was_read() -> None:
    x = torch.full((1000,), 3.0).pin_memory()
    there = x.cuda(non_blocking=True)
    address = x.data_ptr()
    del x
    other = torch.zeros(1000).pin_memory()
    assert other.data_ptr() != address and there.sum().item() == 3000
    assert torch.zeros(1000).pin_memory().data_ptr() == address


def test_a_loader_pins_its_batches() -> None:
    data = TensorDataset(torch.arange(12.0).reshape(6, 2), torch.arange(6))
    for workers in (0, 1):
        seen = 0
        for x, y in DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers):
            assert x.is_pinned() and y.is_pinned()
            seen += x.cuda(non_blocking=True).sum().item() + y.cuda().sum().item()
        assert seen == 66 + 15
    assert not next(iter(DataLoader(data)))[0].is_pinned()
    batches = DataLoader([{"a": torch.ones(2), "b": "text"}], pin_memory=True)
    (batch,) = batches
    assert batch["a"].is_pinned() and batch["b"] == ["text"]


def test_threads_have_their_own_context() -> None:
    seen: list[Any] = []

    def work() -> None:
        seen.append((torch.ones(3, device="cuda") * 2).tolist())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [[2, 2, 2]]


def test_a_compiled_function_may_wait_and_count() -> None:
    def step(x: Any) -> Any:
        y = x * 2
        torch.cuda.synchronize()
        if torch.cuda.is_available() and torch.cuda.device_count() > 1:
            y = y + torch.cuda.current_device()
        return y, torch.cuda.memory_allocated() > 0

    x = torch.ones(3, device="cuda")
    for _ in range(3):
        y, some = torch.compile(step)(x)
        np.testing.assert_array_equal(y.cpu(), [2, 2, 2])
        assert some


def test_a_blocking_call_raises_what_failed_in_it(toolchain: Toolchain) -> None:
    """As CUDA_LAUNCH_BLOCKING=1 has it; otherwise whoever waits next raises it."""
    x, at = torch.ones(3), torch.tensor([5])
    for blocking in (0, 1):
        with there(EmulatedDriver(toolchain)), config.override(cuda_launch_blocking=blocking):
            there_x, there_at = x.cuda(), at.cuda()
            if blocking:
                with pytest.raises(IndexError):
                    there_x[there_at]
            else:
                y = there_x[there_at]
                with pytest.raises(IndexError):
                    y.tolist()
            torch.cuda.synchronize()
