"""einops' own test suite, as its wheel has it, for NumPy and torch."""

import os
import subprocess
import sys
from xml.etree import ElementTree

import einops.tests
from told import own, tell

folder = os.path.dirname(einops.tests.__file__)
done = subprocess.run(
    [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=suite.xml", folder],
    env={**os.environ, "EINOPS_TEST_BACKENDS": "numpy,torch"}, capture_output=True, text=True,
)
if not os.path.exists("suite.xml"):
    raise SystemExit(done.stdout[-3000:] + done.stderr[-3000:])
outcomes = {}
for case in ElementTree.parse("suite.xml").iter("testcase"):
    kinds = [part.tag for part in case if part.tag in ("failure", "error", "skipped")]
    outcomes[f"{case.get('classname').rpartition('.')[2]}.{case.get('name')}"] = kinds[0] if kinds else "passed"
counts = {kind: list(outcomes.values()).count(kind) for kind in sorted(set(outcomes.values()))}
own("tests", counts)
own("not passed", {name: kind for name, kind in outcomes.items() if kind in ("failure", "error")})
tell("tests", outcomes)
