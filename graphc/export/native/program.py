"""A program of an archive, run by machine code that the archive brings and the caller trusts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from graphc.export import archive, containers
from graphc.export.contents import Native
from graphc.export.errors import ExportError
from graphc.export.limits import DEFAULT, Limits
from graphc.export.native.functions import Functions, Port
from graphc.export.native.image import Image, machine
from graphc.export.native.model import NativeModel
from graphc.export.signature import Signature, tensor_type
from graphc.ir.dim import is_variable

_DIGEST = re.compile(r"[0-9a-f]{64}")


class NativeProgram:
    """An exported program as machine code, called as the program is: with its arguments, by
    position or by name, in its containers. Arguments and results are as NativeModel's, which
    `model` is; a number or a text that the export had is repeated. A result that is an argument is
    a copy of it. `digest` is the SHA-256 of the code."""

    def __init__(self, model: NativeModel, signature: Signature, digest: str) -> None:
        self.model, self.signature, self.digest = model, signature, digest
        _check_fit(model, signature)

    def __repr__(self) -> str:
        paths = ", ".join(self.signature.leaf_paths())
        return f"NativeProgram({paths}; {self.model.cpu}, {self.digest[:12]})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The model's results. Raises TypeError or ValueError for arguments unlike the example."""
        leaf = self.signature.leaf
        inputs: list[Any] = []
        for spec, value, path in self.signature.matched(args, kwargs):
            if "value" in spec:
                leaf(spec, value, path)
            else:
                inputs.append(value)
        found = iter(self.model.compute(inputs))

        def result(spec: Any) -> Any:
            if "value" in spec:
                return spec["value"]
            tensor = next(found)
            return int(tensor._graphc_array) if "size" in spec else tensor

        return containers.build(self.signature.results, result)


def _check_fit(model: NativeModel, signature: Signature) -> None:
    """Raise ExportError unless the code takes and gives what the manifest says, by the same names:
    those of the code are hashed."""
    inputs = [each for each in signature.named_arguments() if "value" not in each[1]]
    outputs = [
        name for name, leaf in containers.named(signature.results, "result")
        if "value" not in leaf
    ]
    fits = len(inputs) == len(model.inputs) and all(map(_same, inputs, model.inputs))
    if not fits or outputs != [port.name for port in model.outputs]:
        where = model._functions.image.where
        raise ExportError(
            f"{where} is of another program than the manifest's. Cure: export the model again, "
            "or fetch the file again"
        )


def _same(named: tuple[str, Any], port: Port) -> bool:
    name, spec = named
    type_ = tensor_type(spec)
    shape = tuple(
        size if isinstance(size, int) else str(size) if is_variable(size) else None
        for size in type_.shape
    )
    return (name, type_.dtype, shape) == (port.name, port.dtype, port.shape)


def digests(trust: str | Iterable[str]) -> frozenset[str]:
    """SHA-256 of code that may run, as texts. Raises ValueError for other texts."""
    given = [trust] if isinstance(trust, str) else list(trust)
    found = {each.strip().lower().removeprefix("sha256:") for each in given}
    wrong = [each for each in found if not _DIGEST.fullmatch(each)]
    if wrong or not found:
        raise ValueError(
            f"trust must be the SHA-256 of native code, 64 hexadecimal digits, got {wrong or trust}"
        )
    return frozenset(found)


def load_native(
    path: str | os.PathLike[str] | BinaryIO, trust: str | Iterable[str] | None, *,
    threads: int = 1, limits: Limits = DEFAULT,
) -> NativeProgram:
    """The program of a file, run by the file's code for this machine, if its SHA-256 is among
    `trust`. Raises ExportError where it is not, where there is none, or where it cannot be loaded,
    OSError for a file that cannot be opened."""
    trusted = frozenset[str]() if trust is None else digests(trust)
    name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else "the file"
    here = machine()
    signature, parts = archive.read_native(path, limits, here)
    part = next((each for each in parts if each.target == here), None)
    if part is None:
        raise ExportError(_no_code(str(name), parts, here))
    if part.sha256 not in trusted:
        raise ExportError(_no_trust(str(name), part, trusted))
    called = Path(part.file).name
    if not re.fullmatch(r"lib[a-zA-Z]\w*\.so", called, re.ASCII):
        raise ExportError(f"{name}: {part.file} is not called libNAME.so")
    # what was hashed, and nothing else: its bytes come from memory
    image = Image.of_bytes(part.content, f"{name}: {part.file}")
    options = {"threads": threads, "cpu": None, "weights": None, "sizes": None}
    model = NativeModel(Functions(image, called[3:-3]), options)
    return NativeProgram(model, signature, part.sha256)


def _no_code(name: str, parts: Sequence[Native], here: str) -> str:
    held = ", ".join(each.target for each in parts)
    return (
        f"{name} holds {f'native code for {held}' if held else 'no native code'}, and this machine "
        f"is {here}. Cure: load(path), which compiles it here; or put code for this machine in: "
        "python -m graphc aot m.gcx --into m.gcx"
    )


def _no_trust(name: str, part: Native, trusted: Iterable[str]) -> str:
    given = f", and trust has {', '.join(sorted(trusted))}" if trusted else ""
    return (
        f"{name} holds machine code ({part.file}), which can do anything that you can do, and it "
        f"was not run: its SHA-256 is {part.sha256}{given}. Cure: if whoever made the file told "
        "you this digest by a way that you trust, load(path, native=True, "
        f"trust={part.sha256!r}); else load(path), which runs none of it"
    )
