"""datasets with torch's format: map, filter, shuffle, loaders with workers, files."""

import sys

import numpy as np
import torch
from datasets import Dataset, concatenate_datasets, interleave_datasets, load_from_disk
from told import tell
from torch.utils.data import DataLoader, RandomSampler

assert sys.argv[1] == "run"

draws = np.random.default_rng(0)
plain = Dataset.from_dict({
    "x": draws.normal(size=(40, 3)).tolist(), "n": list(range(40)),
    "words": [list(range(i % 4 + 1)) for i in range(40)], "name": [f"row {i}" for i in range(40)],
    "flag": [i % 3 == 0 for i in range(40)],
})
data = plain.with_format("torch")


def seen(value):
    """Kinds and values, through and through."""
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), list(value.shape), value]
    if isinstance(value, dict):
        return {key: seen(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(seen, value)]
    return [type(value).__name__, str(value)]


def collate(rows):
    return {"x": torch.stack([row["x"] for row in rows]), "n": torch.stack([row["n"] for row in rows])}


def squared(row):
    return {"square": row["x"] ** 2, "sum": row["x"].sum()}


if __name__ == "__main__":
    tell("a row", seen(data[3]))
    tell("rows", seen(data[2:5]))
    tell("a column", seen(data["x"][:4]))
    tell("by positions", seen(data[[5, 1, 7]]))
    tell("of numpy", [type(plain.with_format("numpy")[0]["x"]).__name__])
    mapped = data.map(squared)
    tell("mapped", seen(mapped[:3]))
    tell("mapped: features", {key: str(value) for key, value in mapped.features.items()})
    batched = data.map(lambda rows: {"y": rows["x"] @ torch.ones(3, 2)}, batched=True, batch_size=16)
    tell("mapped by batches", seen(batched[-2:]))
    apart = data.map(squared, num_proc=2)
    tell("mapped in two processes", seen(apart[:3]))
    tell("filtered", seen(data.filter(lambda row: row["n"] % 7 == 0)["n"][:]))
    tell("shuffled", seen(data.shuffle(seed=3)["n"][:]))
    parts = data.train_test_split(0.25, seed=1)
    tell("split", [seen(parts["train"]["n"][:]), seen(parts["test"]["n"][:])])
    tell("sorted", seen(data.sort("n", reverse=True)[:2]["n"]))
    both = concatenate_datasets([data.select(range(2)), data.select(range(10, 12))])
    tell("joined", seen(both["n"][:]))
    tell("in turn", seen(interleave_datasets([data.select([0, 1]), data.select([8, 9])]).with_format("torch")["n"][:]))
    narrow = plain.with_format("torch", columns=["x"], dtype=torch.float64)
    tell("of float64", seen(narrow[0]))
    some = plain.with_format("torch", columns=["n"], output_all_columns=True)
    tell("the other columns", seen({k: v for k, v in some[0].items() if k != "words"}))
    for batch in data.iter(batch_size=16):
        tell("batches", seen(batch["n"]))
    wide = data.select_columns(["x", "n"])
    for workers in (0, 2):
        torch.manual_seed(5)
        loader = DataLoader(wide, batch_size=16, shuffle=True, num_workers=workers)
        tell(f"loader, {workers} workers", [seen(batch["n"]) for batch in loader])
        torch.manual_seed(6)
        loader = DataLoader(
            wide, batch_size=8, sampler=RandomSampler(wide, generator=torch.Generator().manual_seed(1)),
            collate_fn=collate, num_workers=workers, drop_last=True,
        )
        tell(f"collated, {workers} workers", [seen(batch) for batch in loader])
    stream = wide.to_iterable_dataset(num_shards=4).shuffle(seed=2, buffer_size=8).with_format("torch")
    for workers in (0, 2):
        loader = DataLoader(stream, batch_size=10, num_workers=workers)
        tell(f"stream, {workers} workers", [seen(batch["n"]) for batch in loader])
    tell("stream mapped", [seen(row) for row in stream.map(squared).take(3)])
    data.save_to_disk("kept")
    again = load_from_disk("kept")
    tell("from disk", [again.format["type"], seen(again[1])])
    data.set_transform(lambda rows: {"doubled": [2 * torch.tensor(x) for x in rows["x"]]})
    tell("transformed", seen(data[:2]))
    image = Dataset.from_dict({"a": draws.integers(0, 255, (4, 5, 6)).tolist()}).with_format("torch")
    tell("two dims", seen(image[0]))
    made = Dataset.from_generator(lambda: ({"t": torch.arange(3) + i} for i in range(3)))
    tell("made of tensors", seen(made.with_format("torch")[:]))
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(7)
    torch.nn.init.ones_(model.weight), torch.nn.init.zeros_(model.bias)
    losses = []
    for batch in DataLoader(wide, batch_size=10, shuffle=True):
        loss = (model(batch["x"]).squeeze(1) - batch["n"]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    tell("losses", losses, 1e-5)
