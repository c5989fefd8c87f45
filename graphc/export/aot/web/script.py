"""NAME.mjs: what a model takes and gives, and the loader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from graphc.backends.host.interface import ABI, CODES, DTYPES, Entry, Interface

_LOADER = Path(__file__).with_name("loader.mjs")


def script(interface: Interface, module: str, weights: str | None) -> str:
    """The text. `module` and `weights`: the names of the files beside it."""
    step = interface.step
    model = {
        "name": interface.name, "abi": ABI, "wasm": module, "weights": weights,
        "step": step is not None, "codes": CODES, "dtypes": DTYPES,
        "inputs": [_entry(each) for each in interface.inputs],
        "outputs": [_entry(each) for each in interface.outputs],
        "states": [] if step is None else [_entry(each.entry) for each in step.states],
        "sizes": [
            {"name": each.name, "least": each.least, "most": each.most} for each in interface.sizes
        ],
    }
    # escaped so that the script may also stand in a page
    told = json.dumps(model, indent=1).replace("<", "\\u003c").replace(">", "\\u003e")
    return f"// {module}, made by graphc.\nconst MODEL = {told};\n\n{_LOADER.read_text()}"


def _entry(entry: Entry) -> dict[str, Any]:
    shape = [size if isinstance(size, int) else str(size) for size in entry.shape]
    return {"name": entry.name, "dtype": entry.dtype.name, "shape": shape}
