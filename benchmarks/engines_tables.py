"""The tables, the figure and the page of ``engines.py``, from its result alone."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

import figures

#: This package without a measurement.
UNMEASURED = "tune --trials 0"
ONNX_RUNTIME = "ONNX Runtime"
#: Beginning of the name of TVM's own search.
TVM = "TVM's MetaSchedule"

#: Aims for the best engine's time relative to ours after the search, and for ONNX Runtime's relative to ours without
#: a measurement: geometric mean, and smallest ratio of any network.
TUNED_AIMS = (1.15, 0.9)
UNMEASURED_AIMS = (1.0, 0.7)
#: What `--trials 0` may take relative to the search: geometric mean and largest.
SEARCH_AIMS = (1.1, 1.3)

Network = Mapping[str, Any]
Networks = Mapping[str, Network]


def tuned_name(minutes: float) -> str:
    """The name of this package after a search.

    >>> tuned_name(5.0)
    'tune --minutes 5'
    """
    return f"tune --minutes {minutes:g}"


def times(network: Network) -> dict[str, float]:
    """Engine or library -> the lower quartile of its turns in ms, of those that have times.

    Where a hypervisor at times runs two virtual cores on one physical core, turns have two modes, a factor of 1.6
    apart, and medians compare an engine in one mode with another in the other.
    """
    return {name: found["quartiles"][0] for name, found in network["engines"].items() if "quartiles" in found}


def is_ours(name: str) -> bool:
    """Whether a name in a result is this package, and not an engine or TVM's own search."""
    return name.startswith("tune --")


def best_engine(network: Network) -> tuple[str, float] | None:
    """The fastest engine that computes the network, and its time in ms."""
    others = {name: time for name, time in times(network).items() if not is_ours(name)}
    return min(others.items(), key=lambda one: one[1]) if others else None


def ratio(network: Network, ours: str, engine: str = "") -> float | None:
    """An engine's time divided by ours; the best engine's without a name, None if one of the two has no time."""
    found, best = times(network), best_engine(network)
    theirs = found.get(engine) if engine else best and best[1]
    return theirs / found[ours] if theirs and ours in found else None


def geometric_mean(values: Iterable[float]) -> float | None:
    """The geometric mean; None of no values.

    >>> geometric_mean([0.5, 2.0, 8.0])
    2.0
    """
    several = list(values)
    return statistics.geometric_mean(several) if several else None


def ratios(networks: Networks, ours: str, engine: str = "") -> dict[str, float]:
    """Network -> :func:`ratio`, of those that have it."""
    found = {name: ratio(network, ours, engine) for name, network in networks.items()}
    return {name: value for name, value in found.items() if value is not None}


def verdict(networks: Networks, ours: str, engine: str, aims: tuple[float, float]) -> str:
    """One sentence: the geometric mean and the networks below the smallest ratio, beside the aims."""
    found = ratios(networks, ours, engine)
    mean, (least_mean, least) = geometric_mean(found.values()), aims
    below = {name: value for name, value in sorted(found.items(), key=lambda one: one[1]) if value < least}
    named = ", ".join(f"{name} ({value:.2f})" for name, value in below.items())
    missing = len(networks) - len(found)
    return (
        f"{engine or 'best engine'} / `{ours}`: geometric mean {'-' if mean is None else f'{mean:.2f}'} over "
        f"{len(found)} networks (aim: {least_mean:g}), {len(below)} below {least:g}{f': {named}' if named else ''}"
        f"{f'; {missing} without a time' if missing else ''}."
    )


def without_measurement(networks: Networks, minutes: float) -> str:
    """One sentence: what the search gains over the choice of the model, and where most."""
    found = ratios(networks, tuned_name(minutes), UNMEASURED)
    mean, (aim, most) = geometric_mean(found.values()), SEARCH_AIMS
    if mean is None:
        return f"No network has both `{UNMEASURED}` and `{tuned_name(minutes)}`."
    worst = max(found, key=lambda name: found[name])
    return (
        f"`{UNMEASURED}` / `{tuned_name(minutes)}`: geometric mean {mean:.2f} over {len(found)} networks "
        f"(aim: {aim:g}), largest {found[worst]:.2f} (aim: {most:g}): {worst}."
    )


def family_rows(networks: Networks, minutes: float) -> list[tuple[str, ...]]:
    """A row for each family and for all networks: geometric means of the ratios."""
    columns = [(ours, engine) for ours in (UNMEASURED, tuned_name(minutes)) for engine in (ONNX_RUNTIME, "")]
    families = dict.fromkeys(network["family"] for network in networks.values())
    groups = {family: {n: one for n, one in networks.items() if one["family"] == family} for family in families}
    return [
        (title, str(len(group)), *(_number(geometric_mean(ratios(group, *one).values())) for one in columns))
        for title, group in (groups | {"all": dict(networks)}).items()
    ]


#: Heads of :func:`family_rows`.
FAMILY_COLUMNS = (
    *("family", "networks", "ONNX Runtime / `--trials 0`", "best engine / `--trials 0`"),
    *("ONNX Runtime / `--minutes`", "best engine / `--minutes`"),
)


def engines(networks: Networks) -> list[str]:
    """What was timed for any network, this package first."""
    names = dict.fromkeys(name for network in networks.values() for name in network["engines"])
    return sorted(names, key=lambda name: not is_ours(name))


def rows(networks: Networks, minutes: float) -> list[tuple[str, ...]]:
    """A row for each network: the time of each engine, the best one, and its time relative to ours."""
    columns = engines(networks)
    made = []
    for name, network in networks.items():
        best, found = best_engine(network), times(network)
        fastest = min(found.values(), default=None)
        cells = [_cell(network["engines"].get(one), fastest) for one in columns]
        relative = [_number(ratio(network, ours)) for ours in (UNMEASURED, tuned_name(minutes))]
        made.append((name, *cells, best[0] if best else "-", *relative))
    return made


def columns(networks: Networks) -> tuple[str, ...]:
    """Heads of :func:`rows`."""
    names = (f"`{name}`" if is_ours(name) else name for name in engines(networks))
    return ("network", *names, "best engine", "its time / `--trials 0`", "its time / `--minutes`")


def _cell(found: Mapping[str, Any] | None, fastest: float | None) -> str:
    """The quartiles; bold if the lower one is the fastest engine's."""
    if found is None:
        return ""
    if "quartiles" not in found:
        return "fails"
    low, high = found["quartiles"]
    text = f"{_digits(low)} to {_digits(high)}"
    return f"**{text}**" if low == fastest else text


def _digits(value: float) -> str:
    """At least three significant digits."""
    return f"{value:#.3g}" if value < 99.95 else f"{value:.0f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def failures(networks: Networks) -> list[tuple[str, str, str]]:
    """Network, engine and reason, of each engine without a time."""
    return [
        (name, engine, found["reason"])
        for name, network in networks.items()
        for engine, found in network["engines"].items()
        if found.get("reason")
    ]


def behind(networks: Networks, minutes: float) -> list[tuple[str, str, str, str]]:
    """Where the engines' time goes, for each network that misses an aim: network, ratio, engine, ms by operator."""
    made = []
    for name, network in networks.items():
        missed = [
            _number(found)
            for ours, engine, (_, least) in (
                (tuned_name(minutes), "", TUNED_AIMS),
                (UNMEASURED, ONNX_RUNTIME, UNMEASURED_AIMS),
            )
            if (found := ratio(network, ours, engine)) is not None and found < least
        ]
        for engine, spent in network.get("profiles", {}).items() if missed else ():
            longest = [f"{operator} {ms:#.2g}" for operator, ms in list(spent.items())[:5]]
            made.append((name, ", ".join(missed), engine, ", ".join(longest)))
    return made


def markdown_table(heads: Sequence[str], body: Iterable[Sequence[str]], names: int = 1) -> str:
    """A table, whose first ``names`` columns are aligned to the left."""
    lines = [heads, ["---" if place < names else "---:" for place in range(len(heads))], *body]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def plain(cells: Sequence[str]) -> tuple[str, ...]:
    """Cells without the marks of Markdown."""
    return tuple(cell.replace("**", "").replace("`", "") for cell in cells)


def summary(result: Mapping[str, Any]) -> str:
    """The table of the README: for each network our time after the search and the best engine, whoever is faster."""
    networks, ours = result["metrics"]["networks"], tuned_name(result["settings"]["minutes"])
    body = []
    for name, network in networks.items():
        found, best = times(network), best_engine(network)
        theirs = (best[0], _digits(best[1])) if best else ("-", "-")
        mine = _digits(found[ours]) if ours in found else "-"
        body.append((name, *theirs, mine, _number(ratio(network, ours))))
    heads = ("network", "best engine", "its latency, ms", f"`{ours}`, ms", "ratio ↑")
    return markdown_table(heads, body, 2)


def picture(networks: Networks, minutes: float) -> Markup:
    """The best engine's time relative to ours, for each network, before and after the search."""
    series = {name: ratios(networks, name) for name in (UNMEASURED, tuned_name(minutes))}
    groups = {name: network["family"] for name, network in networks.items()}
    return figures.ratio_dots(groups, series, "time of the best engine / ours (right of 1: ours is faster)")


def machines(networks: Networks) -> str:
    """A list of the machines and checkpoints with the networks that were timed on and with each."""
    groups: dict[str, list[str]] = {}
    for name, network in networks.items():
        machine = network["machine"]
        processor = " ".join((machine["processor"], *(f"({one})" for one in [machine.get("signature")] if one)))
        checkpoint = f"checkpoint {network['checkpoint']}" if "checkpoint" in network else "an earlier checkpoint"
        machine = f"{processor}, {machine['cores']} cores, {machine['system']}, {checkpoint}"
        groups.setdefault(machine, []).append(name)
    return "".join(f"- {machine}: {', '.join(names)}\n" for machine, names in groups.items())


def _about_tvm(networks: Networks) -> str:
    """What TVM's own search was, if a network has it."""
    points = [point for network in networks.values() for point in network.get("points", {}).items()]
    found = [point for name, point in points if name.startswith(TVM)]
    if not found:
        return ""
    longest = max(point.get("seconds", 0.0) for point in found) / 60
    return f"""**{TVM}** is its own `tune_relax` of the network as TVM imports it, with `XGBModel` and a batch of 16
programs, of {len(found)} networks. It records nothing before every task has a batch, and was given the time for that:
up to {longest:.1f} minutes.

"""


def page(result: Mapping[str, Any]) -> str:
    """``docs/results/engines.md``."""
    networks, settings = result["metrics"]["networks"], result["settings"]
    minutes = settings["minutes"]
    busy = max((network.get("other_load", 0.0) for network in networks.values()), default=0.0)
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    body = f"""# Engines
<!-- Written by benchmarks/engines.py --docs . from results/engines.json. -->
`benchmarks/engines.py` tunes networks that this package was not tuned for, and times them with the engines that could
be installed instead, batch 1, float32. Each engine runs in its own process with {settings["threads"]} threads, all of a
network interleaved in {settings["turns"]} turns. An engine that refuses a network, or whose outputs differ from the
framework's by more than the tolerance of the tuned network, has no time.

**The time of an engine is the lower quartile of its turns**, each the median of its runs in 0.2 s. A hypervisor
may at times run both virtual cores on one physical core, which the operating system does not show: a program with two
threads then takes 1.6 to 2 times as long. Medians would compare an engine that met more of that with one that met less;
they are in the JSON with all turns.

{_about_tvm(networks)}\
All engines of a network were timed on the same machine; other processes used at most {busy:.2f} cores meanwhile.

{machines(networks)}
Versions: {versions}. Seed of the search: {settings["seed"]}.

![Time of the best engine divided by ours, a row for each network](../images/engines.svg)

## By family
Geometric means of the engine's time divided by ours; above 1, ours is faster.

{markdown_table(FAMILY_COLUMNS, family_rows(networks, minutes))}
- {verdict(networks, tuned_name(minutes), "", TUNED_AIMS)}
- {verdict(networks, UNMEASURED, ONNX_RUNTIME, UNMEASURED_AIMS)}
- {without_measurement(networks, minutes)}

## By network
Lower to upper quartile in ms; bold: the fastest.

{markdown_table(columns(networks), rows(networks, minutes))}"""
    if slower := behind(networks, minutes):
        heads = ("network", "ratio", "engine", "ms by operator, its own profile")
        body += f"\n## Networks below an aim\n{markdown_table(heads, slower, 4)}"
    if failed := failures(networks):
        body += f"\n## Without a time\n{markdown_table(('network', 'engine', 'reason'), failed, 3)}"
    return body
