"""The table and the plot of what was measured."""

from __future__ import annotations

import math
import platform
from pathlib import Path
from typing import Any

from engines import ON_REQUEST, OURS
from measure import Found, Ratio, interval_of, ratio
from workloads import FAMILIES, Workload

WRONG = 1e-2  # of the largest number: values beyond are not the same
SHORT = 0.95  # a row falls short when its whole interval is below
AIMS = {"training": 1.5, "inference": 1.15, "kernel": 1.4}  # geometric means asked for

Row = tuple[Workload, int, dict[str, Found]]


def fingerprint() -> str:
    """The machine and the versions, in one line."""
    from importlib import metadata

    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    cpu = next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), "?")
    flags = next((x for x in lines if x.startswith("flags")), "")
    told = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in flags]
    versions = []
    for name in ("torch", "onnxruntime", "openvino", "jax", "numpy", "llvmlite"):
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return (f"{cpu} ({', '.join(told)}), Python {platform.python_version()}, "
            + ", ".join(versions))


def table(rows: list[Row], limits: dict[int, Any]) -> str:
    """Markdown; milliseconds of a call, medians of the processes' medians."""
    lines = []
    for family in FAMILIES:
        for untuned in (False, True):
            chosen = [r for r in rows if r[0].family == family and r[0].untuned == untuned]
            if chosen:
                lines += _section(family, untuned, chosen, limits)
    return "\n".join(lines)


def _section(family: str, untuned: bool, rows: list[Row], limits: dict[int, Any]) -> list[str]:
    last = (*ON_REQUEST, OURS)
    engines = [n for n in dict.fromkeys(n for r in rows for n in r[2]) if n not in last]
    engines += [name for name in last if any(name in r[2] for r in rows)]
    lines = ["", f"### {family}" + (", shapes that nobody tuned on" if untuned else ""), ""]
    lines.append("| | threads | " + " | ".join(engines) + " | best peer / graphc (95%) | of the "
                     "limit | first call, cold; warm, s | from the start, cold; warm, s "
                 "| peak, MB (torch) |")
    lines.append("|---" * (len(engines) + 7) + "|")
    ratios: dict[int, list[float]] = {}
    for row, threads, found in rows:
        against = ratio(found)
        if against is not None:
            ratios.setdefault(threads, []).append(against.median)
        cells = [_time(found.get(name), name == OURS) for name in engines]
        lines.append(f"| {row.name} | {threads} | " + " | ".join(cells) + " | "
                     + " | ".join([_ratio(against), _share(row, found, limits.get(threads)),
                                   *_first(found.get(OURS)), _memory(found)]) + " |")
    for threads, values in sorted(ratios.items()):
        mean = math.exp(sum(map(math.log, values)) / len(values))
        lines += ["", f"Geometric mean, {threads} thread{'s' * (threads > 1)}: {mean:.2f} "
                  + (f"(asked: {AIMS[family]}), " if family in AIMS else "")
                  + f"of {len(values)} rows."]
    return lines


def _time(entry: Found | None, whole: bool) -> str:
    """Milliseconds; `whole`: with their interval."""
    if entry is None:
        return ""
    if entry.failed or not entry.seconds:
        return "failed"
    ordered = sorted(entry.seconds)
    text = _digits(ordered[len(ordered) // 2] * 1e3)
    if whole and len(ordered) > 1:
        low, high = (_digits(each * 1e3) for each in interval_of(ordered))
        text += f" ({low}-{high})"
    return text + (" (differs)" if entry.wrong > WRONG else "")


def _digits(number: float) -> str:
    return f"{number:.3g}" if number < 100 else f"{number:.0f}"


def _ratio(against: Ratio | None) -> str:
    if against is None:
        return ""
    text = f"{against.median:.2f} ({against.low:.2f}-{against.high:.2f}) {against.peer}"
    text += f" / {against.ours}" * (against.ours != OURS)
    return f"**{text}**" if against.high < SHORT else text


def _share(row: Workload, found: dict[str, Found], limits: Any) -> str:
    """Of the multiply-adds, or of the copied bytes, that this machine does in a second."""
    ours = found.get(OURS)
    if limits is None or ours is None or not ours.seconds:
        return ""
    seconds = sorted(ours.seconds)[len(ours.seconds) // 2]
    parts = [f"{row.flops / seconds / limits.flops:.0%} FMA"] if row.flops else []
    if row.bytes >= 32 << 20:  # less stays in the caches
        parts.append(f"{row.bytes / seconds / limits.bytes:.0%} copy")
    return ", ".join(parts)


def _first(ours: Found | None) -> tuple[str, str]:
    """The first call, and the whole of a process up to its result."""
    if ours is None or ours.cold is None:
        return "", ""
    pairs = (ours.cold, ours.warm), (ours.cold_started, ours.started)
    first, whole = (
        f"{cold or 0.0:.2f}" + (f"; {sorted(warm)[len(warm) // 2]:.2f}" if warm else "")
        for cold, warm in pairs
    )
    return first, whole


def _memory(found: dict[str, Found]) -> str:
    ours, torch = found.get(OURS), found.get("torch")
    if ours is None or not ours.bytes:
        return ""
    return f"{ours.bytes / 1e6:.0f}" + (
        f" ({torch.bytes / 1e6:.0f})" if torch is not None and torch.bytes else ""
    )


def plot(rows: list[Row], path: Path) -> None:
    """The ratios to the best peer, a bar each, as SVG or PNG by the path's ending."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    bars = [(f"{row.name}, {threads}", against) for row, threads, found in rows
            if (against := ratio(found)) is not None]
    bars.sort(key=lambda bar: bar[1].median)
    figure, axes = plt.subplots(figsize=(9, 1 + 0.19 * len(bars)), layout="constrained")
    middles = [bar[1].median for bar in bars]
    low = [max(0.0, bar[1].median - bar[1].low) for bar in bars]
    high = [max(0.0, bar[1].high - bar[1].median) for bar in bars]
    axes.barh([bar[0] for bar in bars], middles, xerr=(low, high), height=0.7,
              color=["tab:red" if bar[1].high < SHORT else "tab:blue" for bar in bars],
              error_kw={"lw": 0.8})
    axes.axvline(1.0, color="black", lw=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("time of the best peer / time of graphc (right of 1: graphc is faster)")
    axes.tick_params(axis="y", labelsize=6)
    axes.margins(y=0.01)
    figure.savefig(path)
    plt.close(figure)
