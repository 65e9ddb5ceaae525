"""``gym eval view``: one HTML file that needs nothing else, neither the network nor a server.

What a model or a tool wrote is untrusted: the template escapes all text, the browsable rollouts are data in a JSON block whose ``<`` are
written as escapes, the script puts them on the page as text only, and a Content-Security-Policy lets nothing run or load but the page's
own script and style, by their digests.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import orjson

from gym_compose.rollouts import charts
from gym_compose.rollouts.conversation import Conversation, conversation
from gym_compose.rollouts.distribution import Distribution
from gym_compose.rollouts.figures import Figures, gather
from gym_compose.rollouts.reader import read_at
from gym_compose.rollouts.sample import Sample, SampledLine
from gym_compose.wire.errors import PrerequisiteError

TEXT_BUDGET: Final = 12_000_000
"""Characters of browsable rollouts in one report."""
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


@dataclass(frozen=True)
class Report:
    """The figures of a run and the rollouts that can be looked at. ``left_out`` were chosen too and were too long together."""

    figures: Figures
    conversations: tuple[Conversation, ...]
    left_out: int = 0


@dataclass(frozen=True)
class Chart:
    """A drawing, and the same as a table for who cannot see it."""

    title: str
    svg: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def make_report(rollouts: Path, sample: Sample | None = None) -> Report:
    """Read a rollouts file and the files beside it. Raises RolloutFileError."""
    figures, chosen = gather(rollouts, sample or Sample())
    return Report(figures, *_read(chosen))


def _read(chosen: Sequence[SampledLine]) -> tuple[tuple[Conversation, ...], int]:
    found: list[Conversation] = []
    room = TEXT_BUDGET
    for line in chosen:
        told = conversation(read_at(line.path, line.offset))
        room -= sum(len(step.text) for step in told.steps) + len(told.fields)
        if room >= 0:
            found.append(told)
    return tuple(found), len(chosen) - len(found)


def render(report: Report) -> str:
    """The page."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("gym_compose.rollouts", "page"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number, reward=reward)
    script, style = _asset("report.js"), _asset("report.css")
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return environment.get_template("report.html.j2").render(
        figures=report.figures,
        charts=[(chart, Markup(chart.svg)) for chart in _charts(report.figures)],  # made by Vega from numbers and escaped labels
        cards=_cards(report.figures),
        report=report,
        policy=policy,
        script=Markup(script),
        style=Markup(style),
        data=Markup(json_block([told.model_dump() for told in report.conversations])),
    )


def write_report(report: Report, target: Path) -> None:
    """Write the page, whole or not at all. Raises PrerequisiteError, also for a target that is there and no file: it would be replaced."""
    if target.exists() and not target.is_file():
        raise PrerequisiteError(
            "the report cannot be written: that is no file", where=str(target), hint="Give the name of a file (-o FILE)."
        )
    page = render(report).encode()
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(page)
        part.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise PrerequisiteError(f"the report cannot be written: {error.strerror}", where=str(target)) from None


def json_block(value: Any) -> str:
    """JSON that can stand inside a ``<script>`` element, whatever its strings hold."""
    text = orjson.dumps(value).decode()
    for character, escape in _UNSAFE.items():
        text = text.replace(character, escape)
    return text


def number(value: float | None) -> str:
    """``1,234``, ``0.713``, ``12.5``; a dash for none."""
    if value is None:
        return "–"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}"


def reward(value: float | None) -> str:
    """Four decimals; a dash for none."""
    return "–" if value is None else f"{value:.4f}"


def _cards(figures: Figures) -> list[tuple[str, str, str]]:
    """Name, value and a line below it."""
    cards = [("Mean reward", reward(figures.mean_reward), _interval(figures.mean_reward_low, figures.mean_reward_high, reward))]
    if figures.pass_at_k and figures.binary:
        last = figures.pass_at_k[-1]
        cards.append((f"pass@{last.k}", f"{last.percent:.1f} %", _interval(last.low, last.high, lambda value: f"{value:.1f}")))
    cards.append(("Rollouts", number(figures.rollouts), f"{number(figures.tasks)} tasks, up to {number(figures.repeats)} each"))
    requested = ((figures.run or {}).get("counts") or {}).get("requested")
    cards.append(("Failed attempts", number(figures.failed), f"{number(requested)} rollouts were requested" if requested else ""))
    if "output_tokens" in figures.tokens:
        spent = figures.tokens["output_tokens"]
        cards.append(("Output tokens", number(spent.median), f"median; 99 % are below {number(spent.p99)}"))
    if figures.latency is not None:
        cards.append(("Latency", f"{number(figures.latency.median)} s", f"median; 99 % are below {number(figures.latency.p99)} s"))
    return cards


def _interval(low: float | None, high: float | None, shown: Callable[[float], str]) -> str:
    return "no interval from one task" if low is None or high is None else f"95 % interval {shown(low)} to {shown(high)}"


def _charts(figures: Figures) -> list[Chart]:
    made = []
    if figures.rewards is not None:
        made.append(_histogram("Rewards", figures.rewards, "reward", "rollouts"))
    if len(figures.pass_at_k) > 1:
        rows = tuple((str(at.k), f"{at.percent:.2f}", number(at.low), number(at.high), number(at.tasks)) for at in figures.pass_at_k)
        note = "" if figures.binary else "Rewards are not 0 or 1: the best of the first k counts."
        made.append(Chart("pass@k", charts.pass_at_k(figures.pass_at_k), ("k", "%", "low", "high", "tasks"), rows, note))
    if figures.task_means is not None and figures.repeats > 1:
        made.append(_histogram("How hard the tasks are", figures.task_means, "mean reward of a task", "tasks"))
    names = {"input_tokens": "Input tokens", "output_tokens": "Output tokens"}
    made.extend(_histogram(names[name], spread, "tokens", "rollouts") for name, spread in figures.tokens.items() if name in names)
    if figures.calls is not None and figures.calls.maximum > 0:
        made.append(_histogram("Tool calls", figures.calls, "calls of a rollout", "rollouts"))
    if figures.latency is not None:
        made.append(_histogram("Latency", figures.latency, "seconds", "rollouts", f"From {figures.latency_from}."))
    if figures.failures:
        listed = tuple((item.failure_class, item.stage or "", number(item.count)) for item in figures.failures)
        made.append(Chart("Failures", charts.failures(figures.failures), ("class", "stage", "attempts"), listed))
    return made


def _histogram(title: str, spread: Distribution, axis: str, counted: str, note: str = "") -> Chart:
    names = ("mean", "std", "minimum", "p25", "median", "p75", "p90", "p99", "maximum")
    rows = tuple((name, number(getattr(spread, name))) for name in names)
    return Chart(title, charts.histogram(spread.histogram, axis, counted), ("statistic", "value"), rows, note)


def _asset(name: str) -> str:
    return files("gym_compose.rollouts").joinpath("page", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
