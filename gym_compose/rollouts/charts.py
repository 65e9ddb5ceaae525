"""Charts of a report as SVG: Vega-Lite, drawn by vl-convert without a browser and without the network. Text stays text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gym_compose.rollouts.distribution import Bar
from gym_compose.rollouts.figures import Failures, PassAtK

# Vega wants colours it can parse; the page's own, light or dark, are put in their place afterwards.
_COLOURS = {"#010201": "var(--accent)", "#010202": "var(--muted)", "#010203": "var(--line)", "#010204": "var(--bad)"}
_ACCENT, _MUTED, _LINE, _BAD = _COLOURS
_WIDTH, _HEIGHT = 440, 150
_LABEL_LIMIT = 260
_PADDING = 16  # a reader's font may be wider than the one that Vega measures with
_CONFIG = {
    "font": "system-ui, sans-serif",
    "background": None,
    "view": {"stroke": None},
    "axis": {
        "labelColor": _MUTED,
        "titleColor": _MUTED,
        "titleFontWeight": "normal",
        "titleFontSize": 12,
        "labelFontSize": 11,
        "labelLimit": _LABEL_LIMIT,
        "gridColor": _LINE,
        "domainColor": _LINE,
        "tickColor": _LINE,
    },
}


def histogram(bars: Sequence[Bar], title: str, counted: str) -> str:
    """Bars of a distribution: one for each value, or for each range of values."""
    single = all(bar.low == bar.high for bar in bars)
    labels = _labels([bar.low for bar in bars])
    values = [{"low": bar.low, "high": bar.high, "count": bar.count, "label": label} for bar, label in zip(bars, labels, strict=True)]
    if single:
        encoding: dict[str, Any] = {"x": {"field": "label", "type": "ordinal", "sort": None, "title": title, "axis": {"labelAngle": 0}}}
    else:
        encoding = {"x": {"field": "low", "type": "quantitative", "bin": {"binned": True}, "title": title}, "x2": {"field": "high"}}
    encoding["y"] = {"field": "count", "type": "quantitative", "title": counted, "axis": {"format": "~s", "tickCount": 4}}
    return _svg(values, {"mark": {"type": "bar", "color": _ACCENT}, "encoding": encoding}, height=_HEIGHT)


def pass_at_k(points: Sequence[PassAtK]) -> str:
    """pass@k over k with its 95 % intervals."""
    values = [point.model_dump() for point in points]
    x = {"field": "k", "type": "ordinal", "title": "k", "axis": {"labelAngle": 0}}
    y = {"field": "percent", "type": "quantitative", "title": "pass@k, %", "scale": {"domain": [0, 100]}, "axis": {"tickCount": 5}}
    ranges = {"transform": [{"filter": "datum.low !== null"}], "mark": {"type": "rule", "color": _ACCENT, "strokeWidth": 2}}
    spread = {**ranges, "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}}
    line = {"mark": {"type": "line", "color": _ACCENT, "point": {"color": _ACCENT, "size": 55}}, "encoding": {"x": x, "y": y}}
    return _svg(values, {"layer": [spread, line]}, height=_HEIGHT)


def failures(classes: Sequence[Failures], most: int = 12) -> str:
    """Failed attempts by class and stage, the most frequent first."""
    values = [
        {"label": f"{item.failure_class} ({item.stage})" if item.stage else item.failure_class, "count": item.count}
        for item in classes[:most]
    ]
    encoding = {
        "y": {"field": "label", "type": "nominal", "sort": None, "title": None},
        "x": {"field": "count", "type": "quantitative", "title": "failed attempts", "axis": {"tickMinStep": 1}},
    }
    return _svg(values, {"mark": {"type": "bar", "color": _BAD}, "encoding": encoding}, height=24 * len(values))


def _labels(values: Sequence[float]) -> list[str]:
    """Values as short as they stay different."""
    for digits in (3, 6):
        labels = [f"{int(value):,}" if value == int(value) else f"{value:.{digits}g}" for value in values]
        if len(set(labels)) == len(values):
            return labels
    return [repr(value) for value in values]


def _svg(values: Sequence[Mapping[str, Any]], view: Mapping[str, Any], *, height: int) -> str:
    import vl_convert  # starts a JavaScript engine: only where something is drawn

    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",  # names the version, nothing is fetched
        "width": _WIDTH,
        "height": height,
        "padding": {"left": _PADDING, "right": _PADDING, "top": 5, "bottom": 5},
        "data": {"values": list(values)},
        "config": _CONFIG,
        **view,
    }
    svg: str = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    for written, wanted in _COLOURS.items():
        svg = svg.replace(f'"{written}"', f'"{wanted}"')
    return svg
