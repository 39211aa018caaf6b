"""A small chart of records by key: bars on a logarithmic scale, drawn as SVG by hand."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from html import escape

_ROW = re.compile(
    r"\| F1 \| get_record, (?P<size>[\d,]+) rows \| (?P<ours>[\d,]+) records/s"
    r" \| (?P<peer>[^|:]+): (?P<theirs>[\d,]+) records/s"
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
