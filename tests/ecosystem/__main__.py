"""`python -m tests.ecosystem [NAME ...]`: run rows of the matrix, and write docs/ecosystem.md.

Without names, all. Exit status 1 where one differs or stops.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.ecosystem import matrix, page, venvs


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    known = matrix.rows()
    parser = argparse.ArgumentParser(prog="python -m tests.ecosystem", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    parser.add_argument("--no-page", action="store_true", help="leave docs/ecosystem.md alone")
    parser.add_argument("--verbose", action="store_true", help="print all that was compared")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"no row is called {', '.join(unknown)}; there are {', '.join(known)}")
    outcomes: dict[str, matrix.Result | matrix.Failed] = {}
    for name in options.names or known:
        begun = time.perf_counter()
        try:
            outcomes[name] = run(known[name], options.verbose)
        except venvs.Unreachable as error:
            print(f"{name}: not run, no registry: {error}")
            continue
        except matrix.Failed as error:
            print(f"{name}: stops\n{error}")
            outcomes[name] = error
        print(f"{name}: {time.perf_counter() - begun:.0f} s", flush=True)
    if not options.no_page:
        page.update(page.PAGE, outcomes, known)
    wrong = [x for x in outcomes.values() if isinstance(x, matrix.Failed) or x.wrong]
    return 1 if wrong else 0


def run(row: matrix.Row, verbose: bool) -> matrix.Result:
    """Run a row, and print what came of it."""
    with tempfile.TemporaryDirectory(prefix="graphc-ecosystem-") as folder:
        result = matrix.run(row, Path(folder))
    for finding in result.findings if verbose else result.wrong:
        print(f"  {'DIFFERS ' if finding.wrong else ''}{finding}")
    for side, told in result.own.items():
        for what, value in told.items():
            print(f"  {side}: {what}: {str(value)[:300]}")
    return result


if __name__ == "__main__":
    sys.exit(main())
