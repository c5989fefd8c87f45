"""`python -m graphc explain`: a script runs as ever, and its compiled functions get pages."""

import os
import subprocess
import sys
from pathlib import Path

from tests.inspect.pages import checked

SCRIPT = """
import sys
import torch

def main():
    @torch.compile
    def twice(x):
        return x * 2

    @torch.compile
    def never(x):
        return x

    print("said", float(twice(torch.ones(3)).sum()), sys.argv[1])

main()
raise SystemExit(3)
"""


def test_a_script_and_its_pages(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "graphc", "explain", "--out", "pages", "script.py", "--own"],
        cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(repository)},
    )
    assert done.returncode == 3, done.stderr
    assert done.stdout == "said 6.0 --own\n"
    assert [path.name for path in (tmp_path / "pages").iterdir()] == ["twice.html"]
    page = checked((tmp_path / "pages" / "twice.html").read_text(encoding="utf-8"))
    assert "return x * 2" in page.text and "on made-up numbers" in page.text
    assert f"twice(): {Path('pages') / 'twice.html'}" in done.stderr
