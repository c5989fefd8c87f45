"""The command's line: `python -m graphc serve m.gcx [name=path[@version] ...]`."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from pathlib import Path
from typing import Any

from graphc.serve.settings import Settings

_NEEDED = ("starlette", "uvicorn", "httptools", "prometheus_client")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SHORTEST_TOKEN = 16  # characters
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z")
_DEFAULTS = Settings()


def add(commands: Any) -> None:
    """Add `serve` to the commands of `python -m graphc`."""
    serve = commands.add_parser(
        "serve", help="answer requests with exported models (HTTP)",
        description="Serve exported models over HTTP: the Open Inference Protocol v2, and "
        "TorchServe's /predictions. See docs/serve.md.",
    )
    serve.add_argument(
        "models", nargs="*", type=model, metavar="[NAME=]FILE[@VERSION]",
        help="a .gcx file; NAME: that of the file, VERSION: 1",
    )
    _add_place(serve)
    _add_batches(serve)
    _add_limits(serve)
    serve.set_defaults(run=run)


def _add_place(serve: argparse.ArgumentParser) -> None:
    serve.add_argument("--host", default=_DEFAULTS.host, help="default: %(default)s")
    serve.add_argument("--port", type=int, default=_DEFAULTS.port, help="default: %(default)s")
    serve.add_argument(
        "--models", dest="folder", type=Path, metavar="FOLDER",
        help="serve each NAME.gcx and NAME@VERSION.gcx of a folder, too",
    )
    serve.add_argument(
        "--token-file", type=Path, metavar="FILE",
        help="who sends the token in FILE may load models from FOLDER, and unload them; without "
        "it nobody may",
    )
    serve.add_argument("--quiet", action="store_true", help="no line of log for each request")


def _add_batches(serve: argparse.ArgumentParser) -> None:
    serve.add_argument(
        "--max-batch", type=_count, default=_DEFAULTS.max_batch, metavar="ROWS",
        help="compute requests together, up to so many rows, where the model's rows are proven "
        "independent; default: %(default)s",
    )
    serve.add_argument(
        "--max-delay", type=_number, default=_DEFAULTS.max_delay * 1e3, metavar="MS",
        help="milliseconds that a request waits for others; default: %(default)s, which computes "
        "together what came during the call before",
    )
    serve.add_argument(
        "--exact", action="store_true",
        help="compute each request by itself: its bits then never hang on the others'",
    )


def _add_limits(serve: argparse.ArgumentParser) -> None:
    for name, meaning in (
        ("body", "of one request's body, unpacked"), ("json", "of JSON in it"),
        ("memory", "of all bodies at a time"),
    ):
        serve.add_argument(
            f"--max-{name}", type=_size, default=getattr(_DEFAULTS, f"max_{name}"),
            metavar="BYTES", help=f"{meaning}, as 64M; default: {_shown(name)}",
        )
    serve.add_argument(
        "--max-queue", type=_count, default=_DEFAULTS.max_queue, metavar="REQUESTS",
        help="that wait for one model; default: %(default)s",
    )
    serve.add_argument(
        "--max-concurrency", type=_count, default=_DEFAULTS.max_concurrency, metavar="REQUESTS",
        help="that are there at a time; default: %(default)s",
    )
    serve.add_argument(
        "--linger", type=_number, default=_DEFAULTS.linger, metavar="SECONDS",
        help="from SIGTERM, when readiness goes false, to the last new connection; "
        "default: %(default)s",
    )
    serve.add_argument(
        "--drain", type=_number, default=_DEFAULTS.drain, metavar="SECONDS",
        help="that accepted requests then have to be answered; default: %(default)s",
    )


def _shown(name: str) -> str:
    return f"{getattr(_DEFAULTS, f'max_{name}') >> 20}M"


def model(text: str) -> tuple[Path, str, str]:
    """(file, name, version) of one argument."""
    rest, name, version = text, "", "1"
    left, equals, right = text.partition("=")
    if equals and _NAME.match(left) and not Path(text).exists():
        name, rest = left, right
    front, at, last = rest.rpartition("@")
    if at and _NAME.match(last) and not Path(rest).exists():
        rest, version = front, last
    path = Path(rest)
    own, at, its_version = path.name.removesuffix(".gcx").partition("@")
    return path, name or own, its_version if at and rest == text else version


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {number}")
    return number


def _number(text: str) -> float:
    number = float(text)
    if not 0 <= number < 1e6:
        raise argparse.ArgumentTypeError(f"expected a number from 0 on, got {text}")
    return number


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)", text.upper())
    if not match or not int(match[1]):
        raise argparse.ArgumentTypeError(f"expected a number of bytes such as 64M, got {text!r}")
    return int(match[1]) * _UNITS[match[2]]


def _token(path: Path | None) -> str:
    """The token in a file. Raises ValueError for none that is worth the name."""
    if path is None:
        return ""
    token = path.read_text().strip()
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise ValueError(
            f"{path} must hold a token of at least {_SHORTEST_TOKEN} printable characters. Cure: "
            f'python -c "import secrets; print(secrets.token_urlsafe())" > {path}'
        )
    return token


def run(args: argparse.Namespace) -> int:
    """Serve until a signal; returns the exit status: 2 where something given is wrong."""
    try:
        settings = _settings(args)
    except (OSError, ValueError) as error:
        print(f"graphc serve: {error}", file=sys.stderr)
        return 2
    try:
        main = importlib.import_module("graphc.serve.server").main
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        print(f"graphc serve needs {error.name}. Cure: pip install 'graphc-compiler[serve]'",
              file=sys.stderr)
        return 2
    return int(main(settings, args.models))


def _settings(args: argparse.Namespace) -> Settings:
    if not args.models and args.folder is None:
        raise ValueError("there is nothing to serve. Cure: name a .gcx file, or --models FOLDER")
    if args.folder is not None and not args.folder.is_dir():
        raise ValueError(f"--models {args.folder} is no folder")
    if args.token_file is not None and args.folder is None:
        raise ValueError("--token-file is for loading models from --models FOLDER")
    return Settings(
        host=args.host, port=args.port, max_body=args.max_body, max_json=args.max_json,
        max_memory=args.max_memory, max_concurrency=args.max_concurrency,
        max_queue=args.max_queue, max_batch=args.max_batch, max_delay=args.max_delay / 1e3,
        exact=args.exact, linger=args.linger, drain=args.drain, folder=args.folder,
        token=_token(args.token_file), log_requests=not args.quiet,
    )
