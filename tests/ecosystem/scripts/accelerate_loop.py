"""accelerate: a loop of one's own, saved and resumed; its hooks and helpers."""

import os
import sys

import torch
from accelerate import (
    Accelerator, DataLoaderConfiguration, cpu_offload, disk_offload, dispatch_model,
    init_empty_weights, infer_auto_device_map, load_checkpoint_and_dispatch, notebook_launcher,
    skip_first_batches,
)
from accelerate.utils import (
    GradientAccumulationPlugin, compute_module_sizes, find_executable_batch_size,
    find_tied_parameters, gather_object, recursively_apply, send_to_device, set_seed,
)
from told import on_graphc, own, tell
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

stage = sys.argv[1]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.drop, self.norm = nn.Linear(6, 24, bias=False), nn.Dropout(0.2), nn.BatchNorm1d(24)
        self.second = nn.Linear(24, 3)

    def forward(self, x):
        return self.second(self.drop(self.norm(self.first(x)).relu()))


def data(count=58):
    x = torch.randn(count, 6, generator=torch.Generator().manual_seed(1))
    return TensorDataset(x, x.topk(1).indices.squeeze(1) % 3)


def prepared(**options):
    set_seed(4)
    accelerator = Accelerator(
        cpu=True, gradient_accumulation_plugin=GradientAccumulationPlugin(2), **options
    )
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-2, total_steps=40)
    loader = DataLoader(data(), batch_size=8, shuffle=True)
    return accelerator, *accelerator.prepare(model, optimizer, loader, schedule)


def epoch(accelerator, model, optimizer, loader, schedule):
    losses, norms, rates = [], [], []
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                norms.append(accelerator.clip_grad_norm_(model.parameters(), 0.7).item())
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()[None]).mean().item())
        rates.append(schedule.get_last_lr()[0])
    return losses, norms, rates


def tell_epoch(name, found, within):
    losses, norms, rates = found
    tell(f"{name}: losses", losses, within)
    tell(f"{name}: norms", norms, within)
    tell(f"{name}: rates", rates, 1e-12)


def tell_weights(name, model, within):
    tell(name, {k: [v.double().norm(), v.flatten()[:3]] for k, v in model.state_dict().items()}, within)


if stage == "write":
    everything = prepared()
    accelerator, model, optimizer, loader, schedule = everything
    tell("types", [type(x).__name__ for x in (model, optimizer, loader, schedule)])
    tell("lengths", [len(loader), loader.total_batch_size, loader.total_dataset_length])
    tell_epoch("first", epoch(*everything), 2e-5)
    accelerator.save_state("state")
    tell("files", sorted(os.listdir("state")))
    tell_epoch("second", epoch(*everything), 5e-5)
    tell_weights("weights after two", model, 1e-3)
    model.eval()
    right, count = 0, 0
    test = accelerator.prepare(DataLoader(data(21), batch_size=8))
    for x, y in test:
        with torch.no_grad():
            found = model(x).argmax(-1)
        found, y = accelerator.gather_for_metrics((found, y))
        right, count = right + (found == y).sum().item(), count + len(y)
    tell("right", [right, count])
    accelerator.save_model(model, "model", max_shard_size="1KB")
    tell("shards", sorted(os.listdir("model")))
    accelerator.load_state("state")
    model.train()
    tell_epoch("second again", epoch(*everything), 5e-5)
    skipped = skip_first_batches(loader, 5)
    tell("skipped", [len(list(skipped)), [list(y) for _, y in skip_first_batches(loader, 6)]])
    tell("unwrapped", [type(accelerator.unwrap_model(model)).__name__, accelerator.get_state_dict(model)["second.bias"].shape])
    accelerator.end_training()
elif stage == "swap":  # the other side's state
    everything = prepared()
    accelerator, model, optimizer, loader, schedule = everything
    accelerator.load_state("state")
    tell("the generator", [torch.rand(3).tolist(), torch.randint(10, (3,)).tolist()])
    tell_epoch("swapped", epoch(*everything), 5e-5)
    tell_weights("swapped weights", model, 1e-3)
    other = Net()
    load_checkpoint_and_dispatch(other, "model", device_map={"": "cpu"})
    tell_weights("of shards", other, 1e-3)
elif stage == "bf16":
    everything = prepared(mixed_precision="bf16")
    model = everything[1]
    tell_epoch("bf16", epoch(*everything), 2e-2)
    tell("bf16: kinds", [str(model(torch.ones(4, 6)).dtype), str(model.first.weight.dtype)])
    with everything[0].autocast():
        tell("autocast", str((torch.ones(2, 2) @ torch.ones(2, 2)).dtype))
elif stage == "compiled":
    backend = "inductor" if on_graphc() else "eager"
    everything = prepared(dynamo_backend=backend)
    accelerator, model = everything[:2]
    tell_epoch("compiled", epoch(*everything), 2e-5)
    tell("unwrapped", [type(accelerator.unwrap_model(model, keep_torch_compile=False)).__name__])
    tell("names", sorted(accelerator.get_state_dict(model)))
    if on_graphc():
        function = model._compiled_function
        own("versions", function.compile_count)
        assert function.compile_count >= 1 and function.segments is None
else:
    torch.manual_seed(0)
    with init_empty_weights():
        empty = Net()
    tell("empty", [str(empty.first.weight.device), list(empty.first.weight.shape)])
    tell("sizes", dict(compute_module_sizes(empty)))
    tell("device map", dict(infer_auto_device_map(empty, {"cpu": 10**6})))
    model = Net().eval()
    x = torch.randn(4, 6)
    want = model(x)
    tell("result", want, 1e-6)
    cpu_offload(model, torch.device("cpu"))
    tell("offloaded", [torch.equal(model(x), want), str(model.first.weight.device)])
    model = Net().eval()
    want = model(x)
    disk_offload(model, "offloaded", torch.device("cpu"))
    tell("on disk", [torch.equal(model(x), want), sorted(os.listdir("offloaded"))[:4]])
    model = Net().eval()
    want = model(x)
    dispatch_model(model, {"": "cpu"})
    tell("dispatched", torch.equal(model(x), want))
    tied = Net()
    tied.again = tied.second
    tell("tied", sorted(find_tied_parameters(tied)))
    tried = []

    @find_executable_batch_size(starting_batch_size=64)
    def fit(size):
        tried.append(size)
        if size > 10:
            raise RuntimeError("CUDA out of memory.")
        return size

    tell("sizes tried", [fit(), tried])
    moved = send_to_device({"a": [torch.ones(1), (torch.zeros(2),)], "b": "text"}, "cpu")
    tell("moved", [moved["a"][1][0], moved["b"]])
    tell("applied", recursively_apply(lambda t: t + 1, {"a": (torch.ones(2), [torch.zeros(1)])}))
    tell("objects", gather_object([{"a": 1}, 2]))
    notebook_launcher(lambda n: tell("launched", n), (3,), num_processes=1)
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True, dispatch_batches=False))
    set_seed(3)
    loader = accelerator.prepare(DataLoader(data(), batch_size=16, shuffle=True, num_workers=2))
    for number in range(2):
        loader.set_epoch(number)
        tell("seedable", [[list(y) for _, y in loader]])
    accelerator.wait_for_everyone()
    tell("state", [accelerator.num_processes, accelerator.is_main_process, str(accelerator.device), str(accelerator.distributed_type)])
    with accelerator.profile() as profiled:
        Net()(x)
    tell("profiled", bool(profiled.key_averages()))
