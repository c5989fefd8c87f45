"""`python -m tests.onnx`: onnx's backend tests by graphc.onnx.load; how many pass of each kind.

    python -m tests.onnx --only lstm --verbose
    python -m tests.onnx --compiled --kind simple

Exit status 1 where a case ends otherwise than expected.py says.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from tests.onnx import suite
from tests.onnx.expected import why


def main() -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.onnx", description=__doc__)
    parser.add_argument("--only", default="", help="a regular expression on the cases' names")
    parser.add_argument("--kind", action="append", help="node, simple, pytorch-..., real")
    parser.add_argument("--compiled", action="store_true", help="by graphc.compile")
    parser.add_argument("--verbose", action="store_true", help="print how each ends")
    parser.add_argument("--save", type=Path, help="write the outcomes as JSON lines")
    options = parser.parse_args()
    outcomes, status = [], 0
    for case in suite.cases(tuple(options.kind or suite.KINDS_OF_TESTS)):
        if not re.search(options.only, case.name):
            continue
        found = suite.run(case, options.compiled)
        outcomes.append(found)
        expected = why(case.name)
        surprise = (found.status in ("refused", "failed")) != (expected is not None)
        status |= surprise
        if options.verbose or surprise:
            print(f"{'!' if surprise else ' '} {found.status:8} {found.name}: {found.text}")
    print(suite.report(outcomes))
    if options.save:
        suite.saved(outcomes, options.save)
    return status


if __name__ == "__main__":
    sys.exit(main())
