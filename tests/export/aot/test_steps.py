"""Libraries of training steps: the bits of compiled steps, state by name, files, contexts."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.__main__ import main
from graphc.backends.llvm.freestanding.entry import STEP_FUNCTIONS
from graphc.export import ExportError, aot, export_step, load, load_library, safetensors

from . import client
from .client import Failed
from .step_client import StepContext, StepLibrary
from .steps import CASES, exported_small, small_batch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="libraries are for Linux")
COUNT = b"\"model['steps']\""


@pytest.fixture(scope="module")
def step() -> Any:
    return exported_small()


@pytest.fixture(scope="module")
def library(step: Any, tmp_path_factory: pytest.TempPathFactory) -> StepLibrary:
    return StepLibrary(aot(step, tmp_path_factory.mktemp("step"), name="small").library, "small")


def arrays(args: tuple[Any, ...]) -> list[np.ndarray]:
    return [np.array(each if isinstance(each, float) else each.numpy()) for each in args]


def turns(context: StepContext, first: int, last: int) -> list[bytes]:
    """What some steps answer."""
    return [b"".join(x.tobytes() for x in context(*arrays(small_batch(k))))
            for k in range(first, last)]


def state_of(step: Any) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in step.state_dict().items()}


def state(context: StepContext) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in context.state().items()}


def test_what_a_library_says_of_itself(step: Any, library: StepLibrary) -> None:
    f32, f64, i64 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)
    assert library.entries("input") == [
        ("x", f32, [-1, 4]), ("index", i64, [-1]), ("rate", f64, []),
    ]
    assert library.entries("output") == [
        ("result[0]", f32, []), ("result[1]", f32, [-1, 4]), ("result[2]", f64, []),
    ]
    assert library.entries("state") == [
        (each.name, np.dtype({"f32": f32, "f64": f64, "i64": i64}[each.dtype]), [*each.shape])
        for each in step.entries
    ]
    shown = {
        line.split()[-1] for line in subprocess.run(
            ["nm", "-D", "--defined-only", library.code._name], capture_output=True, text=True,
            check=True,
        ).stdout.splitlines()
    }
    assert shown == {f"small_{each}" for each in STEP_FUNCTIONS}


def test_the_bits_of_the_step(library: StepLibrary) -> None:
    """Results, and every part of the state behind each call; on one thread and two."""
    step, contexts = exported_small(), [library.context(), library.context(threads=2)]
    step.manual_seed(3)
    for context in contexts:
        context.seed(3)
        assert state(context) == state_of(step)
    for k in range(12):
        item, made, number = step(*small_batch(k))
        for context in contexts:
            loss, found, counted = context(*arrays(small_batch(k)))
            assert (loss, counted) == (np.float32(item), number)
            assert found.tobytes() == made.numpy().tobytes()
            assert state(context) == state_of(step)
    for context in contexts:
        context.close()


def test_stop_save_and_go_on(library: StepLibrary, step: Any, tmp_path: Path) -> None:
    """In another context, from bytes and from a file; and in Python, with what packages read."""
    whole, half = library.context(), library.context()
    answers = turns(whole, 0, 9)
    assert turns(half, 0, 4) == answers[:4]
    half.save_file(tmp_path / "half.safetensors")
    data = half.save()
    assert (tmp_path / "half.safetensors").read_bytes() == data
    assert [each.name for each in tmp_path.iterdir()] == ["half.safetensors"]
    for go_on in (lambda other: other.load(data),
                  lambda other: other.load_file(tmp_path / "half.safetensors")):
        other = library.context()
        turns(other, 3, 5)
        go_on(other)
        assert state(other) == state(half)
        assert turns(other, 4, 9) == answers[4:]
        assert other.save() == whole.save()
        other.close()
    read, _ = safetensors.loads(data)
    twin = exported_small()
    twin.load_state_dict(read)
    assert twin(*small_batch(4))[1].numpy().tobytes() in answers[4]
    # what others write: another order, names with escapes, something about the file
    other = library.context()
    names = sorted(read, reverse=True)
    written = safetensors.dumps({name: read[name] for name in names}, {"format": "pt", "a": "\\é"})
    length = int.from_bytes(written[:8], "little")
    spelled = written[8 : 8 + length].replace(b"rows.weight", b"r\\u006fws\\u002Eweight")
    spelled = spelled.replace(b":", b" :\n\t")
    other.load(len(spelled).to_bytes(8, "little") + spelled + written[8 + length :])
    assert turns(other, 4, 9) == answers[4:]
    for each in (whole, half, other):
        each.close()


def test_the_state_can_be_written_to(library: StepLibrary) -> None:
    step, context = exported_small(), library.context()
    found = context.state()
    found["rows.weight"][...] = 0.5
    found["model['steps']"][...] = 40
    step.load_state_dict({
        **step.state_dict(), "rows.weight": torch.full((5, 4), 0.5), "model['steps']": 40,
    })
    assert context(*arrays(small_batch(1)))[2] == step(*small_batch(1))[2] == 42 * small_batch(1)[2]
    assert state(context) == state_of(step)
    assert library.state_data(context.pointer, len(found)) is None
    assert library.state_data(context.pointer, -1) is None
    assert library.state_data(None, 0) is None
    context.close()


def damaged(data: bytes) -> list[tuple[bytes, str]]:
    """Files that are not right, and what is said of them."""
    length = int.from_bytes(data[:8], "little")
    head, body = data[8 : 8 + length], data[8 + length :]

    def with_head(old: bytes, new: bytes, tail: bytes = b"") -> bytes:
        assert old in head
        made = head.replace(old, new, 1)
        return len(made).to_bytes(8, "little") + made + body + tail

    lies = COUNT + b':{"dtype":"I64","shape":[],"data_offsets":['
    place = head.index(lies) + len(lies)
    begin, end = map(int, head[place : head.index(b"]", place)].split(b","))
    return [
        (b"", "0 bytes are no safetensors"), (data[:7], "7 bytes are no"),
        (b"\xff" * 8 + data[8:], "a header of -1 bytes"), (data[: 8 + length // 2], "a header of"),
        (data[:-1], "ends at byte"), (data + b"\0", "bytes of data, and its tensors have"),
        (with_head(b"rows.weight", b"rows.height"), "has rows.height, which is no part"),
        (with_head(COUNT, b'"calls"'), "has calls, which is no part"),
        (with_head(COUNT, COUNT.replace(b"'", b"\\u0000")), "is damaged, or no safetensors"),
        (with_head(b'"I64","shape":[],', b'"F64","shape":[],'), "another dtype in the file: F64"),
        (with_head(b"[5,4]", b"[4,5]"), "dim 0 of rows.weight must be 5, and is 4"),
        (with_head(b"[5,4]", b"[5,4,1]"), "rows.weight must have 2 dims, and has 3"),
        (with_head(b"[5,4]", b"[20]"), "dim 0 of rows.weight must be 5, and is 20"),
        (with_head(b"[5,4]", b"[-5,4]"), "is damaged"), (with_head(b"[5,4]", b"[5 4]"), "damaged"),
        (with_head(b"[5,4]", b"[5,4.0]"), "damaged"), (with_head(b"[5,4]", b"5"), "damaged"),
        (with_head(lies + b"%d" % begin, lies + b"%d" % (begin - 8)), "has 16 bytes in the file"),
        (with_head(lies + b"%d,%d" % (begin, end), lies + b"0,8"), "lie in the same bytes"),
        (with_head(lies + b"%d,%d" % (begin, end), lies + b"9223372036854775808,8"), "damaged"),
        (with_head(b'"dtype":"I64",', b""), "damaged"),
        (with_head(b'"dtype"', b'"kind"'), "damaged"),
        (with_head(b'{"dtype"', b'{"dtype":"I64","dtype"'), "damaged"),
        (with_head(head.rstrip(), head.rstrip()[:-1]), "damaged"),
        (with_head(head.rstrip(), head.rstrip() + b"}"), "damaged"),
        (with_head(COUNT, b'"generator"'), "has generator twice"),
        (with_head(head, b"{}"), "the file lacks rows.weight"),
        (with_head(head, b""), "damaged"), (with_head(head, b"[" * 1000), "damaged"),
    ]


def test_files_that_are_not_right(library: StepLibrary, tmp_path: Path) -> None:
    """Each says what is wrong, and changes nothing."""
    context = library.context()
    turns(context, 0, 3)
    data, before = context.save(), state(context)
    turns(context, 3, 4)
    now = state(context)
    assert now != before
    for k, (wrong, text) in enumerate(damaged(data)):
        with pytest.raises(Failed) as raised:
            context.load(wrong)
        assert raised.value.code == client.FILE and text in raised.value.text, raised.value
        (tmp_path / f"{k}").write_bytes(wrong)
        with pytest.raises(Failed) as raised:
            context.load_file(tmp_path / f"{k}")
        assert raised.value.code == client.FILE
        assert text in raised.value.text or "the step's state alone" in raised.value.text
        assert state(context) == now
    for path, text in (
        (tmp_path / "nowhere", "nowhere cannot be opened"), (tmp_path, "the step's state alone"),
    ):
        with pytest.raises(Failed, match=text):
            context.load_file(path)
    with pytest.raises(Failed, match=r"part cannot be opened to be written"):
        context.save_file(tmp_path / "no" / "where")
    (tmp_path / "folder").mkdir()
    with pytest.raises(Failed, match="folder cannot be written"):
        context.save_file(tmp_path / "folder")
    assert not [each for each in tmp_path.iterdir() if each.suffix == ".part"]
    code = library.state_save(context.pointer, ctypes.create_string_buffer(8), 8)
    assert code == client.BYTES and library.state_load(context.pointer, None, 8) == client.ARGUMENT
    assert library.state_load_file(context.pointer, None) == client.ARGUMENT
    assert library.seed(None, 1) == library.step(None, None, None) == client.ARGUMENT
    context.load(data)
    assert state(context) == before
    context.close()


def test_files_with_any_byte_changed(library: StepLibrary) -> None:
    """Taken whole, or not at all."""
    context = library.context()
    data = context.save()
    length = int.from_bytes(data[:8], "little")
    rng = np.random.default_rng(0)
    ended: dict[bool, int] = {}
    before = state(context)
    for _ in range(2000):
        changed = bytearray(data)
        for place in rng.integers(0, 8 + length, rng.integers(1, 4)):
            changed[place] = rng.choice([rng.integers(256), *b'0129{}[]",:\\u eF'])
        changed = changed[: rng.integers(len(changed))] if rng.random() < 0.1 else changed
        code = library.state_load(context.pointer, bytes(changed), len(changed))
        ended[not code] = ended.get(not code, 0) + 1
        if code:
            assert code == client.FILE and state(context) == before
        else:  # spaces, or data that lies elsewhere
            context.load(data)
    assert ended[False] > 1200
    context.close()


def test_what_a_step_refuses(library: StepLibrary) -> None:
    """The state is then as it was, that of the generator, too."""
    context = library.context()
    turns(context, 0, 2)
    before = state(context)
    x, index, rate = arrays(small_batch(3))
    outputs = context.outputs([x, index, rate])
    index[1] = 7
    with pytest.raises(Failed, match="7") as raised:
        context.run([x, index, rate], outputs)
    assert raised.value.code == client.VALUE and state(context) == before
    assert "steps.py" in raised.value.text
    index[1] = 0
    context.state()["model['steps']"][...] = 2**63 - 2
    before = state(context)
    with pytest.raises(Failed, match=r"cannot be computed: it needs more than 64 bits") as raised:
        context.run([x, index, rate], outputs)
    assert raised.value.code == client.VALUE and state(context) == before
    context.state()["model['steps']"][...] = 0
    rows = context.state()["rows.weight"]
    before = state(context)
    for given, taken, name in (
        ([rows, np.zeros(5, np.int64), rate], None, "x"),
        ([x[:2], index[:2], context.state()["optimizer.param_groups.0.lr"]], None, "rate"),
        ([x[:2], index[:2], rate], [outputs[0], rows[1:3], outputs[2]], r"result\[1\]"),
    ):
        taken = taken or context.outputs(given)
        with pytest.raises(Failed, match=f"the memory of {name} is also the state's") as raised:
            context.run(given, taken)
        assert raised.value.code == client.OVERLAP and state(context) == before
    context.close()


def test_each_context_has_its_own_state(library: StepLibrary) -> None:
    wanted = {}
    for seed in range(3):
        context = library.context()
        context.seed(seed)
        wanted[seed] = turns(context, 0, 20), context.save()
        context.close()
    found: dict[int, Any] = {}

    def work(seed: int) -> None:
        context = library.context()
        context.seed(seed)
        found[seed] = turns(context, 0, 20), context.save()
        context.close()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == wanted


def test_contexts_that_save_into_one_file(library: StepLibrary, tmp_path: Path) -> None:
    """Threads of a process: the file is one state or another, always whole."""
    path, wanted, failed = tmp_path / "state", set(), []
    contexts = [library.context() for _ in range(4)]
    for seed, context in enumerate(contexts):
        context.seed(seed)
        wanted.add(context.save())

    def save(context: StepContext) -> None:
        try:
            for _ in range(20):
                context.save_file(path)
                assert path.read_bytes() in wanted
        except (Failed, AssertionError) as error:
            failed.append(error)

    threads = [threading.Thread(target=save, args=(context,)) for context in contexts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and [each.name for each in tmp_path.iterdir()] == ["state"]
    for context in contexts:
        context.close()


def test_fork(library: StepLibrary, tmp_path: Path) -> None:
    """The child goes on from the state as it was, and changes that of nobody else."""
    context = library.context(threads=2)
    turns(context, 0, 2)
    data = context.save()
    child = os.fork()
    if not child:
        try:
            turns(context, 2, 5)
            context.save_file(tmp_path / "child")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert context.save() == data
    turns(context, 2, 5)
    assert (tmp_path / "child").read_bytes() == context.save()
    context.close()


def test_the_callers_memory(library: StepLibrary) -> None:
    """All of a context lies there."""
    size = library.bytes(ctypes.byref(client.Options(abi=1)))
    room = np.full(size + 128, 0xAB, np.uint8)
    start = -room.ctypes.data % 64
    context = library.context(memory=room.ctypes.data + start, memory_bytes=size)
    other = library.context()
    assert turns(context, 0, 3) == turns(other, 0, 3)
    assert context.save() == other.save()
    assert (room[:start] == 0xAB).all() and (room[start + size :] == 0xAB).all()
    context.close()
    other.close()


def test_a_state_in_a_file_by_the_command(
    step: Any, library: StepLibrary, tmp_path: Path
) -> None:
    step.save(tmp_path / "small.gcx")
    assert main([
        "aot", str(tmp_path / "small.gcx"), "--out", str(tmp_path), "--name", "s", "--weights",
        "file",
    ]) == 0
    header = (tmp_path / "s.h").read_text()
    assert "state 0: rows.weight f32[5, 4]" in header and "s_step(" in header
    assert "s_run(" not in header
    inside = StepLibrary(tmp_path / "libs.so", "s")
    with pytest.raises(Failed, match="weights_path"):
        inside.context()
    path = str(tmp_path / "s.safetensors").encode()
    context, other = inside.context(weights_path=path), library.context()
    assert turns(context, 0, 3) == turns(other, 0, 3)
    assert context.save() == other.save()
    context.close()
    other.close()


# --- models ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_hundred_compiled_steps(name: str, tmp_path: Path) -> None:
    """Losses and state to the bit, by way of a file in the middle."""
    case = CASES[name]
    step, model, optimizer = case.step()
    exported = export_step(step, case.batch(0), calls=case.calls)
    library = StepLibrary(aot(exported, tmp_path, name=name).library, name)
    context = library.context()
    compiled = torch.compile(step)
    torch.manual_seed(1)
    if exported.contents.generator is not None:
        context.seed(1)
    for k in range(100):
        if k == 50:
            context.save_file(tmp_path / "half")
            context.close()
            context = library.context(threads=2)
            context.load_file(tmp_path / "half")
        batch = case.batch(k % 8)
        (found,) = context(*arrays(batch))
        assert found.tobytes() == compiled(*batch).detach().numpy().tobytes(), k
    found_state = state(context)
    for key, value in model.state_dict().items():
        assert found_state[key] == value.numpy().tobytes(), key
    for key, parameter in model.named_parameters():
        for part, value in optimizer.state[parameter].items():
            wanted = value.numpy().tobytes()
            assert found_state[f"optimizer.state.{key}.{part}"] == wanted, (key, part)
    context.close()


@pytest.mark.slow
def test_beyond_the_last_row_of_a_schedule(tmp_path: Path) -> None:
    case = CASES["schedule"]._replace(calls=3)
    exported = export_step(case.step()[0], case.batch(0), calls=3)
    context = StepLibrary(aot(exported, tmp_path, name="m").library, "m").context()
    rows = len(next(iter(exported._step["tables"].values())) and exported._weights["table.0"])
    for _ in range(rows):
        context(*arrays(case.batch(0)))
    before = state(context)
    with pytest.raises(Failed, match=rf"schedule of {rows} calls, and this is call {rows + 1}"):
        context(*arrays(case.batch(0)))
    assert state(context) == before
    context.close()


def test_what_no_library_is_made_of(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def transforms(x: Any) -> Any:
        optimizer.zero_grad()
        (weight * torch.fft.fft(x).real).sum().backward()
        optimizer.step()

    with pytest.raises(ExportError, match=r"by NumPy.* fft"):
        aot(export_step(transforms, (torch.ones(3),)), tmp_path, name="m")
    assert not list(tmp_path.iterdir())


def test_every_generator_is_seeded(tmp_path: Path) -> None:
    """The process's, and the step's own: to be run again from the start."""
    own = torch.Generator().manual_seed(7)
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.0)  # a loss is of its draws alone

    def draws(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (weight * x * torch.rand(3) + torch.randn(3, generator=own)).sum()
        loss.backward()
        optimizer.step()
        return loss

    exported = export_step(draws, (torch.ones(3),))
    assert exported.generators == ("generator", "own")
    context = StepLibrary(aot(exported, tmp_path, name="d").library, "d").context()
    first = [context(np.ones(3, np.float32))[0] for _ in range(3)]
    context.seed(5)
    exported.manual_seed(5)
    torch.manual_seed(5)
    own.manual_seed(5)
    compiled = torch.compile(draws)
    for _ in range(3):
        (found,) = context(np.ones(3, np.float32))
        assert found == exported(torch.ones(3)).item() == compiled(torch.ones(3)).item()
        assert found not in first
    context.close()


def test_native_code_of_steps_is_not_in_files(
    step: Any, library: StepLibrary, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each way to ask for it says what there is instead."""
    path = tmp_path / "small.gcx"
    step.save(path)
    with pytest.raises(ExportError, match=r"is a training step.*Cure: load\(path\).*aot\(") as said:
        load(path, native=True, trust="0" * 64)
    assert str(said.value).count("Cure") == 1
    with pytest.raises(ExportError, match=r"is a training step.*Cure: graphc\.export\.load"):
        load_library(library.code._name)
    assert main(["aot", str(path), "--into", str(tmp_path / "other.gcx")]) == 2
    assert "is a training step" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["small.gcx"]
