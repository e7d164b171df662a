"""Draws the memory of a soak as an SVG: ``python benchmarks/harness/memory_graph.py build/soak.jsonl >graph.svg``.

It reads the samples of `soak.py`. Colours follow the reader's light or dark theme.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from html import escape
from math import ceil
from pathlib import Path
from typing import Any

_WIDTH, _PANEL, _LEFT, _RIGHT, _TOP = 760, 150, 72, 190, 34
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #444 } .axis { stroke: #ccc } polyline { fill: none; stroke-width: 2 }
.a { stroke: #1a6fb5 } .b { stroke: #b3541e } .c { stroke: #2e7d4f } .title { font-weight: 600 } rect { fill: #fff }
@media (prefers-color-scheme: dark) {
  rect { fill: #1a1a1a }
  text { fill: #ccc } .axis { stroke: #555 } .a { stroke: #6db3f2 } .b { stroke: #f0a070 } .c { stroke: #7fcf9f } }
"""


def panel(title: str, top: int, hours: Sequence[float], lines: Mapping[str, Sequence[float]]) -> str:
    """One chart from 0 MB, with the name and the last value of each line at its end."""
    largest = max(max(values) for values in lines.values())
    most = ceil(largest / (round_to := 100 if largest < 1000 else 500)) * round_to
    across, bottom = (_WIDTH - _LEFT - _RIGHT) / hours[-1], top + _PANEL
    parts = [f'<text class="title" x="{_LEFT}" y="{top - 10}">{escape(title)}</text>']
    for share in (0, 0.5, 1):
        y = bottom - share * _PANEL
        parts.append(f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.0f}" y2="{y:.0f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.0f}" text-anchor="end">{share * most:.0f} MB</text>')
    labels = sorted((values[-1], name) for name, values in lines.items())
    lowest = float(bottom)
    for css, (last, name) in zip("abc", labels, strict=False):
        drawn = zip(hours, lines[name], strict=True)
        points = " ".join(f"{_LEFT + at * across:.1f},{bottom - mb / most * _PANEL:.1f}" for at, mb in drawn)
        lowest = min(lowest, bottom - last / most * _PANEL + 4)
        parts.append(f'<polyline class="{css}" points="{points}"/>')
        parts.append(f'<text x="{_WIDTH - _RIGHT + 8}" y="{lowest:.0f}">{escape(name)}: {last:.0f} MB</text>')
        lowest -= 16
    for hour in range(int(hours[-1]) + 1):
        at = _LEFT + hour * across
        parts.append(f'<text x="{at:.0f}" y="{bottom + 18}" text-anchor="middle">{hour} h</text>')
    return "\n".join(parts)


def graph(samples: Sequence[Mapping[str, Any]]) -> str:
    """The memory of the service, and of the Kafka client and the job beside it."""
    hours = [each["hours"] for each in samples]
    service = {name: [each[key] for each in samples] for name, key in _OF_SERVICE.items()}
    names = set.intersection(*(set(each["others_mb"]) for each in samples))  # without processes that end at once
    others = {name: [each["others_mb"].get(name, 0.0) for each in samples] for name in sorted(names)}
    panels = [("Resident memory of the service", service), ("Beside it", others)]
    step = _PANEL + _TOP + 34
    drawn = [panel(title, _TOP + at * step, hours, lines) for at, (title, lines) in enumerate(panels) if lines]
    size = f'viewBox="0 0 {_WIDTH} {len(drawn) * step}"'
    background = '<rect width="100%" height="100%"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><style>{_STYLE}</style>'
    return f"{head}{background}{''.join(drawn)}</svg>\n"


_OF_SERVICE = {"all processes": "rss_mb", "oldest worker": "oldest_rss_mb"}


if __name__ == "__main__":
    sys.stdout.write(graph([json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]))
