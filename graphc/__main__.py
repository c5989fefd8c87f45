"""`python -m graphc COMMAND`: run, explain, shim, demo, predict, verify, aot, serve, config..."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphc import cache_command, config, demo, doctor, empty, explain_command, predict
from graphc.export import verifying
from graphc.export.aot import command as aot_command
from graphc.serve import command as serve_command

_RUN_USAGE = "python -m graphc run [--eager | --compile] [-m] SCRIPT [ARGUMENTS ...]"
_RUN = """Run a script (or a module) in which `import torch` finds graphc. Without --eager or
--compile, what the script compiles by torch.compile() is compiled."""
_SHIM = """Stand-ins: small distributions called torch and torchvision, made here and installed by
this environment's own pip, without an index. Every program of the environment (notebooks, pytest,
workers, commands) then finds graphc by `import torch`, and pip has no PyTorch to download. Refused
outside of virtual environments, and where another torch is installed."""
_EXPLAIN_USAGE = (
    "python -m graphc explain [--out FOLDER] [--eager | --compile] [-m] SCRIPT [ARGUMENTS ...]"
)
_EXPLAIN = """Run a script as `run` does, then write FOLDER/NAME.html for each function that it has
compiled: its graphs, kernels with their times, memory, versions, guards."""


def parser() -> argparse.ArgumentParser:
    """The command line; each subcommand's `run` takes the parsed arguments."""
    top = argparse.ArgumentParser(prog="python -m graphc", description="graph-compiling PyTorch")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

    script = commands.add_parser(
        "run", help="run a PyTorch script unchanged", usage=_RUN_USAGE,
        formatter_class=argparse.RawDescriptionHelpFormatter, description=_RUN,
    )
    _takes_a_script(script)
    script.set_defaults(run=_run_script)

    pages = commands.add_parser(
        "explain", help="run a script, and write a page about each function that it compiled",
        usage=_EXPLAIN_USAGE, formatter_class=argparse.RawDescriptionHelpFormatter,
        description=_EXPLAIN,
    )
    pages.add_argument("--out", type=Path, default=Path("explained"), help="folder of the pages; "
                       "default: %(default)s")
    _takes_a_script(pages)
    pages.set_defaults(run=lambda args: explain_command.main(
        args.mode, args.module, args.script, args.arguments, args.out
    ))

    _add_shim(commands)

    show = commands.add_parser("demo", help="train a convolutional network on real digits")
    show.add_argument("--epochs", type=_positive, default=demo.EPOCHS, help="default: %(default)s")
    show.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    show.add_argument(
        "--out", type=Path, default=Path("demo_out"), help="folder for what it writes"
    )
    show.add_argument(
        "--device", type=_device, default="cpu", help="cpu, or cuda; default: %(default)s"
    )
    show.set_defaults(run=lambda args: demo.main(args.epochs, args.seed, args.out, args.device))

    run = commands.add_parser("predict", help="run an exported model on .npy files")
    run.add_argument("model", type=Path, help="a .gcx file")
    run.add_argument("inputs", type=Path, nargs="+", help="one .npy file per argument of the model")
    run.add_argument(
        "--out", type=Path, default=Path("outputs.npy"),
        help="a .npy or .csv file; default: %(default)s",
    )
    _takes_trust(run)
    run.set_defaults(run=lambda args: predict.main(args.model, args.inputs, args.out, args.trust))

    check = commands.add_parser("verify", help="run an exported model's recorded calls, by the "
                                "reference interpreter and by code compiled here")
    check.add_argument("model", type=Path, help="a .gcx file")
    _takes_trust(check)
    check.set_defaults(run=lambda args: verifying.main(args.model, args.trust))

    aot_command.add(commands)
    serve_command.add(commands)

    switches = commands.add_parser("config", help="the GRAPHC_* switches and their values")
    switches.set_defaults(run=lambda args: _show_config())

    kept = commands.add_parser("cache", help="what earlier processes have compiled and kept")
    kept.add_argument("action", choices=list(cache_command.ACTIONS), help="; ".join(
        f"{name}: {meaning}" for name, meaning in cache_command.ACTIONS.items()
    ))
    kept.set_defaults(run=lambda args: cache_command.main(args.action))

    health = commands.add_parser(
        "doctor", help="what graphc finds on this machine, what it misses, and the cures"
    )
    health.set_defaults(run=lambda args: doctor.main())
    return top


def _takes_trust(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--trust", action="append", default=[], metavar="SHA256",
        help="run the machine code in the file that has this SHA-256, as whoever made it told you; "
        "it can do anything that you can do. Without it, none of the file is run",
    )


def _add_shim(commands: Any) -> None:
    shim = commands.add_parser(
        "shim", help="let `import torch` find graphc in a virtual environment", description=_SHIM,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = shim.add_subparsers(title="actions", required=True, metavar="ACTION")
    install = actions.add_parser("install", help="install the stand-in for torch")
    install.add_argument(
        "--torchvision", action=argparse.BooleanOptionalAction,
        help="answer to torchvision, too; default: where none is installed",
    )
    install.set_defaults(run=lambda args: _shim("install", args.torchvision))
    remove = actions.add_parser("remove", help="remove what `install` installed")
    remove.set_defaults(run=lambda args: _shim("remove"))
    check = actions.add_parser(
        "check", help="say what would bring PyTorch itself: installed, or given"
    )
    check.add_argument("requirements", nargs="*", help="what you want to install, as for pip")
    check.set_defaults(run=lambda args: _shim("check", args.requirements))


def _shim(action: str, *arguments: Any) -> int:
    # it starts other processes and reads metadata: nothing for the other commands
    command = importlib.import_module("graphc.shim.command")
    return int(command.main(lambda: getattr(command, action)(*arguments)))


def _takes_a_script(script: argparse.ArgumentParser) -> None:
    """How a script is named, and run."""
    mode = script.add_mutually_exclusive_group()
    for name, meaning in (
        ("eager", "torch.compile() in the script does nothing"),
        ("compile", "calls of Modules, losses, steps, functions called often are compiled"),
    ):
        mode.add_argument(
            f"--{name}", dest="mode", action="store_const", const=name, help=meaning
        )
    script.add_argument("-m", dest="module", action="store_true", help="SCRIPT names a module")
    script.add_argument("script", help="a Python file, or a module's name after -m")
    own = script.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own")
    own.required = False  # else it is named where the script is missing
    script.set_defaults(mode="as_written")


def _device(text: str) -> str:
    """A device that tensors may lie on."""
    try:
        empty(0, device=text)
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(str(error).split("\n")[0]) from None
    return text


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {number}")
    return number


def _run_script(args: argparse.Namespace) -> int:
    # it imports all of graphc.nn, which the other commands need not wait for
    main = importlib.import_module("graphc.compat.run").main
    return int(main(args.mode, args.module, args.script, args.arguments))


def _show_config() -> None:
    print(config.table(), "\n\nIn force now:")
    for name, value in config.current()._asdict().items():
        print(f"  {name} = {value}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    args = parser().parse_args(arguments)
    if hasattr(args, "script"):  # whose own errors are its own
        return args.run(args) or 0
    try:
        status = args.run(args) or 0
        sys.stdout.flush()
    except BrokenPipeError:  # | head: who reads has seen enough, and nothing is to be written
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
