"""The tables and the self-contained HTML page of a tuning run."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from tvm_gnn_cost.files import write_text
from tvm_gnn_cost.tuning.result import PHASES, CurvePoint, NetworkTimes, TuneResult, load_result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tvm_gnn_cost.schedulers.scheduler import Profile

#: Name of the page in the work directory.
FILE_NAME = "report.html"

#: Columns of the throughput, and of its share of a large matrix product's on this machine.
_SPEED = ("GFLOPS", "of matmul")

#: A kernel's difference between library and search that the report points out, relative to the network.
_NOTABLE = 0.1

#: Prefix of the functions of TVM's runtime in a profile.
_BUILT_IN = "vm.builtin."

_BLUE = "#1f6feb"


@dataclass(frozen=True)
class TableContent:
    """A table as text; the first column is the row's name, the others are numbers."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""


def write_report(work_dir: Path) -> Path:
    """Writes the self-contained page ``work_dir/report.html`` from the result in ``work_dir``.

    Returns:
        The page's path.

    Raises:
        FileNotFoundError: ``work_dir`` has no result.
        InputError: the result is damaged.
    """
    result = load_result(work_dir)
    *others, last = tables(result)
    # The end-to-end table comes last in a terminal and first on a page.
    ordered = [*others, last] if result.end_to_end is None else [last, *others]
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True)
    page = environment.get_template("report.html.j2").render(
        result=result,
        headline=headline(result),
        tables=[*ordered, _settings(result)],
        plots=_plots(result.curve) if len(result.curve) > 1 else [],
        bars=_bars(result.end_to_end.networks) if result.end_to_end is not None else None,
    )
    path = work_dir / FILE_NAME
    write_text(path, page)
    return path


def headline(result: TuneResult) -> str:
    """The result in one sentence."""
    if result.end_to_end is None:
        return f"Not finished: {result.trials} programs measured."
    tuned = result.end_to_end.tuned
    others = [network for network in result.end_to_end.networks if network is not tuned]
    # The untuned network is only mentioned without peers.
    peers = [network for network in others if network.seconds and network.name != "untuned"] or others
    compared = ", ".join(f"{network.name} {latency(network.latency)}" for network in peers)
    return (
        f"{result.settings.network}: {latency(tuned.latency)} tuned; {f'{compared}; ' if compared else ''}"
        f"after {result.trials} measured programs in {duration(result.searching_seconds)}"
        f"{f' ({result.stopped})' if result.stopped else ''}."
    )


def tables(result: TuneResult) -> list[TableContent]:
    """The tables of a run: its tasks, the time by phase and, after the comparison, the network end to end."""
    parts = [
        *([_struck(result)] if result.struck else []),
        _tasks(result),
        *([_profile(result, result.profile)] if result.profile is not None else []),
        _time(result),
    ]
    return parts if result.end_to_end is None else [*parts, _end_to_end(result)]


def _tasks(result: TuneResult) -> TableContent:
    whole = result.latency
    # Unused tasks come last.
    ordered = sorted(
        zip(result.used, result.tasks, strict=True), key=lambda pair: (-pair[0], -pair[1].weight * pair[1].latency)
    )
    rows = [
        (
            task.name,
            str(task.weight),
            latency(task.latency),
            "-" if math.isinf(whole) or not used else f"{100 * task.weight * task.latency / whole:.1f} %",
            *_speed(result, task.flops, task.latency),
            _share(result.share_of_roofline(task)),
            str(task.trials),
            str(task.failed),
        )
        for used, task in ordered
    ]
    failed = sum(task.failed for task in result.tasks)
    times = (latency(whole), "100.0 %")
    rows.append(
        ("weighted sum", "", *times, *_speed(result, result.flops, whole), "", str(result.trials), str(failed)),
    )
    return TableContent(
        "Tasks",
        ("task", "weight", "latency", "share", *_SPEED, "of roofline", "trials", "failed"),
        rows,
        _kept(result),
    )


def _profile(result: TuneResult, profile: Profile) -> TableContent:
    """The time of the library by task, beside the time that the search measured."""
    groups: dict[int | str, tuple[int, float]] = {}
    kernels = [kernel for kernel in profile.kernels if not kernel.name.startswith(_BUILT_IN)]
    for kernel in kernels:
        places = result.kernels.get(kernel.name, [])
        group = places[0] if len(places) == 1 else kernel.name
        calls, seconds = groups.get(group, (0, 0.0))
        groups[group] = (calls + kernel.calls, seconds + kernel.seconds)
    rows, apart = [], []
    for group, (calls, seconds) in sorted(groups.items(), key=lambda item: -item[1][1]):
        places = [group] if isinstance(group, int) else result.kernels.get(group, [])
        searched = calls * sum(result.tasks[place].latency for place in places) if places else math.inf
        name = result.tasks[group].name if isinstance(group, int) else f"{group}{'' if places else ' (no task)'}"
        share = f"{100 * seconds / profile.seconds:.1f} %"
        rows.append((name, str(calls), latency(searched), latency(seconds), share, _signed(seconds - searched)))
        if _NOTABLE * profile.seconds < abs(seconds - searched) < math.inf:
            apart.append(f"{name} ({_signed(seconds - searched)})")
    outside = profile.seconds - sum(kernel.seconds for kernel in kernels)
    share = f"{100 * outside / profile.seconds:.1f} %"
    rows.append(("outside the kernels", "", "-", _signed(outside), share, "-"))
    rows.append(("whole", str(sum(kernel.calls for kernel in kernels)), "-", latency(profile.seconds), "100.0 %", "-"))
    added = max(0.0, profile.profiled - profile.seconds) / sum(kernel.calls for kernel in profile.kernels)
    built_in = [
        f"{kernel.name.removeprefix(_BUILT_IN)} {kernel.calls}x {latency(kernel.seconds)}"
        for kernel in profile.kernels
        if kernel not in kernels
    ]
    sentences = [
        "Slowest first; search: calls times the latency in the search, which has other values in memory and caches; "
        "of a sequence of kernels, the sum of theirs.",
        f"A run takes {latency(profile.seconds)}, and with the profiler {latency(profile.profiled)}: it adds "
        f"{latency(added)} to a call, a part of it to the call's time. Nothing is scaled.",
    ]
    if built_in:
        sentences.append(f"Built-in functions, which take less without the profiler: {', '.join(built_in)}.")
    if apart:
        sentences.append(f"Search and library differ by more than a tenth of the network: {', '.join(apart)}.")
    columns = ("kernel", "calls", "search", "library", "share", "difference")
    return TableContent("Profile of the library", columns, rows, " ".join(sentences))


def _signed(seconds: float) -> str:
    """Seconds with their sign."""
    return f"{'-' if seconds < 0 else '+'}{latency(abs(seconds))}" if math.isfinite(seconds) else "-"


def _struck(result: TuneResult) -> TableContent:
    """The programs with wrong outputs."""
    rows = [(program.task, f"it {program.reason}") for program in result.struck]
    note = "The next fastest programs are used instead. The schedule steps of each program are in tuning.json."
    return TableContent("Struck off: programs with wrong outputs", ("task", "reason"), rows, note)


def _speed(result: TuneResult, flops: float, seconds: float) -> tuple[str, str]:
    """The columns of _SPEED; - for tasks that only move data."""
    share = result.share_of_matrix_product(flops, seconds)
    speed = f"{flops / seconds / 1e9:.3g}" if flops and math.isfinite(seconds) else "-"
    return speed, _share(share)


def _share(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def _kept(result: TuneResult) -> str:
    """The note on tasks without a tuned schedule."""
    used = [task for task, is_used in zip(result.tasks, result.used, strict=True) if is_used]
    replaced = [task.name for task in result.tasks if task not in used]
    sentences = ["Slowest first; share of the weighted sum."]
    if result.copies:
        sentences.append(
            "Roofline: the time of the operations at the speed of a large matrix product or of the fastest task, or of "
            "the bytes at the speed of a copy, whichever is longer; reads alone may be faster."
        )
    slower = [task.name for task in used if task.best is not None and not task.improved]
    if result.settings.trials == 0:
        sentences.append("No program was measured: the cost model chose the schedules.")
    else:
        measured = [task for task in used if math.isfinite(task.latency)]
        kept = {
            "Not measured, schedule chosen by the cost model": [task for task in used if task not in measured],
            "Not searched, default schedule kept": [task for task in measured if not task.trials],
            "Every program failed, default schedule kept": [t for t in measured if t.trials and t.best is None],
        }
        sentences += [f"{why}: {', '.join(task.name for task in tasks)}." for why, tasks in kept.items() if tasks]
    if slower:
        sentences.append(f"No schedule faster than the default, default kept: {', '.join(slower)}.")
    if replaced:
        sentences.append(f"Not used, replaced by faster equivalent tasks: {', '.join(replaced)}.")
    return " ".join(sentences)


def _end_to_end(result: TuneResult) -> TableContent:
    assert result.end_to_end is not None
    compared = result.end_to_end
    rows = [
        (
            network.name,
            latency(network.latency),
            latency(min(network.seconds)),
            latency(max(network.seconds)),
            _ratio(network.latency, compared.tuned.latency),
            *_speed(result, result.flops, network.latency),
            "-" if network.difference is None else f"{network.difference:.2g}",
        )
        for network in compared.networks
        if network.seconds
    ]
    sentences = [
        f"{len(compared.tuned.seconds)} interleaved repeats, each network in a separate process on all cores.",
        f"Difference from {compared.reference}, relative to the largest output value.",
    ]
    if compared.matrix_product is not None:
        sentences.append(f"matmul: PyTorch's product of large matrices, {compared.matrix_product / 1e9:.0f} GFLOPS.")
    sentences += [f"{peer.name} cannot be timed: {peer.failure}." for peer in compared.networks if not peer.seconds]
    return TableContent(
        f"{result.settings.network}, end to end",
        ("network", "median", "fastest", "slowest", "over tuned", *_SPEED, "difference"),
        rows,
        " ".join(sentences),
    )


def _time(result: TuneResult) -> TableContent:
    total = sum(result.seconds.values()) or math.inf
    rows = [
        (phase, f"{result.seconds.get(phase, 0.0):.1f} s", f"{100 * result.seconds.get(phase, 0.0) / total:.1f} %")
        for phase in PHASES
    ]
    rows.append(("all", f"{sum(result.seconds.values()):.1f} s", "100.0 %"))
    return TableContent(
        "Time by phase",
        ("phase", "seconds", "share"),
        rows,
        "Prediction includes feature or graph extraction; running includes waiting for other measurements on "
        "this machine; preparation loads the network and measures the default schedules of small tasks; verification "
        "compares the chosen schedules with the default schedules; compilation writes the library and checks it; "
        "comparison compiles the untuned network and times both and the peers.",
    )


def _settings(result: TuneResult) -> TableContent:
    settings = result.settings
    rows = [
        ("scheduler", settings.scheduler),
        ("network", settings.network),
        ("cost model", settings.cost_model),
        ("trials", "-" if settings.trials is None else str(settings.trials)),
        ("minutes", "-" if settings.minutes is None else f"{settings.minutes:g}"),
        ("batch size", str(settings.batch_size)),
        ("population size", str(settings.population_size)),
        ("seed", str(settings.seed)),
        ("target", settings.target),
        ("date", result.date),
        *((name.replace("_gib", ", GiB"), str(value)) for name, value in result.machine.items()),
        *result.versions.items(),
    ]
    return TableContent("Settings, machine and versions", ("", ""), rows)


def latency(seconds: float) -> str:
    """Seconds as text with three significant digits, in s, ms, µs or ns."""
    if not math.isfinite(seconds):
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        # From here on it rounds to at least 1.
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
    def draw(axes: Axes) -> None:
        axes.step(x, y, where="post", marker="o", markersize=3, color=_BLUE, gid="curve")
        axes.set(xlabel=label, ylabel="weighted sum of best latencies, ms")
        if max(y) > 5 * min(y):
            axes.set_yscale("log")

    return _svg(draw, 3.4, label)


def _bars(networks: Sequence[NetworkTimes]) -> Markup:
    """The end-to-end latencies as bars, without networks that would dwarf the others."""
    timed = [network for network in networks if network.seconds]
    longest = max(network.latency for network in timed if network.name != "untuned")  # the tuned network has times
    shown = [network for network in timed if network.latency <= 4 * longest][::-1]

    def draw(axes: Axes) -> None:
        colors = [_BLUE if network.name == "tuned" else "#8c959f" for network in shown]
        bars = axes.barh(
            [network.name for network in shown], [1e3 * network.latency for network in shown], color=colors
        )
        axes.bar_label(bars, [latency(network.latency) for network in shown], padding=3)
        axes.set(xlabel="median latency, ms")
        axes.margins(x=0.2)

    return _svg(draw, 0.8 + 0.4 * len(shown), "bars")


def _svg(draw: Callable[[Axes], None], height: float, salt: str) -> Markup:
    """A figure as inline SVG, of the given height in inches."""
    import matplotlib

    # Without different salts, the ids of two figures on a page would clash. Names may contain dollars.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt, "text.parse_math": False}):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, height), layout="constrained")
        axes = figure.add_subplot()
        axes.set_axisbelow(True)
        axes.grid(visible=True, which="both", alpha=0.3)
        draw(axes)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = file.getvalue()
    # Inline SVG has no XML declaration and document type.
    return Markup(svg[svg.index("<svg") :])
