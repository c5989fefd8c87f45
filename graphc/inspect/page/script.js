// Tables that sort, rows that open, pictures that move, code that is unpacked when it is looked at.
// Without it the page shows all of this at once, but for the code.
(() => {
  "use strict";
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // --- tables ------------------------------------------------------------------------------------

  const valueOf = (cell) => {
    const data = cell?.querySelector("data");
    return data ? Number(data.value) : (cell?.textContent ?? "").trim();
  };

  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a === "number") return 1;
    if (typeof b === "number") return -1;
    return a.localeCompare(b, undefined, { numeric: true });
  };

  const sort = (table, column, th) => {
    const several = Boolean(table.querySelector("tbody.step"));
    const items = several ? [...table.tBodies] : [...table.tBodies[0].rows];
    const keyed = items.map((item) => [valueOf((several ? item.rows[0] : item).cells[column]), item]);
    const before = th.getAttribute("aria-sort");
    // the largest numbers first, texts from A on
    const down = before ? before === "ascending" : keyed.some(([value]) => typeof value === "number");
    all("thead th", table).forEach((other) => other.removeAttribute("aria-sort"));
    th.setAttribute("aria-sort", down ? "descending" : "ascending");
    keyed.sort((a, b) => compare(a[0], b[0]) * (down ? -1 : 1));
    const parent = several ? table : table.tBodies[0];
    keyed.forEach(([, item]) => parent.append(item));
  };

  for (const table of all("table.sortable")) {
    all("thead th", table).forEach((th, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...th.childNodes);
      th.append(button);
      button.addEventListener("click", () => sort(table, column, th));
    });
  }

  // --- rows that open ----------------------------------------------------------------------------

  const open = (button, wanted) => {
    const row = document.getElementById(button.getAttribute("aria-controls"));
    const shown = wanted ?? !row.classList.contains("open");
    row.classList.toggle("open", shown);
    button.setAttribute("aria-expanded", String(shown));
    const here = row.querySelector("[data-kernel]");
    if (shown && here && !here.childElementCount) {
      const kernel = document.getElementById(here.dataset.kernel);
      for (const part of kernel.children) {
        if (!["SUMMARY", "SCRIPT"].includes(part.tagName)) here.append(part.cloneNode(true));
      }
    }
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("button.opens");
    if (button) open(button);
  });

  const arrive = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    const button = target.querySelector("button.opens");
    if (target.matches("tbody.step") && button) open(button, true);
    for (let up = target; up; up = up.parentElement) if (up.tagName === "DETAILS") up.open = true;
    target.scrollIntoView({ block: "start" });
  };
  addEventListener("hashchange", arrive);
  // a link to where one is already
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href^='#']");
    if (link && link.getAttribute("href") === location.hash) arrive();
  });

  // --- code ---------------------------------------------------------------------------------------

  const unpacked = async (id) => {
    const packed = atob(document.getElementById(id).textContent.trim());
    const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).text();
  };

  document.addEventListener("toggle", async (event) => {
    const details = event.target;
    if (!details.open || !details.dataset?.packed) return;
    const id = details.dataset.packed;
    delete details.dataset.packed;
    const pre = details.querySelector("pre");
    try {
      pre.textContent = await unpacked(id);
    } catch (error) {
      pre.textContent = `This browser cannot unpack it: ${error}`;
    }
  }, true);

  // --- pictures ------------------------------------------------------------------------------------

  const moving = (box) => {
    const svg = box.querySelector("svg");
    const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
    let view = null;
    const show = () => svg.setAttribute("viewBox", view.join(" "));
    const start = () => {
      if (!box.clientWidth) return; // folded away
      const scale = Math.min(1, box.clientWidth / width);
      box.style.height = `${Math.min(Math.ceil(height * scale) + 2, 0.75 * innerHeight)}px`;
      const wide = box.clientWidth / scale;
      view = [(width - wide) / 2, 0, wide, box.clientHeight / scale];
      show();
    };
    const fit = () => {
      const scale = Math.min(box.clientWidth / width, box.clientHeight / height);
      const wide = box.clientWidth / scale, high = box.clientHeight / scale;
      view = [(width - wide) / 2, (height - high) / 2, wide, high];
      show();
    };
    const zoom = (factor, x = view[0] + view[2] / 2, y = view[1] + view[3] / 2) => {
      const wide = Math.min(Math.max(view[2] / factor, 40), 40 * Math.max(width, 40));
      const real = view[2] / wide;
      view = [x - (x - view[0]) / real, y - (y - view[1]) / real, wide, view[3] / real];
      show();
    };
    const move = (x, y) => { view[0] += x; view[1] += y; show(); };
    const at = (event) => {
      const place = svg.getBoundingClientRect();
      return [view[0] + (event.clientX - place.left) / place.width * view[2],
              view[1] + (event.clientY - place.top) / place.height * view[3]];
    };

    box.classList.add("moves");
    box.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
      event.preventDefault();
      zoom(Math.exp(-event.deltaY / 300), ...at(event));
    }, { passive: false });
    let last = null, moved = false;
    box.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      last = [event.clientX, event.clientY];
      moved = false;
    });
    box.addEventListener("pointermove", (event) => {
      if (!last) return;
      const [x, y] = [event.clientX - last[0], event.clientY - last[1]];
      if (!moved && Math.hypot(x, y) < 4) return; // a click
      if (!moved) box.setPointerCapture(event.pointerId);
      moved = true;
      box.classList.add("held");
      const scale = view[2] / svg.getBoundingClientRect().width;
      move(-x * scale, -y * scale);
      last = [event.clientX, event.clientY];
    });
    const end = () => { last = null; box.classList.remove("held"); };
    box.addEventListener("pointerup", end);
    box.addEventListener("pointercancel", end);
    box.addEventListener("click", (event) => { if (moved) event.preventDefault(); }, true);
    box.addEventListener("keydown", (event) => {
      const step = 0.1 * view[2];
      const keys = {
        "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), "0": start,
        "ArrowLeft": () => move(-step, 0), "ArrowRight": () => move(step, 0),
        "ArrowUp": () => move(0, -step), "ArrowDown": () => move(0, step),
      };
      if (event.target !== box || !keys[event.key] || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      keys[event.key]();
    });
    const lit = (number, on) => {
      for (const edge of all(`[data-from="${number}"],[data-to="${number}"]`, svg)) {
        edge.classList.toggle("g-lit", on);
      }
    };
    for (const each of all("[data-box]", svg)) {
      each.addEventListener("pointerenter", () => lit(each.dataset.box, true));
      each.addEventListener("pointerleave", () => lit(each.dataset.box, false));
    }
    const tools = box.previousElementSibling;
    const actions = { in: () => zoom(1.25), out: () => zoom(0.8), start, fit };
    all("button", tools).forEach((button) => {
      button.addEventListener("click", () => view && actions[button.dataset.does]());
    });
    box.closest("details")?.addEventListener("toggle", () => view || start());
    start();
  };
  all(".picture").forEach(moving);

  addEventListener("beforeprint", () => all(".picture svg").forEach((svg) => {
    svg.dataset.view = svg.getAttribute("viewBox");
    svg.setAttribute("viewBox", `0 0 ${svg.getAttribute("width")} ${svg.getAttribute("height")}`);
  }));
  addEventListener("afterprint", () => all(".picture svg").forEach((svg) => {
    svg.setAttribute("viewBox", svg.dataset.view);
  }));
  arrive();
})();
