"""Figures as inline SVG in the colours of the page."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from types import MappingProxyType
from typing import Any

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from tvm_gnn_cost.files import write_text

#: Model -> colour, in light and dark.
COLOURS = {
    "gnn": "#2f7ee6",
    "gnn-a100": "#2f7ee6",
    "xgb": "#e8830c",
    "xgb-a100": "#d0453e",
    "mlp": "#2fa84f",
    "random": "#8c959f",
    "tvm": "#9a5fd0",
    "fine-tuned": "#2f7ee6",
    "new model": "#2fa84f",
    "PyTorch": "#d0453e",
    "torch.compile": "#e39a97",
    "ONNX Runtime": "#9a5fd0",
    "OpenVINO": "#2fa84f",
    "MNN": "#c9a227",
}
_OTHER = "#8c959f"

#: Seconds, trials and latency in seconds of every program that is faster than all before.
Improvements = Sequence[tuple[float, float, float]]

#: Placeholder of the colour of the page's text.
_TEXT = "#010203"


def figure(draw: Callable[[Any], None], width: float = 5.6, height: float = 3.4) -> Markup:
    """A figure.

    Args:
        draw: Called with the axes.
        width: In inches.
        height: In inches.
    """
    names = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    # With a salt, the same figure is the same file.
    style: Any = dict.fromkeys(names, _TEXT) | {"svg.fonttype": "none", "svg.hashsalt": "", "font.size": 10}
    with matplotlib.rc_context(style):
        picture = Figure(figsize=(width, height), layout="constrained")
        axes = picture.add_subplot()
        for patch in (picture.patch, axes.patch):
            patch.set_alpha(0)
        axes.set_axisbelow(True)
        axes.grid(visible=True, alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        draw(axes)
        file = io.StringIO()
        picture.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return inline(file.getvalue().replace(_TEXT, "currentColor"))


def inline(svg: str) -> Markup:
    """The text of an SVG file without XML declaration and document type, for a page."""
    return Markup(svg[svg.index("<svg") :])


def write_image(drawing: str, path: Path) -> None:
    """Writes a drawing as a file, which does not inherit a page's text colour: in grey, for light and dark pages."""
    write_text(path, drawing.replace("currentColor", "#777777") + "\n")


def grouped_bars(groups: Mapping[str, Mapping[str, tuple[float, float]]], label: str, low: float = 0.0) -> Markup:
    """A group of bars for each name, with a bar and its standard deviation for each model.

    Args:
        groups: Name -> model -> mean and standard deviation.
        label: Of the vertical axis.
        low: Start of the vertical axis.
    """
    models = list(next(iter(groups.values())))

    def draw(axes: Any) -> None:
        width = 0.8 / len(models)
        for number, model in enumerate(models):
            means, deviations = zip(*(group[model] for group in groups.values()), strict=True)
            at = np.arange(len(groups)) + (number - (len(models) - 1) / 2) * width
            axes.bar(
                at, means, 0.9 * width, yerr=deviations, ecolor=_TEXT, color=COLOURS.get(model, _OTHER), label=model
            )
        axes.set(ylabel=label, ylim=(low, None))
        axes.set_xticks(range(len(groups)), list(groups))
        axes.legend(frameon=False, fontsize=9)

    return figure(draw)


def stacked_bars(rows: Mapping[str, Mapping[str, float]], label: str) -> Markup:
    """A stacked horizontal bar for each name."""
    parts = list(dict.fromkeys(part for row in rows.values() for part in row))
    palette = matplotlib.colormaps["tab20"]

    def draw(axes: Any) -> None:
        begin = np.zeros(len(rows))
        for number, part in enumerate(parts):
            lengths = np.array([row.get(part, 0.0) for row in rows.values()])
            axes.barh(list(rows), lengths, 0.6, left=begin, color=palette(number), label=part)
            begin += lengths
        axes.set(xlabel=label)
        axes.invert_yaxis()
        axes.legend(frameon=False, fontsize=8, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.16))

    return figure(draw, 8, 1.6 + 0.45 * len(rows))


def against_minutes(minutes: Sequence[float], values: Sequence[float], label: str) -> Markup:
    """A line against the minutes of a run, from zero."""

    def draw(axes: Any) -> None:
        axes.plot(minutes, values, color=COLOURS["gnn"], linewidth=1)
        axes.set(xlabel="minutes", ylabel=label, ylim=(0, None))

    return figure(draw)


def horizontal_bars(values: Mapping[str, tuple[float, float]], label: str, line: tuple[str, float] | None) -> Markup:
    """A bar for each name with its standard deviation, the largest first, and a line for an upper bound."""
    ordered = sorted(values.items(), key=lambda one: one[1][0])

    def draw(axes: Any) -> None:
        means, deviations = zip(*(value for _, value in ordered), strict=True)
        axes.barh([name for name, _ in ordered], means, 0.6, xerr=deviations, ecolor=_TEXT, color=COLOURS["gnn"])
        if line is not None:
            axes.axvline(line[1], color=_TEXT, linestyle="--")
            axes.annotate(
                line[0], (line[1], 0), ha="right", va="bottom", fontsize=9, xytext=(-4, 0), textcoords="offset points"
            )
        axes.set(xlabel=label)

    return figure(draw, 7, 0.9 + 0.3 * len(ordered))


def ratio_dots(groups: Mapping[str, str], series: Mapping[str, Mapping[str, float]], label: str) -> Markup:
    """Dots on a logarithmic axis, a row for each name, and a line at 1.

    Args:
        groups: Name -> its group, in the order of the rows.
        series: Name of a series -> name -> ratio; a name without it has no dot.
        label: Of the horizontal axis.
    """
    names = list(groups)
    palette = (_OTHER, COLOURS["gnn"], *COLOURS.values())

    def draw(axes: Any) -> None:
        for (title, values), colour in zip(series.items(), palette, strict=False):
            rows = [names.index(name) for name in values]
            axes.scatter(list(values.values()), rows, s=26, color=colour, label=title, zorder=3)
        axes.axvline(1, color=_TEXT, linewidth=1)
        for row, name in enumerate(names[1:], 1):
            if groups[name] != groups[names[row - 1]]:
                axes.axhline(row - 0.5, color=_TEXT, linewidth=0.5, alpha=0.5)
        axes.set(xscale="log", xlabel=label)
        ticks = [tick for tick in (0.1, 0.25, 0.5, 0.7, 1, 1.5, 2, 4, 8) if _within(tick, axes.get_xlim())]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.legend(frameon=False, fontsize=9, ncols=len(series), loc="lower left", bbox_to_anchor=(0, 1))

    return figure(draw, 7, 1.2 + 0.22 * len(names))


def _within(value: float, limits: tuple[float, float]) -> bool:
    return limits[0] <= value <= limits[1]


def sorted_curves(models: Mapping[str, Sequence[float]], x: str, y: str) -> Markup:
    """The values of each model in ascending order."""

    def draw(axes: Any) -> None:
        for name, values in models.items():
            axes.plot(np.linspace(0, 100, len(values)), sorted(values), color=COLOURS.get(name, _OTHER), label=name)
        axes.set(xlabel=x, ylabel=y)
        axes.legend(frameon=False)

    return figure(draw)


def predicted_against_measured(model: str, predicted: Sequence[float], measured: Sequence[float]) -> Markup:
    """Predicted against measured throughput, a point for each program."""

    def draw(axes: Any) -> None:
        axes.plot([0, 1], [0, 1], color=_TEXT, linewidth=0.8)
        axes.scatter(predicted, measured, s=5, alpha=0.25, color=COLOURS.get(model, _OTHER), linewidths=0)
        axes.set(title=model, xlabel="predicted throughput", ylabel="measured", xlim=(0, 1.02), ylim=(0, 1.02))

    return figure(draw, 4.2, 3.8)


def learning_curves(
    models: Mapping[str, Sequence[tuple[int, float, float]]],
    label: str,
    title: str = "",
    levels: Mapping[str, float] = MappingProxyType({}),
) -> Markup:
    """A line for each model over the number of training programs, with the standard deviation.

    Args:
        models: Model -> number of programs, mean and deviation of each point.
        label: Of the vertical axis.
        title: Of the figure.
        levels: Name -> value to compare with, as a horizontal line.
    """

    def draw(axes: Any) -> None:
        for (name, value), style in zip(levels.items(), cycle(("--", ":")), strict=False):
            axes.axhline(value, color=_TEXT, linewidth=0.8, linestyle=style, label=name)
        for name, points in models.items():
            programs, means, deviations = zip(*sorted(points), strict=True)
            axes.errorbar(programs, means, deviations, fmt="o-", capsize=3, color=COLOURS.get(name, _OTHER), label=name)
        axes.set(xscale="log", xlabel="training programs", ylabel=label, title=title)
        axes.legend(frameon=False)

    return figure(draw)


def mean_descents(models: Mapping[str, tuple[Sequence[float], Sequence[float]]], against: str) -> Markup:
    """The mean best latency of the searches with each model, relative to the best of all, on logarithmic axes.

    Args:
        models: Model -> points along both axes.
        against: Name of the horizontal axis.
    """
    palette = matplotlib.colormaps["tab10"]

    def draw(axes: Any) -> None:
        for number, (model, (x, y)) in enumerate(models.items()):
            axes.step(x, y, where="post", linewidth=1.4, color=palette(number), label=model)
        axes.set(xlabel=against, ylabel="latency / best of all searches", xscale="log", yscale="log")
        for axis in (axes.xaxis, axes.yaxis):
            # Numbers instead of powers, as most axes have less than a decade.
            axis.set_major_formatter(LogFormatter())
            axis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.5)))
        axes.legend(frameon=False, fontsize=8)

    return figure(draw)


def descents(task: str, models: Mapping[str, Sequence[Improvements]], against: str) -> Markup:
    """Best latency of the searches of a task, a thin line for each seed.

    Args:
        task: Name of the task.
        models: Model -> its runs.
        against: ``seconds`` or ``trials``.
    """
    column = {"seconds": 0, "trials": 1}[against]

    def draw(axes: Any) -> None:
        for model, runs in models.items():
            for number, points in enumerate(runs):
                x, y = [point[column] for point in points], [1e3 * point[2] for point in points]
                label = model if number == 0 else None
                axes.step(x, y, where="post", linewidth=1, color=COLOURS.get(model, _OTHER), label=label)
        axes.set_title(task, fontsize=9)
        axes.set(xlabel=against, ylabel="best latency, ms", yscale="log")
        axes.legend(frameon=False, fontsize=9)

    return figure(draw, 4.4, 3)
