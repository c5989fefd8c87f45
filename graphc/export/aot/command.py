"""`python -m graphc aot m.gcx --out DIR`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from graphc.export import load
from graphc.export.aot.library import aot
from graphc.export.aot.linking import LinkError
from graphc.export.errors import ExportError
from graphc.export.program import ExportedProgram
from graphc.export.steps import ExportedStep


def add(commands: Any) -> None:
    """The subcommand."""
    command = commands.add_parser(
        "aot", help="make a library of an exported model or training step, which needs no Python",
        description="Write libNAME.so and NAME.h: C functions that need libc, libm and threads. "
        "Or, with --into, the model's file with such libraries in it.",
    )
    command.add_argument("model", type=Path, help="a .gcx file")
    where = command.add_mutually_exclusive_group()
    where.add_argument("--out", type=Path, default=Path("."), help="folder; default: %(default)s")
    where.add_argument(
        "--into", type=Path, metavar="FILE",
        help="a .gcx file to be written (the model's own, too): the model with machine code for "
        "each target, in place of what it held of that. graphc.export.load(FILE, native=True, "
        "trust=SHA256) and `predict --trust` run it, for those who know the SHA-256 printed here",
    )
    command.add_argument("--name", help="what its functions begin with; default: the model's")
    command.add_argument(
        "--target", action="append", dest="targets", metavar="CPU",
        help="a kind of CPU, such as x86-64-v3; several times for several; default: native. Or "
        "wasm32: NAME.wasm and NAME.mjs, for browsers",
    )
    command.add_argument(
        "--size", action="append", default=[], type=_size, dest="sizes", metavar="NAME=MOST",
        help="the largest value of a free size",
    )
    command.add_argument(
        "--weights", choices=("embedded", "file"), default="embedded", help="default: %(default)s"
    )
    command.add_argument("--static", action="store_true", help="write libNAME.a")
    command.add_argument(
        "--no-freeze", action="store_false", dest="freeze",
        help="leave weights as they are: results are the program's to the bit",
    )
    command.set_defaults(run=run)


def _size(text: str) -> tuple[str, int]:
    name, sign, most = text.partition("=")
    if not sign or not most.isdigit():
        raise argparse.ArgumentTypeError(f"expected NAME=MOST, got {text!r}")
    return name, int(most)


def run(args: argparse.Namespace) -> int:
    """Make the library, and say what was written."""
    try:
        program = load(args.model)
        if args.into is not None:
            if isinstance(program, ExportedStep):
                raise ExportError(
                    f"{args.model} is a training step, and files hold code of models alone. "
                    "Cure: --out DIR, a library beside the file"
                )
            return _into(args, program)
        made = aot(
            program, args.out, name=args.name, weights=args.weights, static=args.static,
            targets=args.targets or ("native",), sizes=dict(args.sizes), freeze=args.freeze,
        )
    except (ExportError, LinkError, ValueError, OSError) as error:
        print(f"graphc aot: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    for path in made:
        if path is not None:
            print(f"{path}: {path.stat().st_size:,} bytes")
    return 0


def _into(args: argparse.Namespace, program: ExportedProgram) -> int:
    if args.name is not None or args.static or args.weights != "embedded":
        raise ValueError("--into takes no --name, --static or --weights: a file holds shared "
                         "libraries that hold their weights")
    digests = program.save(
        args.into, targets=args.targets or ("native",), sizes=dict(args.sizes), freeze=args.freeze
    )
    print(f"{args.into}: {args.into.stat().st_size:,} bytes")
    for target, digest in digests.items():
        print(f"native code for {target}: SHA-256 {digest}")
    return 0
