"""save and load: both directions with PyTorch, sharing, hostile and damaged files."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc
from graphc import nn
from graphc.unpickle import UnpicklingError
from tests.nn.both import SPACES, close

DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()


def both_ways(ours: Any, tmp_path: Path) -> tuple[Any, Any]:
    """What torch and graphc read of what graphc wrote."""
    path = tmp_path / "file.pt"
    graphc.save(ours, path)
    return torch.load(path, weights_only=True), graphc.load(path)


def raw(tensor: Any) -> bytes:
    """A tensor's elements, whatever the dtype."""
    if isinstance(tensor, torch.Tensor):
        return tensor.contiguous().view(torch.uint8).numpy().tobytes() if tensor.dim() else (
            tensor.reshape(1).view(torch.uint8).numpy().tobytes())
    return np.ascontiguousarray(tensor._graphc_array).tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: str, tmp_path: Path) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    values = np.array([[0, 1, 2], [3, 100, 1]]).astype(kind)
    ours = {"x": graphc.from_numpy(values), "scalar": graphc.from_numpy(np.array(values[1, 0]))}
    theirs, again = both_ways(ours, tmp_path)
    for name in ours:
        assert str(theirs[name].dtype) == str(again[name].dtype) == str(ours[name].dtype)
        assert raw(theirs[name]) == raw(again[name]) == raw(ours[name])
    path = tmp_path / "theirs.pt"
    torch.save(theirs, path)
    for name, value in graphc.load(path).items():
        assert raw(value) == raw(ours[name])
        assert tuple(value.shape) == tuple(ours[name].shape)


def test_containers(tmp_path: Path) -> None:
    def build(s: Any) -> Any:
        t = s.torch
        return {
            "numbers": [1, -5, 2.5, True, None, 2**70, -(2**40), float("inf"), 300, 70000],
            "text": "é∂", "bytes": b"a\xff", "tuple": (1, (2, "x"), ()), "set": {1, 2},
            "ordered": OrderedDict(b=1, a=2), "counter": Counter("aab"),
            "size": t.ones(2, 3).shape, "dtype": t.float16, "device": t.device("cpu"),
            "tensor": t.arange(6).reshape(2, 3), "empty": t.ones(0, 3),
            7: "integer key", "array": bytearray(b"xyz"),
        }

    theirs, again = both_ways(build(SPACES[1]), tmp_path)
    want = build(SPACES[0])
    torch.save(want, tmp_path / "theirs.pt")
    for got in (again, graphc.load(tmp_path / "theirs.pt")):
        for key, value in want.items():
            if key in ("size", "dtype", "device"):
                assert str(got[key]) == str(value) == str(theirs[key])
            else:
                close(got[key], value, 0.0, str(key))
                assert type(theirs[key]) is type(value)
    assert torch.equal(theirs["tensor"], want["tensor"])


def test_views_share_a_storage(tmp_path: Path) -> None:
    base = graphc.arange(12).reshape(3, 4).float()
    ours = {"base": base, "column": base[:, 1], "transposed": base.t(), "last": base[2:],
            "alone": graphc.ones(2)}
    theirs, again = both_ways(ours, tmp_path)
    with zipfile.ZipFile(tmp_path / "file.pt") as file:
        assert len([n for n in file.namelist() if "/data/" in n]) == 2
    for loaded in (theirs, again):
        loaded["base"][1, 1] = 99.0
        assert loaded["column"][1].item() == 99.0
        assert loaded["transposed"][1, 1].item() == 99.0
        assert loaded["column"].stride() == (4,)
    assert again["transposed"].tolist() == again["base"].t().tolist()
    torch.save(theirs, tmp_path / "theirs.pt")
    more = graphc.load(tmp_path / "theirs.pt")
    more["base"][2, 0] = 5.0
    assert more["last"].tolist()[0][0] == 5.0


def test_state_dicts_and_optimizers(tmp_path: Path) -> None:
    made = []
    for s in SPACES:
        s.torch.manual_seed(0)
        model = s.nn.Sequential(s.nn.Linear(3, 4), s.nn.BatchNorm1d(4), s.nn.Linear(4, 2))
        optimizer = s.torch.optim.Adam(model.parameters(), lr=0.01)
        rows = s.torch.arange(15.0).reshape(5, 3).sin()
        for _ in range(2):
            model(rows).square().sum().backward()
            optimizer.step()
        made.append((model, optimizer))
    (their_model, their_optimizer), (model, optimizer) = made
    graphc.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()},
                tmp_path / "ours.pt")
    torch.save({"model": their_model.state_dict(), "optimizer": their_optimizer.state_dict()},
               tmp_path / "theirs.pt")
    ours_in_torch = torch.load(tmp_path / "ours.pt", weights_only=True)
    assert str(their_model.load_state_dict(ours_in_torch["model"])) == (
        "<All keys matched successfully>")
    their_optimizer.load_state_dict(ours_in_torch["optimizer"])
    theirs = graphc.load(tmp_path / "theirs.pt")
    assert theirs["model"]._metadata["1"] == {"version": 2}
    assert str(model.load_state_dict(theirs["model"])) == "<All keys matched successfully>"
    optimizer.load_state_dict(theirs["optimizer"])
    for name, want in torch.load(tmp_path / "theirs.pt")["model"].items():
        close(model.state_dict()[name], want, 0.0, name)
    for name, want in ours_in_torch["model"].items():
        close(graphc.load(tmp_path / "ours.pt")["model"][name], want, 0.0, name)
    optimizer.step()
    their_optimizer.step()


def test_parameters_keep_requires_grad(tmp_path: Path) -> None:
    ours = [nn.Parameter(graphc.ones(2)), nn.Parameter(graphc.ones(2), requires_grad=False),
            graphc.ones(2, requires_grad=True)]
    theirs, again = both_ways(ours, tmp_path)
    for loaded, kind in ((theirs, torch.nn.Parameter), (again, nn.Parameter)):
        assert [t.requires_grad for t in loaded] == [True, False, True]
        assert isinstance(loaded[0], kind) and not isinstance(loaded[2], kind)


def test_whole_modules_need_trust(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    path = tmp_path / "model.pt"
    graphc.save(model, path)
    # pickle's own, which programs catch to try again
    with pytest.raises(pickle.UnpicklingError, match=r"^Weights only load failed: .*names graphc"):
        graphc.load(path)
    again = graphc.load(path, weights_only=False)
    x = graphc.ones(1, 2)
    assert again(x).tolist() == model(x).tolist()
    assert type(again[0].weight) is nn.Parameter


def test_buffers_and_open_files() -> None:
    memory = io.BytesIO()
    graphc.save([graphc.ones(2)], memory)
    memory.seek(0)
    assert graphc.load(memory)[0].tolist() == [1.0, 1.0]

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    assert graphc.load(Pipe(memory.getvalue()))[0].tolist() == [1.0, 1.0]
    memory.seek(0)
    assert torch.load(memory, weights_only=True)[0].tolist() == [1.0, 1.0]


def test_storages_are_aligned(tmp_path: Path) -> None:
    graphc.save({str(i): graphc.ones(i + 1) for i in range(5)}, tmp_path / "x.pt")
    with zipfile.ZipFile(tmp_path / "x.pt") as file, open(tmp_path / "x.pt", "rb") as binary:
        for info in file.infolist():
            binary.seek(info.header_offset + 26)
            name, extra = (int.from_bytes(binary.read(2), "little") for _ in range(2))
            assert (info.header_offset + 30 + name + extra) % 64 == 0


# --- writing safely ------------------------------------------------------------------------------


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    graphc.save({"a": 1}, path)
    with pytest.raises(Exception, match="pickle"):
        graphc.save({"a": lambda: None}, path)
    assert graphc.load(path) == {"a": 1}

    class Fails:
        def __reduce__(self) -> Any:
            raise ValueError("not this one")

    with pytest.raises(ValueError, match="not this one"):
        graphc.save([graphc.ones(3), Fails()], path)
    assert graphc.load(path) == {"a": 1}
    assert os.listdir(tmp_path) == ["x.pt"]


def test_save_through_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.pt", tmp_path / "link.pt"
    graphc.save(1, real)
    real.chmod(0o600)
    link.symlink_to(real)
    graphc.save(2, link)
    assert link.is_symlink()
    assert graphc.load(real) == 2
    assert real.stat().st_mode & 0o777 == 0o600


def test_bad_targets(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"Parent directory .* does not exist"):
        graphc.save(1, tmp_path / "nowhere" / "x.pt")
    with pytest.raises(TypeError, match="expected a path"):
        graphc.save(1, 3)
    with pytest.raises(TypeError, match="expected a path"):
        graphc.load(3)
    with pytest.raises(FileNotFoundError):
        graphc.load(tmp_path / "missing.pt")
    x = graphc.ones(2, requires_grad=True)
    other = graphc.ones(4).view(graphc.int32)
    assert graphc.load(_saved(tmp_path, [x * 2]))[0].tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="different types"):
        graphc.save([other, other.view(graphc.float32)], tmp_path / "x.pt")


def _saved(tmp_path: Path, value: Any) -> Path:
    graphc.save(value, tmp_path / "x.pt")
    return tmp_path / "x.pt"


# --- reading safely ------------------------------------------------------------------------------


class Attack:
    """Creates a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def archive(tmp_path: Path, data: bytes, records: dict[str, bytes] | None = None) -> Path:
    """A file with a given pickle."""
    path = tmp_path / "crafted.pt"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", data)
        for name, content in (records or {}).items():
            file.writestr(f"archive/data/{name}", content)
    return path


@pytest.mark.parametrize("protocol", range(6))
def test_hostile_pickles_run_nothing(protocol: int, tmp_path: Path) -> None:
    target = tmp_path / "made"
    path = archive(tmp_path, pickle.dumps({"a": [Attack(target)]}, protocol))
    with pytest.raises(UnpicklingError, match=r"names (posix|nt|os)\.mkdir"):
        graphc.load(path)
    assert not target.exists()


@pytest.mark.parametrize("data", [
    b"",
    b".",
    b"\xff\xff",
    b"\x80\x02",
    b"\x80\x02}q\x00",
    b"(lp0\nI1\n",
    b"]t.",
    b"0.",
    b"\x80\x02K\x01a.",
    b"h\x05.",
    b"(I1\no.",
    b"\x80\x02N)\x81.",
    b"\x80\x02Q.",
    b"\x80\x02]K\x01Q.",
    b"cbuiltins\neval\n.",
    b"cos\nsystem\n(S'true'\ntR.",
    b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
    b"c__builtin__\nset\n(K\x01tR.",
    b"c__builtin__\nbytearray\n(J\xff\xff\xff\x7ftR.",
    b"ctorch._utils\n_rebuild_tensor_v2\n.",
    b"ctorch._utils\n_rebuild_tensor_v2\n(K\x00K\x00))tR.",
    b"ccollections\nOrderedDict\n)R}X\x09\x00\x00\x00__class__K\x01sb.",
])
def test_damaged_pickles(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        graphc.load(archive(tmp_path, data))


def crafted_tensor(offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> bytes:
    """The pickle of a tensor at a place in a storage of 4 floats."""
    memory = io.BytesIO()
    graphc.save(graphc.ones(4), memory)
    data = zipfile.ZipFile(memory).read("archive/data.pkl")
    known = b"K\x00K\x04\x85"
    assert known in data
    head, tail = data.split(known)
    rest = tail.split(b"K\x01\x85", 1)[1]
    rest = rest[2:] if rest[:1] == b"q" else rest
    parts = b"".join(pickle.dumps(part, 2)[2:-1] for part in (offset, size, stride))
    return head + parts + rest


@pytest.mark.parametrize(("offset", "size", "stride"), [
    (1, (4,), (1,)), (0, (5,), (1,)), (0, (2, 2), (3, 1)), (-1, (2,), (1,)), (0, (2,), (-1,)),
    (0, (2,), (1, 1)), (2**62, (2,), (2**62,)),
])
def test_tensors_outside_their_storage(
    offset: int, size: tuple[int, ...], stride: tuple[int, ...], tmp_path: Path
) -> None:
    path = archive(
        tmp_path, crafted_tensor(offset, size, stride), {"0": np.ones(4, np.float32).tobytes()}
    )
    with pytest.raises(RuntimeError):
        graphc.load(path)


def test_a_crafted_tensor_inside_its_storage(tmp_path: Path) -> None:
    path = archive(
        tmp_path, crafted_tensor(1, (3,), (1,)), {"0": np.arange(4, dtype=np.float32).tobytes()}
    )
    assert graphc.load(path).tolist() == [1.0, 2.0, 3.0]


def test_truncated_and_flipped_files(tmp_path: Path) -> None:
    graphc.save({"x": graphc.ones(100)}, tmp_path / "x.pt")
    whole = (tmp_path / "x.pt").read_bytes()
    bad = tmp_path / "bad.pt"
    for size in (0, 1, 30, 100, len(whole) // 2, len(whole) - 1):
        bad.write_bytes(whole[:size])
        with pytest.raises(EOFError if size == 0 else RuntimeError, match=r"bad\.pt"):
            graphc.load(bad)
    flipped = bytearray(whole)
    flipped[whole.index(np.ones(4, np.float32).tobytes())] ^= 0x10
    bad.write_bytes(flipped)
    with pytest.raises(RuntimeError, match="CRC"):
        graphc.load(bad)
    with zipfile.ZipFile(bad, "w") as file:
        file.writestr("other", b"")
    with pytest.raises(RuntimeError, match=r"no data\.pkl"):
        graphc.load(bad)


def test_missing_and_short_records(tmp_path: Path) -> None:
    data = crafted_tensor(0, (4,), (1,))
    with pytest.raises(RuntimeError, match="no record"):
        graphc.load(archive(tmp_path, data))
    with pytest.raises(RuntimeError, match="12 bytes"):
        graphc.load(archive(tmp_path, data, {"0": b"\0" * 12}))


def test_map_location(tmp_path: Path) -> None:
    memory = io.BytesIO()
    graphc.save(graphc.ones(4), memory)
    data = zipfile.ZipFile(memory).read("archive/data.pkl").replace(
        b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
    path = archive(tmp_path, data, {"0": np.ones(4, np.float32).tobytes()})
    with pytest.raises(RuntimeError, match="map_location"):
        graphc.load(path)
    for location in (
        "cpu", graphc.device("cpu"), {"cuda:0": "cpu"}, lambda storage, where: storage
    ):
        assert graphc.load(path, map_location=location).tolist() == [1.0] * 4
