"""The tables and the self-contained HTML page of a tuning run."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from tvm_gnn_cost.files import write_text
from tvm_gnn_cost.tuning.result import PHASES, CurvePoint, TuneResult, load_result

#: The page's name in the work directory.
FILE_NAME = "report.html"


@dataclass(frozen=True)
class TableContent:
    """A table as text; the first column names the row, the others hold numbers."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""


def write_report(work_dir: Path) -> Path:
    """Writes ``work_dir/report.html`` from the result there; the page loads nothing from elsewhere.

    Returns:
        The page's path.

    Raises:
        FileNotFoundError: nothing was tuned in ``work_dir``.
        InputError: its result is damaged.
    """
    result = load_result(work_dir)
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True)
    page = environment.get_template("report.html.j2").render(
        result=result,
        headline=headline(result),
        tables=[*tables(result), _settings(result)],
        plots=_plots(result.curve) if len(result.curve) > 1 else [],
    )
    path = work_dir / FILE_NAME
    write_text(path, page)
    return path


def headline(result: TuneResult) -> str:
    """The outcome in one sentence."""
    if result.end_to_end is None:
        return f"Not finished: {result.trials} of {result.settings.trials} programs are measured."
    before, after = median(result.end_to_end.untuned), median(result.end_to_end.tuned)
    return (
        f"{result.settings.network}: {latency(before)} untuned, {latency(after)} tuned, "
        f"{_ratio(before, after)} after {result.trials} measured programs."
    )


def tables(result: TuneResult) -> list[TableContent]:
    """The tables of a run: its tasks, the network end to end (once it was compared) and where the time went."""
    found = [_tasks(result)]
    if result.end_to_end is not None:
        found.append(_end_to_end(result))
    return [*found, _time(result)]


def _tasks(result: TuneResult) -> TableContent:
    rows = [
        (
            task.name,
            str(task.weight),
            latency(task.untuned),
            "-" if task.best is None else latency(task.best),
            "-" if task.best is None else _ratio(task.untuned, task.best),
            str(task.trials),
            str(task.failed),
        )
        for task in sorted(result.tasks, key=lambda task: -task.weight * task.untuned)
    ]
    before, after = result.untuned_latency, result.latency
    failed = sum(task.failed for task in result.tasks)
    rows.append(
        ("weighted sum", "", latency(before), latency(after), _ratio(before, after), str(result.trials), str(failed))
    )
    return TableContent(
        "Tasks",
        ("task", "weight", "untuned", "best measured", "speed-up", "trials", "failed"),
        rows,
        _kept(result),
    )


def _kept(result: TuneResult) -> str:
    """Says which tasks the tuning did nothing for."""
    unmeasured = [task.name for task in result.tasks if task.best is None]
    slower = [task.name for task in result.tasks if task.best is not None and not task.improved]
    sentences = []
    if unmeasured:
        sentences.append(f"No valid measurement, default schedule kept: {', '.join(unmeasured)}.")
    if slower:
        sentences.append(f"Nothing faster than the default schedule found, default kept: {', '.join(slower)}.")
    return " ".join(sentences)


def _end_to_end(result: TuneResult) -> TableContent:
    assert result.end_to_end is not None
    compared = result.end_to_end
    before, after = median(compared.untuned), median(compared.tuned)
    reference = "PyTorch" if result.settings.scheduler == "meta-schedule" else "the untuned network"
    return TableContent(
        f"{result.settings.network}, end to end",
        ("network", "median latency", "fastest", "slowest", "speed-up", f"difference from {reference}"),
        [
            _network_row("untuned", compared.untuned, "", compared.untuned_difference),
            _network_row("tuned", compared.tuned, _ratio(before, after), compared.tuned_difference),
        ],
        f"{len(compared.tuned)} repeats each, in turn. The difference is relative to the largest output.",
    )


def _network_row(name: str, seconds: list[float], speed_up: str, difference: float) -> tuple[str, ...]:
    times = (latency(median(seconds)), latency(min(seconds)), latency(max(seconds)))
    return (name, *times, speed_up, f"{difference:.2g}")


def _time(result: TuneResult) -> TableContent:
    total = sum(result.seconds.values()) or math.inf
    rows = [
        (phase, f"{result.seconds.get(phase, 0.0):.1f} s", f"{100 * result.seconds.get(phase, 0.0) / total:.1f} %")
        for phase in PHASES
    ]
    rows.append(("all", f"{sum(result.seconds.values()):.1f} s", "100.0 %"))
    return TableContent(
        "Where the time went",
        ("phase", "seconds", "share"),
        rows,
        "Prediction includes feature or graph extraction; running includes waiting for other measurements on "
        "this machine; preparation measures the default schedules; verification compiles and times the network.",
    )


def _settings(result: TuneResult) -> TableContent:
    settings = result.settings
    rows = [
        ("scheduler", settings.scheduler),
        ("network", settings.network),
        ("cost model", settings.cost_model),
        ("trials", str(settings.trials)),
        ("programs a batch", str(settings.batch)),
        ("population", str(settings.population)),
        ("seed", str(settings.seed)),
        ("target", settings.target),
        ("date", result.date),
        *((name.replace("_gib", ", GiB"), str(value)) for name, value in result.machine.items()),
        *result.versions.items(),
    ]
    return TableContent("Settings, machine and versions", ("", ""), rows)


def latency(seconds: float) -> str:
    """Seconds as text in a unit that leaves one to three digits before the point."""
    if not math.isfinite(seconds):
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        # Rounded to three digits this is 1.
        if seconds * scale >= 0.9995:
            return f"{seconds * scale:.3g} {unit}" if seconds * scale < 1000 else f"{seconds * scale:.0f} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def duration(seconds: float) -> str:
    """Seconds as minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _ratio(before: float, after: float) -> str:
    return f"{before / after:.2f}x" if after > 0 else "-"


def _plots(curve: list[CurvePoint]) -> list[Markup]:
    """The tuning curve against trials and against wall clock, as inline SVG."""
    trials = [float(point.trials) for point in curve]
    minutes = [point.seconds / 60 for point in curve]
    milliseconds = [point.latency * 1e3 for point in curve]
    return [
        _plot(trials, milliseconds, "measured programs"),
        _plot(minutes, milliseconds, "minutes of search"),
    ]


def _plot(x: list[float], y: list[float], label: str) -> Markup:
    import matplotlib

    # Each figure's ids are hashed with its own salt, or two figures on one page would share them.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": label}):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 3.4), layout="constrained")
        axes = figure.add_subplot()
        axes.step(x, y, where="post", marker="o", markersize=3, color="#1f6feb", gid="curve")
        axes.set(xlabel=label, ylabel="weighted sum of best latencies, ms")
        if max(y) > 5 * min(y):
            axes.set_yscale("log")
        axes.grid(visible=True, which="both", alpha=0.3)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = file.getvalue()
    # Inside a page the XML declaration and the document type have no place.
    return Markup(svg[svg.index("<svg") :])
