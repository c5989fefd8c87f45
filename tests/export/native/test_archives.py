"""Machine code in a .gcx file: it computes what the program does, and runs where it is trusted."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.__main__ import main
from graphc.export import ExportError, NativeProgram, export, export_step, load, save
from graphc.export.native import image
from tests.export_fuzz.mutate import unpacked

from .common import File, arguments, exported, file, same

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="libraries are for Linux")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> File:
    return file(tmp_path_factory.mktemp("native"))


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """No library is opened."""
    def opened(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError(f"{args} was opened")

    monkeypatch.setattr(image.ctypes, "CDLL", opened)


def changed(good: File, folder: Path, change: Callable[[dict[str, bytes], Any], None]) -> Path:
    """The file with other parts, and a manifest that says what they are: `change(parts, manifest)`
    sees all but the hashes."""
    parts = unpacked(good.path.read_bytes())
    described = json.loads(parts.pop("manifest.json"))
    change(parts, described)
    described["parts"] = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        for name, data in parts.items()
    }
    for each in described["native"]:
        if each["file"] in parts:
            each["sha256"] = described["parts"][each["file"]]["sha256"]
    text = json.dumps(described).encode()
    return packed(folder / "changed.gcx", {"manifest.json": text, **parts})


def packed(path: Path, parts: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return path


def code_of(path: Path) -> tuple[str, bytes]:
    """The name of the code's part, and what is there."""
    ((name, data),) = (each for each in unpacked(path.read_bytes()).items()
                       if each[0].startswith("native/"))
    return name, data


# --- what it computes ---------------------------------------------------------------------------


def test_the_bits_of_the_program(good: File) -> None:
    program = load(good.path, native=True, trust=good.digest)
    assert isinstance(program, NativeProgram) and program.digest == good.digest
    for n in (1, 2, 6, 3):
        args, kwargs = arguments(n, n)
        same(program(*args, **kwargs), good.program(*args, **kwargs))
    again = load(io.BytesIO(good.path.read_bytes()), native=True, threads=2,
                 trust=["0" * 64, f"SHA256:{good.digest.upper()}"])
    args, kwargs = arguments(6)
    same(again(**kwargs, x=args[0]), good.program(*args, **kwargs))


def test_arguments_are_checked_as_the_programs_are(good: File) -> None:
    program = load(good.path, native=True, trust=good.digest)
    (x,), kwargs = arguments(3)
    for error, text, call in (
        (ValueError, "times is 3, but the model was exported with 2",
         lambda: program(x, pair=kwargs["pair"], times=3)),
        (TypeError, r"needs times; it takes x, pair, times", lambda: program(x, pair=1)),
        (TypeError, "pair must be a dict with the keys", lambda: program(x, pair=[], times=2)),
        (ValueError, r"x must be f32\[n,4\], got f64\[3,4\]\. Cure: convert it to torch\.float32",
         lambda: program(x.double(), **kwargs)),
        (ValueError, "dim 1 of x must be 4, is 3", lambda: program(x[:, :3], **kwargs)),
        (ValueError, "dim 0 of x gives 7 for n, which may be 1 to 6",
         lambda: program(torch.zeros(7, 4), **kwargs)),
        (TypeError, "x must be an array or a tensor, got a list", lambda: program([1], **kwargs)),
        (ValueError, r"pair\['second'\] must be f64\[2\], got f64\[2,1\]",
         lambda: program(x, pair={**kwargs["pair"], "second": torch.zeros(2, 1).double()},
                         times=2)),
    ):
        with pytest.raises(error, match=text):
            call()
    x.requires_grad_()
    with pytest.raises(RuntimeError, match="no autograd"):
        program(x, **kwargs)
    with torch.no_grad():
        same(program(x, **kwargs), good.program(x, **kwargs))


def test_it_needs_no_compiler(good: File) -> None:
    """In a process in which llvmlite cannot be imported, and in which nothing of the backend is."""
    args, kwargs = arguments(5)
    wanted = good.program(*args, **kwargs)["rows"].numpy().tobytes().hex()
    code = f"""
import sys
sys.modules["llvmlite"] = None
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
import numpy as np
from graphc.export import load
program = load({str(good.path)!r}, native=True, trust={good.digest!r})
x = np.frombuffer(bytes.fromhex({args[0].numpy().tobytes().hex()!r}), np.float32).reshape(5, 4)
pair = {{"first": np.arange(3), "second": np.zeros(2)}}
assert program(x, pair=pair, times=2)["rows"].numpy().tobytes().hex() == {wanted!r}
wrong = [name for name in sys.modules if name.startswith(("graphc.backends.llvm", "networkx"))]
assert not wrong, wrong
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_memory_is_given_back(good: File) -> None:
    """A program that nobody has any more leaves neither code nor contexts; results stay."""
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count("memfd:graphc")

    gc.collect()
    before = mapped()
    program = load(good.path, native=True, trust=good.digest, threads=2)
    args, kwargs = arguments(4)
    result = program(*args, **kwargs)
    assert mapped() > before
    del program
    gc.collect()
    assert mapped() == before
    same(result, good.program(*args, **kwargs))


# --- trust --------------------------------------------------------------------------------------


def test_nothing_runs_that_is_not_trusted(good: File, never: None) -> None:
    for trust in (None, "1" * 64, ["1" * 64, "2" * 64]):
        with pytest.raises(ExportError, match=f"(?s)machine code .* not run: .*{good.digest}.*"
                                              r"Cure: .*load\(path\)"):
            load(good.path, native=True, trust=trust)
    for trust in ("", "1" * 63, "g" * 64, [], ["1" * 64, "x"]):
        with pytest.raises(ValueError, match="64 hexadecimal digits"):
            load(good.path, native=True, trust=trust)
    for options in ({"trust": good.digest}, {"threads": 2}):
        with pytest.raises(ValueError, match=r"load\(path, native=True"):
            load(good.path, **options)  # type: ignore[call-overload]
    args, kwargs = arguments(3)
    same(load(good.path)(*args, **kwargs), good.program(*args, **kwargs))


def test_another_code_in_its_place(good: File, tmp_path: Path, never: None) -> None:
    name, code = code_of(good.path)
    parts = unpacked(good.path.read_bytes())
    # as the manifest was
    path = packed(tmp_path / "m.gcx", {**parts, name: code[:-1] + b"\1"})
    with pytest.raises(ExportError, match=f"{name} is not what the manifest says"):
        load(path, native=True, trust=good.digest)
    # with a manifest that fits
    path = changed(good, tmp_path, lambda parts, _: parts.update({name: code + b"\0"}))
    with pytest.raises(ExportError, match="not run: its SHA-256 is"):
        load(path, native=True, trust=good.digest)
    # one part more, a part of another name, the same part twice
    for extra in ("native/x86_64-linux/other.so", "lib.so"):
        path = packed(tmp_path / "m.gcx", {**parts, extra: code})
        with pytest.raises(ExportError, match="cannot be loaded: it holds"):
            load(path, native=True, trust=good.digest)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr(name, code)
    with pytest.raises(ExportError, match="twice"):
        load(path, native=True, trust=good.digest)


def test_what_is_no_whole_library(good: File, tmp_path: Path, never: None) -> None:
    """Even where it is trusted: the loader of the system would die of it."""
    name, code = code_of(good.path)

    def text(data: bytes) -> str:
        path = changed(good, tmp_path, lambda parts, _: parts.update({name: data}))
        with pytest.raises(ExportError) as raised:
            load(path, native=True, trust=hashlib.sha256(data).hexdigest())
        return str(raised.value)

    for length in (0, 1, 63, 64, 65, 200, len(code) // 2, len(code) - 1):
        assert "is no shared library" in text(code[:length]) or "too early" in text(code[:length])
    assert "is no shared library" in text(b"/etc/passwd")
    assert "no shared library" in text(code[:16] + b"\1\0" + code[18:])
    assert "is for aarch64, and this machine is x86_64" in text(code[:18] + b"\xb7\0" + code[20:])
    far = code[:32] + (1 << 60).to_bytes(8, "little") + code[40:]
    assert "too early" in text(far)


def test_entries_that_are_links_are_bytes(good: File, tmp_path: Path, never: None) -> None:
    name, _ = code_of(good.path)
    target = b"/proc/self/exe"
    path = changed(good, tmp_path, lambda parts, _: parts.update({name: target}))
    parts = unpacked(path.read_bytes())
    with zipfile.ZipFile(path, "w") as archive:
        for each, data in parts.items():
            entry = zipfile.ZipInfo(each)
            entry.create_system = 3
            entry.external_attr = (0o120777 if each == name else 0o644) << 16
            archive.writestr(entry, data)
    with pytest.raises(ExportError, match="is no shared library"):
        load(path, native=True, trust=hashlib.sha256(target).hexdigest())


def test_code_for_another_machine(good: File, tmp_path: Path, never: None) -> None:
    def elsewhere(parts: dict[str, bytes], described: Any) -> None:
        described["native"][0]["target"] = "riscv64-linux"

    path = changed(good, tmp_path, elsewhere)
    with pytest.raises(ExportError, match="holds native code for riscv64-linux, and this machine"):
        load(path, native=True, trust=good.digest)
    exported().save(path)
    with pytest.raises(ExportError, match=r"holds no native code.*aot m\.gcx --into"):
        load(path, native=True, trust=good.digest)
    old = Path(__file__).parents[2] / "export_files" / "format_1" / "tied.gcx"
    with pytest.raises(ExportError, match="holds no native code"):
        load(old, native=True, trust=good.digest)


def test_code_of_another_program(good: File, tmp_path: Path) -> None:
    """Arguments that were renamed or moved do not reach code that knows them by other names."""
    def renamed(parts: dict[str, bytes], described: Any) -> None:
        described["positional"] = ["y"]

    def swapped(parts: dict[str, bytes], described: Any) -> None:
        pair = described["arguments"]["tuple"][1]["dict"][0][1]["dict"]
        pair.reverse()

    def other_results(parts: dict[str, bytes], described: Any) -> None:
        described["graphs"][0]["results"] = {"output": 0}

    def other_name(parts: dict[str, bytes], described: Any) -> None:
        name, code = code_of(good.path)
        del parts[name]
        parts["native/x86_64-linux/libother.so"] = code
        described["native"][0]["file"] = "native/x86_64-linux/libother.so"

    for change, text in (
        (renamed, "is of another program"), (swapped, "of another program"),
        (other_results, "is of another program"), (other_name, "has no function other_abi"),
    ):
        path = changed(good, tmp_path, change)
        with pytest.raises(ExportError, match=text):
            load(path, native=True, trust=good.digest)


def test_a_private_copy_cannot_be_written() -> None:
    import os

    for copied in (image.private_copy, image._unlinked):
        descriptor = copied(b"hashed")
        try:
            assert os.pread(descriptor, 100, 0) == b"hashed"
            with pytest.raises(OSError):
                os.write(descriptor, b"other")
            with pytest.raises(OSError):
                os.ftruncate(descriptor, 1)
            assert os.fstat(descriptor).st_nlink == 0
        finally:
            os.close(descriptor)
    with pytest.raises(OSError):
        sealed = image.private_copy(b"hashed")
        try:
            again = os.open(f"/proc/self/fd/{sealed}", os.O_RDWR)
            try:
                os.write(again, b"other")
            finally:
                os.close(again)
        finally:
            os.close(sealed)


def test_no_library_is_taken_for_another() -> None:
    """The loader knows libraries by the text of their paths, and numbers of descriptors repeat."""
    assert image._path(7) != image._path(7)
    assert Path(image._path(0)).resolve() == Path("/proc/self/fd/0").resolve()


def test_copies_without_files_in_memory(good: File, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any) -> int:
        raise OSError(1, "not permitted")

    monkeypatch.setattr(image.os, "memfd_create", refused)
    args, kwargs = arguments(2)
    program = load(good.path, native=True, trust=good.digest)
    same(program(*args, **kwargs), good.program(*args, **kwargs))


# --- the file -----------------------------------------------------------------------------------


def test_the_file_is_format_2_with_one_part_more(good: File, tmp_path: Path) -> None:
    name, code = code_of(good.path)
    described = json.loads(unpacked(good.path.read_bytes())["manifest.json"])
    assert described["format"] == 2 and list(described["parts"])[-1] == name
    assert name == "native/x86_64-linux/libmodel.so"
    digest = hashlib.sha256(code).hexdigest()
    assert digest == good.digest
    assert described["native"] == [{"target": "x86_64-linux", "file": name, "sha256": digest}]
    assert file(tmp_path).path.read_bytes() == good.path.read_bytes()
    exported().save(tmp_path / "plain.gcx")
    load(good.path).save(tmp_path / "again.gcx")
    assert (tmp_path / "again.gcx").read_bytes() == (tmp_path / "plain.gcx").read_bytes()


def test_what_has_no_code(tmp_path: Path) -> None:
    path = tmp_path / "m.gcx"
    with pytest.raises(ExportError, match="by NumPy"):
        export(lambda x: torch.fft.fft(x).real, (torch.rand(4),)).save(path, native=True)
    for targets, error, text in (
        (["z80"], ValueError, "no target 'z80'"), ("x86-64-v3", TypeError, "a list of names"),
    ):
        with pytest.raises(error, match=text):
            exported().save(path, targets=targets)
    weight = torch.rand(2)
    step = export_step(lambda x: weight.add_(x), (torch.rand(2),))
    with pytest.raises(ExportError, match=r"takes no native=.*aot\(step"):
        save(step, path, native=True)
    assert not path.exists()


# --- commands -----------------------------------------------------------------------------------


def test_verify(good: File, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(good.path), "--trust", good.digest]) == 0
    said = capsys.readouterr().out
    assert f"SHA-256 {good.digest}: run, as trusted" in said
    assert said.count("ok  ") == 3 and said.count("  native  ") == 1
    assert main(["verify", str(good.path), "--trust", "1" * 64]) == 2
    assert good.digest in capsys.readouterr().err
    assert main(["verify", str(good.path), "--trust", "x"]) == 2
    assert "64 hexadecimal" in capsys.readouterr().err


def test_verify_runs_no_native_code_by_itself(
    good: File, never: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(good.path)]) == 0
    said = capsys.readouterr().out
    assert f"SHA-256 {good.digest}: not run" in said and said.count("ok  ") == 2


def test_verify_finds_code_of_other_weights(
    good: File, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def other(parts: dict[str, bytes], described: Any) -> None:
        with torch.no_grad():
            program = load(good.path)
            program.state_dict["layer"].zero_()
        digests = program.save(tmp_path / "zero.gcx", native=True)
        name, code = code_of(tmp_path / "zero.gcx")
        parts[name] = code
        assert hashlib.sha256(code).hexdigest() in digests.values()

    path = changed(good, tmp_path, other)
    digest = hashlib.sha256(code_of(path)[1]).hexdigest()
    assert main(["verify", str(path), "--trust", digest]) == 1
    said = capsys.readouterr().out
    assert said.count("FAIL") == 1 and said.count("ok  ") == 2


def test_aot_into_a_file_and_predict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.gcx"
    program = export(lambda x: x * 2 + 1, (torch.rand(4),))
    program.save(path)
    assert main(["aot", str(path), "--into", str(path)]) == 0
    said = capsys.readouterr().out
    digest = said.split("SHA-256 ")[1].strip()
    assert digest == hashlib.sha256(code_of(path)[1]).hexdigest()
    np.save(tmp_path / "x.npy", np.arange(4, dtype=np.float32))
    out = tmp_path / "y.npy"
    command = ["predict", str(path), str(tmp_path / "x.npy"), "--out", str(out), "--trust"]
    assert main([*command, "0" * 64]) == 2 and not out.exists()
    assert digest in capsys.readouterr().err
    called: list[str] = []
    opened = ctypes.CDLL
    monkeypatch.setattr(image.ctypes, "CDLL", lambda name: called.append(name) or opened(name))
    assert main([*command, digest]) == 0
    assert np.load(out).tolist() == [1, 3, 5, 7] and len(called) == 1
    assert main(["aot", str(path), "--into", str(path), "--static"]) == 2
    assert "--into takes no --name" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["aot", str(path), "--into", str(path), "--out", str(tmp_path)])
