"""The sections of the page of all results: each benchmark's JSON as tables and figures."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from markupsafe import Markup

import engines_tables
import figures
import search_curves
from common import cell
from tvm_gnn_cost.graphs.embedding import plot_vectors
from tvm_gnn_cost.scoring.checkpoint import DEFAULT, Checkpoint

#: Suffix of a scheduler's results -> its name on the page.
_SCHEDULERS = {"": "MetaSchedule", "-auto-scheduler": "auto_scheduler"}
_MODELS = ("gnn", "xgb", "mlp")
_METRICS = {
    "pairwise_accuracy": "pairwise accuracy",
    "top1": "top-1",
    "top5": "top-5",
    "huber": "Huber",
    "rmse": "RMSE",
}

Results = Mapping[str, Mapping[str, Any]]
Row = tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """A section of the page.

    Attributes:
        title: Its heading.
        text: What it shows, in one or two sentences.
        sources: The results that it comes from.
        columns: Heads of its table; empty without a table.
        rows: Cells of its table.
        pictures: Its figures.
    """

    title: str
    text: str
    sources: tuple[str, ...]
    columns: Row = ()
    rows: Sequence[Row] = ()
    pictures: Sequence[Markup] = ()

    @property
    def anchor(self) -> str:
        """Its name in links."""
        return "".join(letter if letter.isalnum() else "-" for letter in self.title.lower())


def _digits(value: float) -> str:
    """At least three significant digits."""
    return f"{value:#.3g}" if abs(value) < 100 else f"{value:.0f}"


def _pair(value: Mapping[str, float]) -> tuple[float, float]:
    return value["mean"], value["std"]


def _rows(models: Mapping[str, Mapping[str, Any]], metrics: Sequence[str] = tuple(_METRICS)) -> list[Row]:
    """A row for each model, with the mean and standard deviation of each metric."""
    return [(model, *(cell(values[metric]) for metric in metrics)) for model, values in models.items()]


def _by_scheduler(results: Results, benchmark: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The scheduler's name, the result's name and its metrics, for each scheduler that has the result."""
    for suffix, scheduler in _SCHEDULERS.items():
        if f"{benchmark}{suffix}" in results:
            yield scheduler, f"{benchmark}{suffix}", results[f"{benchmark}{suffix}"]["metrics"]


def _summary(results: Results) -> Iterator[Section]:
    rows: list[Row] = []
    sources: list[str] = []
    for scheduler, name, metrics in _by_scheduler(results, "accuracy"):
        sources.append(name)
        for metric in ("pairwise_accuracy", "top1", "top5"):
            ours, *baselines = (metrics["models"][model][metric] for model in _MODELS)
            best = max(baselines, key=lambda value: float(value["mean"]))
            change = 1 - (1 - ours["mean"]) / (1 - best["mean"])
            better = f"{100 * change:.0f}% lower error"
            rows.append((f"{scheduler}: {_METRICS[metric]}", cell(ours), cell(best), better))
    for scheduler, name, metrics in _by_scheduler(results, "search"):
        sources.append(name)
        values = metrics["against"]["xgb"]["gnn"]
        for key, title in (
            ("wall_clock_to_its_final", "search time to the final latency of XGBModel, relative"),
            ("final_latency", "final latency of a search, relative"),
        ):
            if (value := values.get(key)) is not None:
                rows.append((f"{scheduler}: {title}", _digits(value), "1", f"{_digits(1 / value)}x"))
    for scheduler, name, metrics in _by_scheduler(results, "prediction"):
        sources.append(name)
        speed = _digits(metrics["speedup_over_xgb"])
        rows.append((f"{scheduler}: candidates scored per second, relative", speed, "1", f"{speed}x"))
    text = (
        "This model and the better of TVM's two cost models on the same programs of held-out networks. All data was "
        "measured on CPUs with 2 cores."
    )
    yield Section("Summary", text, tuple(sources), ("", "this model", "best TVM baseline", ""), rows)


def _accuracy(results: Results) -> Iterator[Section]:
    for scheduler, name, metrics in _by_scheduler(results, "accuracy"):
        settings = results[name]["settings"]
        compared = [model for model in _MODELS if model in metrics["models"]]
        pictures = [
            figures.grouped_bars(
                {
                    group: {model: _pair(values[model]["pairwise_accuracy"]) for model in compared}
                    for group, values in metrics[part].items()
                },
                "pairwise accuracy",
                0.5,
            )
            for part in ("networks", "processors")
        ]
        text = (
            f"{settings['test_programs']} programs of the held-out networks {', '.join(settings['held_out'])}; trained "
            f"on {settings['train_programs']}. Mean and standard deviation over {len(settings['seeds'])} seeds. The "
            "figures show pairwise accuracy by network and by processor."
        )
        rows = _rows(metrics["models"])
        yield Section(f"Accuracy, {scheduler}", text, (name,), ("model", *_METRICS.values()), rows, pictures)


def _by_task(results: Results) -> Iterator[Section]:
    for scheduler, name, metrics in _by_scheduler(results, "by_task"):
        models, tasks, throughput = list(metrics["models"]), metrics["tasks"], metrics["throughput"]
        worst = sorted(tasks, key=lambda task: float(task["gnn"]))[:10]
        rows = [(task["task"], str(task["programs"]), *(f"{task[model]:.3f}" for model in models)) for task in worst]
        accuracy = {model: [task[model] for task in tasks] for model in models}
        pictures = [
            figures.sorted_curves(accuracy, "share of the tasks, %", "pairwise accuracy"),
            *(figures.predicted_against_measured(one, throughput[one], throughput["measured"]) for one in models),
        ]
        text = (
            f"The shipped checkpoint and XGBModel on each of {len(tasks)} tasks; the table has the ten tasks with the "
            "lowest pairwise accuracy. Throughput is relative to the fastest program of the task."
        )
        columns = ("task", "programs", *(f"{model}, pairwise accuracy" for model in models))
        yield Section(f"Accuracy by task, {scheduler}", text, (name,), columns, rows, pictures)


def _tpgnn(results: Results) -> Iterator[Section]:
    # It was trained on one processor's programs alone: their full trees are large.
    result = results["accuracy-tpgnn"]
    ((processor, models),) = result["metrics"]["processors"].items()
    compared = results.get("accuracy", {}).get("metrics", {}).get("processors", {}).get(processor, {})
    models = {f"tpgnn, trained on {processor} alone": models["tpgnn"]} | {
        f"{name}, trained on all processors": compared[name] for name in _MODELS if name in compared
    }
    settings = result["settings"]
    text = (
        f"TPGNN with its published architecture and loss: {settings['epochs']} epochs, {len(settings['seeds'])} seed, "
        f"tested on {settings['test_programs']} programs of {processor}."
    )
    sources = ("accuracy-tpgnn", *(("accuracy",) if compared else ()))
    yield Section("TPGNN as published", text, sources, ("model", *_METRICS.values()), _rows(models))


def _updates(results: Results) -> Iterator[Section]:
    rows, sources = [], []
    for scheduler, name, metrics in _by_scheduler(results, "updates"):
        sources.append(name)
        for part, values in metrics["parts"].items():
            for model, row in values["models"].items():
                cells = (cell(row["pairwise_accuracy"]), cell(row["top1"]))
                rows.append((scheduler, part, str(values["tasks"]), model, *cells))
    columns = ("scheduler", "tested on", "tasks", "", "pairwise accuracy", "top-1")
    text = (
        "The model learns from half of a task's programs, one task after another, and the other half is scored, in a "
        "replay of measured programs of held-out networks."
    )
    yield Section("Learning in a search", text, tuple(sources), columns, rows)


def _learning(results: Results) -> Iterator[Section]:
    metrics, settings = results["curves"]["metrics"]["models"], results["curves"]["settings"]

    def line(points: Sequence[Mapping[str, Any]], metric: str) -> list[tuple[int, float, float]]:
        whole = [point for point in points if point["programs_per_task"] is None]
        return [(point["programs"], *_pair(point["metrics"][metric])) for point in whole]

    shown = ("pairwise_accuracy", "top1", "top5")
    rows = [
        (model, str(point["tasks"]), str(point["programs"]), *(cell(point["metrics"][metric]) for metric in shown))
        for model, points in metrics.items()
        for point in sorted(points, key=lambda point: int(point["programs"]))
    ]
    text = (
        f"Accuracy against the number of measured programs; {settings['epochs'] or 'default'} epochs, "
        f"{len(settings['seeds'])} seeds. The figures have all programs of a part of the tasks, the table also a part "
        "of the programs of all tasks."
    )
    pictures = [
        figures.learning_curves({model: line(points, metric) for model, points in metrics.items()}, _METRICS[metric])
        for metric in ("pairwise_accuracy", "top1")
    ]
    columns = ("model", "tasks", "programs", *(_METRICS[metric] for metric in shown))
    yield Section("Learning curves", text, ("curves",), columns, rows, pictures)


def _new_processor(results: Results) -> Iterator[Section]:
    for scheduler, name, metrics in _by_scheduler(results, "new_processor"):
        rows, pictures = [], []
        for part, points in metrics["parts"].items():
            levels: dict[str, float] = {}
            curves: dict[str, list[tuple[int, float, float]]] = {}
            for point in points:
                program_counts = (str(point["tasks"]), str(point["programs"]))
                cells = [cell(point["metrics"][metric]) for metric in ("pairwise_accuracy", "regret", "top1")]
                rows.append((part, point["model"], *program_counts, *cells))
                accuracy = _pair(point["metrics"]["pairwise_accuracy"])
                if point["model"].endswith(" processors"):
                    levels[point["model"]] = accuracy[0]
                else:
                    curves.setdefault(point["model"], []).append((point["programs"], *accuracy))
            pictures.append(figures.learning_curves(curves, _METRICS["pairwise_accuracy"], part, levels))
        text = (
            "A model that learned from all other processors, as it is and fine-tuned on some tasks of the new one; a "
            "new model and XGBModel that learned from these tasks alone; and a model of all processors. Programs of "
            f"held-out networks on the new processor, {len(results[name]['settings']['seeds'])} seeds."
        )
        columns = ("processor", "model", "tasks", "programs", "pairwise accuracy", "regret", "top-1")
        yield Section(f"A new processor, {scheduler}", text, (name,), columns, rows, pictures)


def _drop_in(results: Results) -> Iterator[Section]:
    for scheduler, name, metrics in _by_scheduler(results, "drop_in"):
        settings, runs = results[name]["settings"], metrics["runs"]
        rows = [
            (baseline, *row)
            for baseline in search_curves.DROP_IN_BASELINES
            for row in search_curves.drop_in_rows(runs, baseline)
            if row[0] != baseline
        ]
        text = (
            f"TVM's own search of {len({run['task'] for run in runs})} tasks in TVM's own design space, "
            f"{settings['trials']} programs, where only the cost model changes; XGBModel() scores at random until it "
            "has 100 measurements. Ratios of latencies are geometric means over tasks and seeds, except for the median "
            "of the latency after 16 programs by the baseline's after 64. The figures have the mean over the tasks and "
            "seeds that all models have searched on one processor."
        )
        columns = ("baseline", *search_curves.DROP_IN_COLUMNS)
        pictures = [
            figures.mean_descents(search_curves.relative_curves(runs, against), against)
            for against in ("trials", "seconds")
        ]
        yield Section(f"In TVM's own search, {scheduler}", text, (name,), columns, rows, pictures)
        text = (
            "The same searches: latency relative to that of the fastest program that any search of the task has found "
            "on the same processor, with whichever model and seed; geometric means over tasks, seeds and processors."
        )
        rows = search_curves.rows_above_fastest(runs)
        columns = search_curves.ABOVE_FASTEST_COLUMNS
        yield Section(f"Beside the fastest program of all searches, {scheduler}", text, (name,), columns, rows)


def _searches(results: Results) -> Iterator[Section]:
    for scheduler, name, metrics in _by_scheduler(results, "search"):
        settings = results[name]["settings"]
        columns = {
            "wall_clock_to_its_final": "time to the baseline's final latency",
            "trials_to_its_final": "trials to it",
            "wall_clock_to_near_its_final": "time to 5% above it",
            "latency_after_1": "latency after 1 trial",
            "final_latency": "final latency",
            "final_latency_worst": "worst",
        }
        rows = [
            (model, baseline, *("never" if values.get(key) is None else _digits(values[key]) for key in columns))
            for baseline, models in metrics["against"].items()
            for model, values in models.items()
        ]
        text = (
            f"{settings['trials']} trials per task and run in the search of tune, seeds: {settings['seeds']}; tvm: "
            "TVM's own search and design space, one seed. Every number is a median relative to the baseline. The "
            "figures have one line per seed."
        )
        pictures = _descents(metrics["runs"])
        heads = ("model", "baseline", *columns.values())
        yield Section(f"Searches, {scheduler}", text, (name,), heads, rows, pictures)


def _descents(searches: Sequence[Mapping[str, Any]]) -> list[Markup]:
    """Figures of the latency of each task against trials and seconds."""
    runs: dict[str, dict[str, list[Any]]] = {}
    for run in searches:
        if run.get("improvements"):
            runs.setdefault(run["task"], {}).setdefault(run["model"], []).append(run["improvements"])
    return [figures.descents(task, models, by) for task, models in runs.items() for by in ("trials", "seconds")]


def _zoo(results: Results) -> Iterator[Section]:
    def cells(network: Mapping[str, Any]) -> Row:
        if "milliseconds" not in network:
            return ("", "", "", "", "", network["verdict"])
        times = network["milliseconds"]
        return (
            *(str(network["tasks"]), f"{network['seconds']:.0f}", f"{network['difference']:.0e}"),
            *(_digits(times["library"]), _digits(times["library"] / times["ONNX Runtime"]), network["verdict"]),
        )

    columns = ("network", "tasks", "tuning, s", "difference", "latency, ms", "relative to ONNX Runtime", "verdict")
    text = (
        "Third-party networks, tuned with 0 trials: the time until the library is written, the largest difference from "
        "the framework's outputs relative to the largest value of the output, and the latency."
    )
    rows = [(name, *cells(network)) for name, network in results["zoo"]["metrics"]["networks"].items()]
    yield Section("Third-party networks", text, ("zoo",), columns, rows)


def _engines(results: Results) -> Iterator[Section]:
    networks, settings = results["engines"]["metrics"]["networks"], results["engines"]["settings"]
    minutes, sources = settings["minutes"], ("engines",)
    text = (
        "Networks that this package was not tuned for, without a measurement and after "
        f"{minutes:g} minutes, and the engines that could be installed instead: quartiles of {settings['turns']} "
        "interleaved turns in ms."
    )
    plain = engines_tables.plain
    rows = list(map(plain, engines_tables.rows(networks, minutes)))
    pictures = [engines_tables.picture(networks, minutes)]
    yield Section("Engines", text, sources, plain(engines_tables.columns(networks)), rows, pictures)
    text = "Geometric means of the engine's time divided by ours."
    rows = engines_tables.family_rows(networks, minutes)
    yield Section("Engines by family", text, sources, plain(engines_tables.FAMILY_COLUMNS), rows)


def _kernels(results: Results) -> Iterator[Section]:
    metrics = results["kernels"]["metrics"]
    titles = {
        "elementwise": (
            "Elementwise functions",
            "ns per element of vectorized loops on one thread, with relative errors",
        ),
        "products": ("Products with odd numbers of columns", "the fastest of random candidates"),
        "rows": ("Row kernels", "the fastest of random candidates, with TVM's rules and with those of this package"),
    }
    for group, (title, text) in titles.items():
        found = metrics[group]
        rows = [(name, *(f"{value:.3g}" for value in row.values())) for name, row in found.items()]
        yield Section(title, text, ("kernels",), ("kernel", *next(iter(found.values()))), rows)


def _conformance(results: Results) -> Iterator[Section]:
    rows = [(verdict, str(count)) for verdict, count in results["conformance"]["metrics"]["verdicts"].items()]
    text = "ONNX's operator tests with default schedules; docs/reference/onnx-operators.md lists the operators."
    yield Section("ONNX operator tests", text, ("conformance",), ("verdict", "tests"), rows)


def _cuda(results: Results) -> Iterator[Section]:
    metrics = results["cuda_programs"]["metrics"]
    text = (
        f"{metrics['programs']['programs']} programs of ResNet-34 in a published MetaSchedule database of an NVIDIA "
        "A100, cross-validated by task."
    )
    rows = _rows(metrics["models"])
    yield Section("CUDA programs", text, ("cuda_programs",), ("model", *_METRICS.values()), rows)


def _gpu_search(results: Results) -> Iterator[Section]:
    metrics, settings = results["gpu_search"]["metrics"], results["gpu_search"]["settings"]
    columns = (
        *("task", "model", "seed", "trials", "first program, us", "fastest of the first 16, us", "fastest, us"),
        "wall clock, s",
    )
    rows: list[Row] = []
    for run in metrics["runs"]:
        latencies = [1e6 * (math.inf if latency is None else latency) for latency in run["latencies_s"]]
        fastest = (_digits(min(latencies[:trials])) for trials in (1, 16, len(latencies)))
        numbers = (str(run["seed"]), str(len(latencies)), *fastest, f"{run['wall_clock_s']:.0f}")
        rows.append((run["task"], run["model"], *numbers))
    text = (
        f"TVM's own search on an {settings['gpu']}, {settings['at_once']} searches at a time; gnn-a100 and xgb-a100 "
        f"were trained on the records of an A100. {settings['finished']} of {settings['planned']} searches finished. "
        "Latencies are those of TVM's runner during the search."
    )
    yield Section("Searches on a GPU", text, ("gpu_search",), columns, rows, _descents(metrics["runs"]))


def _gpu_training(results: Results) -> Iterator[Section]:
    metrics, settings = results["gpu_training"]["metrics"], results["gpu_training"]["settings"]
    rows = [
        (f"seconds per epoch, {way}", _digits(statistics.median(times))) for way, times in metrics["epoch_s"].items()
    ]
    devices = {device: values for device, values in metrics["scoring"].items() if isinstance(values, Mapping)}
    for device, values in devices.items():
        rates = {key: value for key, value in values.items() if key.endswith("_at_once")}
        rows += [
            (f"programs scored per second, {device}, batches of {key.partition('_')[0]}", _digits(rate))
            for key, rate in rates.items()
        ]
        rows.append((f"largest difference from the scores on the CPU, {device}", f"{values['difference']:.1e}"))
    rows += [
        (f"{_METRICS[metric]}, trained on {device}", cell(values[metric]))
        for device, values in metrics["models"].items()
        for metric in ("pairwise_accuracy", "top1", "top5")
    ]
    text = (
        f"The network without the trees, on an {settings['gpu']} and the {settings['cores']} cores of its machine, on "
        f"the programs of the section CUDA programs; seeds: {len(settings['seeds'])}."
    )
    yield Section("Training and scoring on a GPU", text, ("gpu_training",), ("", "value"), rows)


def _soak(results: Results) -> Iterator[Section]:
    metrics, settings = results["soak"]["metrics"], results["soak"]["settings"]
    titles, columns = settings["figures"], metrics["by_minute"]
    rows = [
        (title, *(_digits(metrics["medians"][name][part]) for part in ("second_quarter", "last_quarter", "ratio")))
        for name, title in titles.items()
    ]
    pictures = [figures.against_minutes(columns["minute"], columns[name], title) for name, title in titles.items()]
    text = (
        f"Medians of the second and the last quarter of a search of {settings['network']} for "
        f"{settings['minutes']:g} minutes."
    )
    yield Section("Long search", text, ("soak",), ("", "second quarter", "last quarter", "ratio"), rows, pictures)


def _kills(results: Results) -> Iterator[Section]:
    rows, sources = [], []
    for scheduler, name, metrics in _by_scheduler(results, "kills"):
        sources.append(name)
        for command, values in metrics["commands"].items():
            counts = (values["kills"], values["after_commit"], len(values["problems"]))
            rows.append((scheduler, command, f"{values['seconds']:.0f}", *map(str, counts)))
    text = (
        "Each command is killed at random times and resumed. A problem is a loss of committed results, or an outcome "
        "that differs from that of an uninterrupted run."
    )
    columns = ("scheduler", "command", "uninterrupted, s", "kills", "after the first commit", "problems")
    yield Section("Kills", text, tuple(sources), columns, rows)


def _end_to_end(results: Results) -> Iterator[Section]:
    metrics = results["end_to_end"]["metrics"]
    rows, groups = [], {}
    for network, contestants in metrics["milliseconds"].items():
        medians = {name: values["median"] for name, values in contestants.items() if name != "matrix product"}
        rows += [(network, name, f"{median:.1f}") for name, median in medians.items()]
        # A model's libraries after the search, of all seeds; those without a measurement are in the table.
        latencies: dict[str, list[float]] = {}
        for name, median in medians.items():
            if not name.endswith(" 0 minutes"):
                latencies.setdefault(name.partition(" seed ")[0], []).append(median)
        groups[network] = {name: (statistics.mean(values), 0.0) for name, values in latencies.items()}
    yield Section(
        "Networks end to end",
        "Median latency of interleaved runs, each library in its own process; batch size 1, float32.",
        ("end_to_end",),
        ("network", "", "ms"),
        rows,
        [figures.grouped_bars(groups, "latency, ms")],
    )
    seconds = {
        f"{point['network']}, {point['model']}, seed {point['seed']}": {
            phase: spent for phase, spent in point["seconds"].items() if phase not in ("compilation", "verification")
        }
        for point in metrics["points"]
        if point["minutes"] and "seconds" in point
    }
    pictures = [figures.stacked_bars(seconds, "seconds")] if seconds else ()
    text = "Seconds of each phase of these searches, including loading the network."
    yield Section("Time of a search by phase", text, ("end_to_end",), pictures=pictures)


def _speed(results: Results) -> Iterator[Section]:
    rows, sources = [], []
    for scheduler, name, metrics in _by_scheduler(results, "prediction"):
        sources.append(name)
        for one in metrics["populations"]:
            times = (f"{1e3 * one[key]:.0f}" for key in ("gnn_s", "extraction_s", "xgb_s", "features_s"))
            rows.append((scheduler, one["network"], one["task"], *times, f"{_digits(one['speedup'])}x"))
    columns = (
        *("scheduler", "network", "task"),
        *("this model, ms", "its extraction", "XGBModel, ms", "its features", "speedup"),
    )
    text = "Time to score a population of candidates, including feature or graph extraction, on an idle machine."
    yield Section("Scoring speed", text, tuple(sources), columns, rows)


def _scale(results: Results) -> Iterator[Section]:
    rows, sources, text = [], [], "Programs per second and peak memory of each step on a large store."
    for scheduler, name, metrics in _by_scheduler(results, "scale"):
        sources.append(name)
        for store in metrics["stores"]:
            steps = [store[step] for step in ("writing", "reading", "drawing", "training")]
            rates = [f"{step['per_second']:.0f}" for step in steps[:3]]
            peaks = " / ".join(f"{step['peak_mib']:.0f}" for step in steps)
            disk = f"{store['writing']['bytes_per_program']:.0f}"
            rows.append((scheduler, f"{store['programs']:,}", disk, *rates, f"{steps[3]['epoch_seconds']:.1f}", peaks))
        tenset = metrics["tenset"]
        text += (
            f" Extrapolated to the 52 million programs of TenSet with {scheduler}: {tenset['extraction_days']:.1f} "
            f"days of extraction on 16 cores, {tenset['gigabytes']:.0f} GB."
        )
    columns = (
        *("scheduler", "programs", "bytes per program", "written per s", "read per s", "drawn per s"),
        *("s per epoch", "peak memory of each step, MiB"),
    )
    yield Section("Large stores", text, tuple(sources), columns, rows)


def _node_types(_results: Results) -> Iterator[Section]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "types.svg"
        plot_vectors(Checkpoint.load(DEFAULT).vectors, path)
        picture = figures.inline(path.read_text())
    text = "FastText vectors of the node types of MetaSchedule's shipped checkpoint, projected to two dimensions."
    yield Section("Node type vectors", text, (), pictures=[picture])


def _tpugraphs(results: Results) -> Iterator[Section]:
    metrics = results["tpugraphs_accuracy"]["metrics"]
    rows = _rows(metrics["models"], ("kendall_tau", "share_of_retest", "slowdown1", "slowdown10"))
    taus = {model: _pair(values["kendall_tau"]) for model, values in metrics["models"].items()}
    text = (
        "Layout configurations of XLA graphs of held-out networks, measured on a CPU with 2 cores, which says nothing "
        "about TPUs. The line is the tau of two measurements of the same configurations, an upper bound of all models."
    )
    picture = figures.horizontal_bars(taus, "Kendall's tau", ("measured again", metrics["retest_tau"]))
    columns = ("model", "Kendall's tau", "share of the upper bound", "slowdown@1", "slowdown@10")
    yield Section("TpuGraphs", text, ("tpugraphs_accuracy",), columns, rows, [picture])


#: Sections in their order, with the result without which there is none.
_SECTIONS = (
    *((None, _summary), (None, _accuracy), (None, _by_task), ("accuracy-tpgnn", _tpgnn), ("curves", _learning)),
    *((None, _new_processor), (None, _updates)),
    *((None, _drop_in), (None, _searches), ("zoo", _zoo), ("engines", _engines), ("kernels", _kernels)),
    ("conformance", _conformance),
    ("cuda_programs", _cuda),
    *(("gpu_training", _gpu_training), ("gpu_search", _gpu_search), ("soak", _soak)),
    *((None, _kills), ("end_to_end", _end_to_end), (None, _speed), (None, _scale), (None, _node_types)),
    ("tpugraphs_accuracy", _tpugraphs),
)


def sections(results: Results) -> list[Section]:
    """The sections that there are results for."""
    made = [one for needed, make in _SECTIONS if needed is None or needed in results for one in make(results)]
    return [one for one in made if one.sources or one.pictures]
