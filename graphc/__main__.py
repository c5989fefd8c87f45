"""`python -m graphc COMMAND`: run, demo, predict, serve, config, cache, doctor."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from graphc import cache_command, config, demo, doctor, empty, predict
from graphc.serve import command as serve_command

_RUN_USAGE = "python -m graphc run [--eager | --compile] [-m] SCRIPT [ARGUMENTS ...]"
_RUN = """Run a script (or a module) in which `import torch` finds graphc. Without --eager or
--compile, what the script compiles by torch.compile() is compiled."""


def parser() -> argparse.ArgumentParser:
    """The command line; each subcommand's `run` takes the parsed arguments."""
    top = argparse.ArgumentParser(prog="python -m graphc", description="graph-compiling PyTorch")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

    script = commands.add_parser(
        "run", help="run a PyTorch script unchanged", usage=_RUN_USAGE,
        formatter_class=argparse.RawDescriptionHelpFormatter, description=_RUN,
    )
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
    script.set_defaults(run=_run_script, mode="as_written")

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
    run.set_defaults(run=lambda args: predict.main(args.model, args.inputs, args.out))

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
    return args.run(args) or 0


if __name__ == "__main__":
    sys.exit(main())
