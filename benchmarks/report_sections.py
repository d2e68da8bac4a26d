"""The parts of the page of all results: what each benchmark's JSON says, as tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from markupsafe import Markup

import figures
from tvm_gnn_cost import Checkpoint
from tvm_gnn_cost.graphs.embedding import plot_vectors
from tvm_gnn_cost.scoring.checkpoint import DEFAULT

#: Name of a scheduler's results -> how it is called on the page.
_SCHEDULERS = {"": "MetaSchedule", "-auto-scheduler": "auto_scheduler"}
_MODELS = ("gnn", "xgb", "mlp")
_METRICS = {"pairwise_accuracy": "pairs in order", "top1": "top-1", "top5": "top-5", "huber": "Huber", "rmse": "RMSE"}
_PARTS = {"gnn": "network and trees", "network alone": "its network alone", "trees alone": "its trees alone"}

Results = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        title: Its heading.
        text: What it shows, in a sentence or two.
        sources: The results that it comes from.
        columns: Of its table; empty if it has none.
        rows: Likewise.
        pictures: Its figures.
    """

    title: str
    text: str
    sources: tuple[str, ...]
    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[str, ...]] = ()
    pictures: Sequence[Markup] = ()

    @property
    def anchor(self) -> str:
        """Its name in links."""
        return "".join(letter if letter.isalnum() else "-" for letter in self.title.lower())


def _cell(value: Mapping[str, float], digits: int = 3) -> str:
    text = f"{value['mean']:.{digits}f}"
    return f"{text} ± {value['std']:.{digits}f}" if value["std"] >= 0.5 * 10**-digits else text


def _pair(value: Mapping[str, float]) -> tuple[float, float]:
    return value["mean"], value["std"]


def _summary(results: Results) -> Section:
    rows: list[tuple[str, ...]] = []
    for suffix, scheduler in _SCHEDULERS.items():
        if accuracy := results.get(f"accuracy{suffix}"):
            models = accuracy["metrics"]["models"]
            for metric in ("pairwise_accuracy", "top1", "top5"):
                ours, theirs = models["gnn"][metric], max((models[name][metric] for name in ("xgb", "mlp")), key=_mean)
                less = 1 - (1 - ours["mean"]) / (1 - theirs["mean"])
                rows.append(
                    (f"{scheduler}: {_METRICS[metric]}", _cell(ours), _cell(theirs), f"{100 * less:.0f}% less error")
                )
        if search := results.get(f"search{suffix}"):
            found = search["metrics"]["against"]["xgb"]["gnn"]
            if found.get("wall_clock_to_its_final") is not None:
                share = found["wall_clock_to_its_final"]
                rows.append(
                    (
                        f"{scheduler}: wall clock of a search to XGBModel's final latency",
                        f"{share:.2f}",
                        "1",
                        f"{1 / share:.1f}x",
                    )
                )
            rows.append(
                (
                    f"{scheduler}: final latency of a search",
                    f"{found['final_latency']:.2f}",
                    "1",
                    f"{1 / found['final_latency']:.2f}x",
                )
            )
        if prediction := results.get(f"prediction{suffix}"):
            speed = prediction["metrics"]["speedup_over_xgb"]
            rows.append((f"{scheduler}: speed of scoring a candidate", f"{speed:.1f}", "1", f"{speed:.1f}x"))
    sources = tuple(
        f"{benchmark}{suffix}"
        for benchmark in ("accuracy", "search", "prediction")
        for suffix in _SCHEDULERS
        if f"{benchmark}{suffix}" in results
    )
    text = (
        "Beside the better of TVM's two cost models on the same programs, on networks that trained nothing. Small data "
        "of 2-core CPUs."
    )
    return Section("Summary", text, sources, ("", "this model", "TVM's", ""), rows)


def _mean(value: Mapping[str, float]) -> float:
    return value["mean"]


def _accuracy(results: Results, suffix: str) -> Section | None:
    name = f"accuracy{suffix}"
    if name not in results:
        return None
    metrics, settings = results[name]["metrics"], results[name]["settings"]
    rows = [
        (_PARTS.get(model, model), *(_cell(values[metric]) for metric in _METRICS))
        for model, values in metrics["models"].items()
    ]
    compared = [model for model in _MODELS if model in metrics["models"]]

    def groups(part: str) -> dict[str, dict[str, tuple[float, float]]]:
        return {
            one: {model: _pair(found[model]["pairwise_accuracy"]) for model in compared}
            for one, found in metrics[part].items()
        }

    text = (
        f"{settings['test_programs']} programs of {', '.join(settings['held_out'])}, which trained nothing; trained on "
        f"{settings['train_programs']}. Mean and standard deviation over {len(settings['seeds'])} seeds; the bars are "
        "pairs in order by network and by processor."
    )
    pictures = [figures.grouped_bars(groups(part), "pairs in order", 0.5) for part in ("networks", "processors")]
    title = f"Accuracy, {_SCHEDULERS[suffix]}"
    return Section(title, text, (name,), ("model", *_METRICS.values()), rows, pictures)


def _by_task(results: Results, suffix: str) -> Section | None:
    name = f"by_task{suffix}"
    if name not in results:
        return None
    metrics = results[name]["metrics"]
    models, tasks, throughput = list(metrics["models"]), metrics["tasks"], metrics["throughput"]
    pairs = {model: [task[model] for task in tasks] for model in models}
    worst = sorted(tasks, key=lambda task: float(task["gnn"]))[:10]
    rows = [(task["task"], str(task["programs"]), *(f"{task[model]:.2f}" for model in models)) for task in worst]
    pictures = [
        figures.sorted_curves(pairs, "share of the tasks, %", "pairs in order"),
        *(figures.predicted_against_measured(one, throughput[one], throughput["measured"]) for one in models),
    ]
    text = (
        f"The shipped checkpoint on each of {len(tasks)} tasks, beside XGBModel; the table has the ten that it "
        "orders worst. Throughput is relative to the task's fastest program."
    )
    columns = ("task", "programs", *(f"{model}, pairs in order" for model in models))
    return Section(f"Task by task, {_SCHEDULERS[suffix]}", text, (name,), columns, rows, pictures)


def _learning(results: Results) -> Section | None:
    if "curves" not in results:
        return None
    result = results["curves"]
    models = result["metrics"]["models"]

    def points(metric: str) -> dict[str, list[tuple[int, float, float]]]:
        return {
            model: [
                (one["programs"], *_pair(one["metrics"][metric])) for one in found if one["programs_per_task"] is None
            ]
            for model, found in models.items()
        }

    rows = [
        (
            model,
            str(one["tasks"]),
            str(one["programs"]),
            *(_cell(one["metrics"][metric]) for metric in ("pairwise_accuracy", "top1", "top5")),
        )
        for model, found in models.items()
        for one in sorted(found, key=lambda one: one["programs"])
    ]
    epochs = result["settings"]["epochs"]
    text = (
        f"Accuracy against how much was measured; networks of {epochs or 'the preset'} epochs, "
        f"{len(result['settings']['seeds'])} seeds. The lines have all programs of fewer tasks, the table also fewer "
        "programs of all tasks."
    )
    pictures = [figures.learning_curves(points(metric), _METRICS[metric]) for metric in ("pairwise_accuracy", "top1")]
    columns = ("model", "tasks", "programs", "pairs in order", "top-1", "top-5")
    return Section("Accuracy against the number of measurements", text, ("curves",), columns, rows, pictures)


def _tpgnn(results: Results) -> Section | None:
    """The published model, which was trained on the programs of one processor alone: their full trees are large."""
    if "accuracy-tpgnn" not in results:
        return None
    settings, metrics = results["accuracy-tpgnn"]["settings"], results["accuracy-tpgnn"]["metrics"]
    ((processor, models),) = metrics["processors"].items()
    compared = results.get("accuracy", {}).get("metrics", {}).get("processors", {}).get(processor, {})
    others = {f"{name}, trained on all processors": compared[name] for name in _MODELS if name in compared}
    rows = [
        (model, *(_cell(values[metric]) for metric in _METRICS))
        for model, values in {f"tpgnn, trained on {processor} alone": models["tpgnn"], **others}.items()
    ]
    text = (
        f"TPGNN with its published architecture and loss: {settings['epochs']} epochs, {len(settings['seeds'])} seed, "
        f"tested on {settings['test_programs']} programs of {processor}."
    )
    sources = ("accuracy-tpgnn", *(("accuracy",) if others else ()))
    return Section("TPGNN as published", text, sources, ("model", *_METRICS.values()), rows)


def _search(results: Results, name: str, title: str) -> Section | None:
    if name not in results:
        return None
    metrics, settings = results[name]["metrics"], results[name]["settings"]
    columns = {
        "wall_clock_to_its_final": "wall clock to its final latency",
        "trials_to_its_final": "trials to it",
        "wall_clock_to_near_its_final": "wall clock to 5% above it",
        "latency_after_1": "latency after 1 trial",
        "final_latency": "final latency",
        "final_latency_worst": "worst",
    }
    rows = [
        (model, baseline, *("never" if found.get(key) is None else f"{found[key]:.2f}" for key in columns))
        for baseline, models in metrics["against"].items()
        for model, found in models.items()
    ]
    runs: dict[str, dict[str, list[Any]]] = {}
    for run in metrics["runs"]:
        if run.get("improvements"):
            runs.setdefault(run["task"], {}).setdefault(run["model"], []).append(run["improvements"])
    pictures = [figures.descents(task, own, by) for task, own in runs.items() for by in ("trials", "seconds")]
    text = (
        f"{settings['trials']} trials of each task, {settings['seeds']} seeds, as tune makes them; medians of "
        "fractions of the other model's figures. A line is a seed."
    )
    return Section(title, text, (name,), ("model", "against", *columns.values()), rows, pictures)


def _end_to_end(results: Results) -> list[Section]:
    if "end_to_end" not in results:
        return []
    result = results["end_to_end"]["metrics"]
    rows, groups = [], {}
    for network, found in result["milliseconds"].items():
        medians = {name: one["median"] for name, one in found.items() if name != "matrix product"}
        rows += [(network, name, f"{median:.1f}") for name, median in medians.items()]
        own = [median for name, median in medians.items() if name.startswith("gnn") and not name.endswith(" 0 minutes")]
        peers = {name: (median, 0.0) for name, median in medians.items() if " seed " not in name}
        groups[network] = {"gnn": (sum(own) / len(own), 0.0)} | peers
    seconds = {
        f"{point['network']}, {point['model']}, seed {point['seed']}": {
            phase: spent for phase, spent in point["seconds"].items() if phase not in ("compilation", "verification")
        }
        for point in result["points"]
        if point["minutes"] and "seconds" in point
    }
    networks = Section(
        "Networks end to end",
        "Milliseconds, batch 1, float32: medians of turns, timed in turn, each in a process of its own.",
        ("end_to_end",),
        ("network", "", "ms"),
        rows,
        [figures.grouped_bars(groups, "latency, ms")],
    )
    time = Section(
        "Where the time of a search goes",
        "Seconds of each phase of the searches above, loading the network included.",
        ("end_to_end",),
        pictures=[figures.stacked_bars(seconds, "seconds")] if seconds else (),
    )
    return [networks, time]


def _cuda(results: Results) -> Section | None:
    if "cuda_programs" not in results:
        return None
    metrics = results["cuda_programs"]["metrics"]
    rows = [(model, *(_cell(found[metric]) for metric in _METRICS)) for model, found in metrics["models"].items()]
    text = (
        "Other people's measurements of a ResNet-34 on an A100, each fold of the tasks ranked by models of the others; "
        f"{metrics['programs']['programs']} programs. Nothing was run on a GPU here."
    )
    return Section("CUDA programs", text, ("cuda_programs",), ("model", *_METRICS.values()), rows)


def _soak(results: Results) -> Section | None:
    if "soak" not in results:
        return None
    metrics, settings = results["soak"]["metrics"], results["soak"]["settings"]
    titles = settings["figures"]
    rows = [
        (
            title,
            *(f"{metrics['medians'][name][part]:.1f}" for part in ("second_quarter", "last_quarter")),
            f"{metrics['medians'][name]['ratio']:.2f}",
        )
        for name, title in titles.items()
    ]
    pictures = [
        figures.against_minutes(metrics["by_minute"]["minute"], metrics["by_minute"][name], title)
        for name, title in titles.items()
    ]
    text = (
        f"A search of {settings['network']} for {settings['minutes']:g} minutes; medians of its second and last "
        "quarter. What should be flat is drawn from zero."
    )
    return Section("A long search", text, ("soak",), ("", "second quarter", "last quarter", "ratio"), rows, pictures)


def _kills(results: Results) -> Section | None:
    rows, sources = [], []
    for suffix, scheduler in _SCHEDULERS.items():
        if f"kills{suffix}" not in results:
            continue
        sources.append(f"kills{suffix}")
        for command, found in results[f"kills{suffix}"]["metrics"]["commands"].items():
            counts = (found["kills"], found["after_commit"], len(found["problems"]))
            rows.append((scheduler, command, f"{found['seconds']:.0f}", *map(str, counts)))
    text = (
        "Every command killed at random moments and run again: nothing that was there is lost, and the outcome is that "
        "of a run without a kill, or it counts as a problem."
    )
    columns = ("scheduler", "command", "seconds without a kill", "kills", "of them after a first result", "problems")
    return Section("Kills", text, tuple(sources), columns, rows) if rows else None


def _zoo(results: Results) -> Section | None:
    if "zoo" not in results:
        return None
    found = results["zoo"]["metrics"]["networks"]

    def cells(one: Mapping[str, Any]) -> tuple[str, ...]:
        if "milliseconds" not in one:
            return ("", "", "", "", "", one["verdict"])
        times = one["milliseconds"]
        share = times["library"] / times["ONNX Runtime"]
        return (
            *(str(one["tasks"]), f"{one['seconds']:.0f}", f"{one['difference']:.0e}"),
            *(f"{times['library']:.2f}", f"{share:.2f}", one["verdict"]),
        )

    columns = ("network", "tasks", "seconds", "difference", "ms", "of ONNX Runtime's", "verdict")
    text = (
        "Networks of other people, tuned without a trial: seconds to the library, the largest difference from the "
        "framework relative to the largest value of an output, and the library's latency beside ONNX Runtime's."
    )
    return Section("Networks of others", text, ("zoo",), columns, [(name, *cells(one)) for name, one in found.items()])


def _conformance(results: Results) -> Section | None:
    if "conformance" not in results:
        return None
    rows = [(verdict, str(count)) for verdict, count in results["conformance"]["metrics"]["verdicts"].items()]
    text = "ONNX's own operator tests, compiled with default schedules; docs/results/networks.md has the operators."
    return Section("ONNX's operator tests", text, ("conformance",), ("verdict", "tests"), rows)


def _speed(results: Results) -> Section | None:
    rows = []
    for suffix, scheduler in _SCHEDULERS.items():
        for one in results.get(f"prediction{suffix}", {}).get("metrics", {}).get("populations", ()):
            rows.append(
                (
                    *(scheduler, one["network"], one["task"]),
                    *(f"{1e3 * one[key]:.0f}" for key in ("gnn_s", "extraction_s", "xgb_s", "features_s")),
                    f"{one['speedup']:.1f}x",
                )
            )
    if not rows:
        return None
    columns = (
        "scheduler",
        "network",
        "task",
        "this model, ms",
        "of it extraction",
        "XGBModel, ms",
        "of it features",
        "speed-up",
    )
    text = "Scoring a population of candidates, extraction included, nothing else running."
    return Section("Speed of scoring", text, ("prediction", "prediction-auto-scheduler"), columns, rows)


def _scale(results: Results) -> Section | None:
    rows, sources, text = [], [], "Programs a second of a large store, and the peak of memory of each step in MiB."
    for suffix, scheduler in _SCHEDULERS.items():
        found = results.get(f"scale{suffix}", {}).get("metrics")
        if found is None:
            continue
        sources.append(f"scale{suffix}")
        for store in found["stores"]:
            steps = [store[step] for step in ("writing", "reading", "drawing", "training")]
            rates = [f"{step['per_second']:.0f}" for step in steps[:3]]
            peaks = " / ".join(f"{step['peak_mib']:.0f}" for step in steps)
            disk = f"{store['writing']['bytes_a_program']:.0f}"
            rows.append((scheduler, f"{store['programs']:,}", disk, *rates, f"{steps[3]['epoch_seconds']:.1f}", peaks))
        tenset = found["tenset"]
        text += (
            f" TenSet's 52 million with {scheduler}'s rates: {tenset['extraction_days']:.1f} days of extraction on "
            f"16 cores, {tenset['gigabytes']:.0f} GB."
        )
    columns = ("scheduler", "programs", "bytes each", "written", "read in order", "drawn", "seconds an epoch", "peaks")
    return Section("Large stores", text, tuple(sources), columns, rows) if rows else None


def _node_types() -> Section:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "types.svg"
        plot_vectors(Checkpoint.load(DEFAULT).vectors, path)
        picture = figures.inline(path.read_text())
    text = "FastText vectors of the node types of MetaSchedule's shipped checkpoint, in two dimensions."
    return Section("The map of node types", text, (), pictures=[picture])


def _tpugraphs(results: Results) -> Section | None:
    if "tpugraphs_accuracy" not in results:
        return None
    metrics = results["tpugraphs_accuracy"]["metrics"]
    columns = ("kendall_tau", "share_of_retest", "slowdown1", "slowdown10")
    rows = [(model, *(_cell(values[key]) for key in columns)) for model, values in metrics["models"].items()]
    taus = {model: _pair(values["kendall_tau"]) for model, values in metrics["models"].items()}
    ceiling = ("measured again", metrics["retest_tau"])
    text = (
        "Layouts of XLA graphs measured on a 2-core CPU, which say nothing of TPUs; ranked on networks that trained "
        "nothing. The line is the tau that the layouts keep when they are measured again: no model can pass it."
    )
    picture = figures.horizontal_bars(taus, "Kendall's tau", ceiling)
    titles = ("model", "Kendall's tau", "share of the ceiling", "slowdown@1", "slowdown@10")
    return Section("TpuGraphs", text, ("tpugraphs_accuracy",), titles, rows, [picture])


def sections(results: Results) -> list[Section]:
    """The parts of the page that there are results for."""
    found: list[Section | None] = [_summary(results)]
    for part in (_accuracy, _by_task):
        found += [part(results, suffix) for suffix in _SCHEDULERS]
    found += [_tpgnn(results), _learning(results)]
    found += [_search(results, f"search{suffix}", f"Searches, {by}") for suffix, by in _SCHEDULERS.items()]
    found.append(_search(results, "search-own", "Searches beside TVM's own, MetaSchedule"))
    found += [_zoo(results), _conformance(results), _cuda(results), _soak(results), _kills(results)]
    found += [*_end_to_end(results), _speed(results), _scale(results), _node_types(), _tpugraphs(results)]
    return [one for one in found if one is not None]
