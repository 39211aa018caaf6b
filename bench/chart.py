"""Small charts, drawn as SVG by hand: records by key as bars on a logarithmic scale, the growth of a join as lines."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from html import escape

_ROW = re.compile(
    r"\| F1 \| get_record, (?P<size>[\d,]+) rows \| (?P<ours>[\d,]+) records/s"
    r" \| (?P<peer>[^|:]+): (?P<theirs>[\d,]+) records/s"
)
_GROWTH = re.compile(
    r"\| F6 \| stream ⋈ (?P<size>[\d,]+) rows, in batches of (?P<batch>[\d,]+) \| (?P<ours>[\d,]+) rows/s"
    r" \| [^|:]+: (?P<theirs>[\d,]+) rows/s"
)
_COLORS = ("#1f6feb", "#6e7781", "#bf8700", "#8250df", "#1a7f37", "#cf222e", "#0a3069")
_LEFT, _WIDTH, _BAR, _GAP = 190, 420, 13, 18


def draw(rows: Iterable[str]) -> str:
    """The chart of what the rows of the table say about get_record."""
    found: dict[int, dict[str, int]] = {}
    for row in rows:
        match = _ROW.match(row)
        if match is not None:
            bars = found.setdefault(_number(match["size"]), {})
            bars["Millpond"] = _number(match["ours"])
            bars[match["peer"]] = _number(match["theirs"])
    names = list(dict.fromkeys(name for bars in found.values() for name in bars))
    top = 10 ** math.ceil(math.log10(max((v for bars in found.values() for v in bars.values()), default=10)))
    parts: list[str] = []
    y = 40
    for size in sorted(found):
        parts.append(_text(8, y + 11, f"{size:,} rows", bold=True))
        for name, rate in found[size].items():
            width = _WIDTH * math.log10(max(rate, 10)) / math.log10(top)
            color = _COLORS[names.index(name) % len(_COLORS)]
            parts.append(f'<rect x="{_LEFT}" y="{y}" width="{width:.0f}" height="{_BAR}" fill="{color}"/>')
            parts.append(_text(_LEFT + width + 4, y + 11, f"{name}: {rate:,}"))
            y += _BAR + 3
        y += _GAP
    return _page(parts, y, top)


def _page(parts: Sequence[str], height: int, top: int) -> str:
    marks = []
    for power in range(1, round(math.log10(top)) + 1):
        x = _LEFT + _WIDTH * power / math.log10(top)
        marks.append(f'<line x1="{x:.0f}" y1="32" x2="{x:.0f}" y2="{height - 10}" stroke="#d0d7de"/>')
        marks.append(_text(x - 12, 28, f"10^{power}"))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="860" height="{height}" font-family="sans-serif">',
            f'<rect width="860" height="{height}" fill="white"/>',
            _text(8, 16, "Records by key, per second (logarithmic)", bold=True),
            *marks,
            *parts,
            "</svg>\n",
        ]
    )


def _text(x: float, y: float, text: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="11"{weight}>{escape(text)}</text>'


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def draw_growth(rows: Iterable[str]) -> str:
    """The chart of the join by the size of its table, a line for each size of batches; the peer's are dashed."""
    found: dict[int, dict[int, tuple[int, int]]] = {}
    for row in rows:
        match = _GROWTH.match(row)
        if match is not None:
            by_size = found.setdefault(_number(match["batch"]), {})
            by_size[_number(match["size"])] = _number(match["ours"]), _number(match["theirs"])
    highest = max((v for line in found.values() for pair in line.values() for v in pair), default=1)
    sizes = sorted({size for line in found.values() for size in line})
    left, width, top, height = 70, 520, 40, 260

    def at(size: int, rate: float) -> tuple[float, float]:
        x = left + width * sizes.index(size) / max(len(sizes) - 1, 1)
        return x, top + height * (1 - rate / highest)

    parts = [_text(8, 16, "Rows a second of a stream joined with a table, by the table's rows", bold=True)]
    for size in sizes:
        parts.append(_text(at(size, 0)[0] - 20, top + height + 18, f"{size:,}"))
    for quarter in range(5):
        y = top + height * quarter / 4
        parts.append(f'<line x1="{left}" y1="{y:.0f}" x2="{left + width}" y2="{y:.0f}" stroke="#d0d7de"/>')
        parts.append(_text(8, y + 4, f"{highest * (1 - quarter / 4):,.0f}"))
    for number, batch in enumerate(sorted(found)):
        color = _COLORS[number]
        for which, dash in ((0, ""), (1, ' stroke-dasharray="5 4"')):
            places = [at(s, found[batch][s][which]) for s in sizes if s in found[batch]]
            points = " ".join(f"{x:.0f},{y:.0f}" for x, y in places)
            parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"{dash}/>')
        y = top + 20 * number + 8
        parts.append(f'<rect x="{left + width + 16}" y="{y - 8}" width="14" height="4" fill="{color}"/>')
        parts.append(_text(left + width + 36, y, f"batches of {batch:,}"))
    parts.append(_text(left + width + 16, top + 20 * len(found) + 8, "dashed: foreachBatch by hand"))
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" width="860" height="340" font-family="sans-serif">',
            '<rect width="860" height="340" fill="white"/>',
            *parts,
            "</svg>\n",
        ]
    )
