"""The page in a real browser: no errors, tables sort, rows open, code is unpacked, pictures move.

Chromium is asked for the page's own account of it: a script that is added behind the page's clicks
through it, and leaves what it saw in an attribute. Skipped by name where there is no Chromium.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from tests.inspect.pages import long_chain

pytestmark = pytest.mark.slow

_WATCH = """<script>
window.seen = [];
addEventListener("error", (event) => seen.push(`error: ${event.message}`));
addEventListener("unhandledrejection", (event) => seen.push(`rejected: ${event.reason}`));
addEventListener("securitypolicyviolation", (event) => seen.push(`policy: ${event.blockedURI}`));
for (const kind of ["error", "warn"]) console[kind] = (...what) => seen.push(`${kind}: ${what}`);
</script>"""

_CLICK = """<script>
(async () => {
  const found = { errors: seen };
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  try {
    const table = document.querySelector("#part-0").parentElement.querySelector("table.sortable");
    const names = () => [...table.tBodies].map((body) => body.id);
    found.before = names();
    const titles = [...table.tHead.rows[0].cells].map((th) => th.textContent);
    const time = titles.includes("time") ? titles.indexOf("time") : titles.indexOf("writes");
    table.tHead.rows[0].cells[time].querySelector("button").click();
    found.times = [...table.tBodies].map(
      (body) => Number(body.rows[0].cells[time].querySelector("data").value));
    found.sorted = table.tHead.rows[0].cells[time].getAttribute("aria-sort");
    table.tHead.rows[0].cells[0].querySelector("button").click();
    table.tHead.rows[0].cells[0].querySelector("button").click();
    found.after = names();
    const more = [...document.querySelectorAll("tr.more")];
    found.closed = more.every((row) => getComputedStyle(row).display === "none");
    const opens = document.querySelector("#p0-s0 button.opens");
    opens.focus();
    opens.click();
    found.expanded = opens.getAttribute("aria-expanded");
    const row = document.getElementById(opens.getAttribute("aria-controls"));
    found.visible = getComputedStyle(row).display !== "none";
    found.kernel = row.querySelector("[data-kernel] pre")?.textContent ?? "";
    const code = row.querySelector("details[data-packed]");
    if (code) code.open = true;
    await wait(300);
    found.code = code?.querySelector("pre").textContent;
    const box = document.querySelector(".picture"), svg = box.querySelector("svg");
    found.view = svg.getAttribute("viewBox");
    box.dispatchEvent(new KeyboardEvent("keydown", { key: "+", bubbles: true }));
    found.zoomed = svg.getAttribute("viewBox");
    box.previousElementSibling.querySelector("[data-does=start]").click();
    found.again = svg.getAttribute("viewBox");
    const link = svg.querySelector("a[href='#p0-s1']"); // none where steps are counted by kind
    found.linked = Boolean(link);
    location.hash = "#p0-s1";
    await wait(200);
    found.arrived = document.querySelector("#p0-s1-more").classList.contains("open");
    found.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
    found.height = box.clientHeight;
  } catch (error) {
    found.errors.push(`test: ${error.stack}`);
  }
  document.documentElement.dataset.found = JSON.stringify(found);
})();
</script>"""


@pytest.fixture(scope="module")
def chromium() -> str:
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"needs a browser: one of {', '.join(names)}")
    return found


def browse(chromium: str, page: Path, *options: str) -> str:
    done = subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         f"--user-data-dir={page.parent / 'profile'}", "--virtual-time-budget=8000",
         "--window-size=1300,900", *options, page.as_uri()],
        capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def clicked(chromium: str, page: Path) -> dict[str, Any]:
    text = page.read_text(encoding="utf-8")
    watched = page.with_name("watched.html")
    watched.write_text(
        text.replace("<style>", f"{_WATCH}<style>", 1).replace("</body>", f"{_CLICK}</body>"),
        encoding="utf-8",
    )
    dom = browse(chromium, watched, "--dump-dom")
    found = re.search(r'<html[^>]*data-found="([^"]*)"', dom)
    assert found is not None, dom[:2000]
    result: dict[str, Any] = json.loads(html.unescape(found[1]))
    return result


def training(x: Any) -> Any:
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)
    )
    optimizer = torch.optim.Adam(net.parameters())

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return torch.explain(step, x, torch.zeros(x.shape[0], dtype=torch.int64))


def test_clicking_through_a_page(chromium: str, tmp_path: Path) -> None:
    page = tmp_path / "step.html"
    training(torch.randn(16, 1, 8, 8)).save_html(page)
    found = clicked(chromium, page)
    assert found["errors"] == []
    assert found["sorted"] == "descending"
    assert found["times"] == sorted(found["times"], reverse=True)
    assert found["before"] == found["after"] and len(found["after"]) > 5
    assert found["closed"] and found["visible"] and found["expanded"] == "true"
    assert "kernel " in found["kernel"] and "define" in found["code"]
    assert found["view"] != found["zoomed"] and found["again"] == found["view"]
    assert found["arrived"] and found["linked"]
    assert found["wide"] <= 0, "the page is wider than its window"
    assert found["height"] > 100
    shot = tmp_path / "shot.png"
    browse(chromium, page, f"--screenshot={shot}")
    assert shot.stat().st_size > 20_000


def test_a_large_page_opens(chromium: str, tmp_path: Path) -> None:
    page = tmp_path / "deep.html"
    chain = torch.compile(long_chain(2400), backend="numpy")
    torch.explain(chain, torch.ones(8, 8)).save_html(page)
    assert 800_000 < page.stat().st_size < 6_000_000
    found = clicked(chromium, page)
    assert found["errors"] == [] and found["arrived"]
