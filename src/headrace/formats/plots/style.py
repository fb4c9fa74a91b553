"""The colours of charts, light and dark. Neighbours of a legend differ in lightness, too."""

from __future__ import annotations

_LIGHT = ("#00695c", "#e08a00", "#3949ab", "#b3261e", "#6a8f00", "#7b3fa0")
_DARK = ("#5fd0bf", "#ffc24d", "#9fa8ff", "#ff9a90", "#c2e05a", "#d7a6f5")


def _colours(colours: tuple[str, ...]) -> str:
    return "".join(
        f".plot .fill.series-{n} {{ fill: {colour}; }} .plot .line.series-{n} {{ stroke: {colour}; }}\n"
        for n, colour in enumerate(colours, 1)
    )


CSS = f"""\
.plot {{ width: 100%; height: auto; font: 12px system-ui, sans-serif; }}
.plot text {{ fill: currentColor; }}
.plot .axis {{ font-weight: 600; }}
.plot .rule {{ stroke: currentColor; stroke-opacity: .2; }}
.plot .line {{ fill: none; stroke: currentColor; stroke-width: 1.5; }}
{_colours(_LIGHT)}@media (prefers-color-scheme: dark) {{
{_colours(_DARK)}}}
"""
