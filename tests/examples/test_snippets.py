"""The snippets of the README and of the pages in docs run as they stand there, at smaller sizes.

Commands that are indented and blocks of ``python`` run; fenced commands and blocks of ``py`` show what other tests run.
"""

from __future__ import annotations

import ast
import builtins
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import typer

from tests import synthetic
from tests.command import call
from tvm_gnn_cost import GraphStore
from tvm_gnn_cost.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

#: Operators and a network of few small tasks, instead of hours of measurements.
_FEW = ("dense/0", "dense/1", "softmax/0", "pooling/0", "perceptron")

_THREE = "random=3, patience_s=0"
_STRATEGY = "ms.search_strategy.EvolutionarySearch(population_size=16)"

#: Page -> what its snippets say, and the smaller thing that is done instead. Other tests keep the machine busy: nobody
#: waits for their end.
SMALLER: dict[str, dict[str, str]] = {
    "README.md": {
        "max_trials_global=512": f"max_trials_global=2, strategy={_STRATEGY}",
    },
    "collect-data.md": {
        "my.onnx models.mine:small bert-tiny layers": "--patience 0 --guided 0 models.mine:small dense/0",
        "--random 20": "--random 2",
        "collect my.onnx layers data/mine-tvm": "collect --patience 0 --guided 0 dense/0 data/mine-tvm",
        "collect training FOLDER": "collect dense/0 FOLDER --random 2 --guided 0 --patience 0",
        '"mtriple": "aarch64-linux-gnu", "num-cores": 4': '"num-cores": 1',
    },
    "getting-started.md": {"--minutes 5": "--trials 2 --no-compare"},
    "python.md": {
        '["held-out", "training", "layers"], "data/my-cpu"': f'{list(_FEW)}, "data/my-cpu", guided=0, {_THREE}',
        "epochs=20": 'epochs=1, held_out=["perceptron"]',
        '"random": "random"})': '"random": "random"}, networks=["perceptron"])',
        '"resnet-18", trials=576': '"perceptron", trials=2, compare=False',
    },
    "rank-tpu-configurations.md": {
        "--folds 6": "--folds 2",
        "--model kernel-costs": "--model kernel-costs --epochs 1",
    },
    "train-a-model.md": {
        "collect held-out training layers": f"collect --patience 0 {' '.join(_FEW)}",
        "--random 16": "--random 3",
        "collect layers": f"collect --patience 0 {_FEW[0]}",
        "--random 8 --guided 6": "--random 3 --guided 1",
        "train work/store my-cpu.safetensors": "train work/store my-cpu.safetensors --held-out perceptron --epochs 1",
        "--model random": "--model random --network perceptron",
    },
}
#: Pages whose steps the tests of the commands and functions take too.
SLOW = ("collect-data.md", "python.md", "rank-tpu-configurations.md")
#: What another test starts: the examples (``test_examples.py``), and the tracker and its machines (``rack.py``).
ELSEWHERE = ("python examples/", "python -m tvm.exec.rpc_")


def commands_of(page: Path) -> list[str]:
    """The commands that stand indented on a page, in their order."""
    found = re.findall(r"^ {4}((?:tvm-gnn-cost|python) (?:.*\\\n)*.*)$", page.read_text(), re.MULTILINE)
    lines = [re.sub(r"\s*\\\n\s*", " ", one).partition("  #")[0].strip() for one in found]
    return [line for line in lines if not line.startswith(ELSEWHERE)]


def blocks_of(page: Path) -> list[str]:
    """The blocks of Python on a page that no page before has, in their order."""
    first: dict[str, Path] = {}
    for one in PAGES:
        for block in re.findall(r"```python\n(.*?)```", one.read_text(), re.DOTALL):
            first.setdefault(block, one)
    return [block for block, home in first.items() if home == page]


def smaller(page: Path, snippet: str) -> str:
    for said, done in SMALLER.get(page.name, {}).items():
        snippet = snippet.replace(said, done)
    return snippet


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Like a user's, with a file of token ids and a mask and a module with a network; the project's folders are in it.

    All pages share it: what one has collected, another one that collects the same need not measure again.
    """
    from tests.torch_networks import Transformer, export_onnx, make

    made = tmp_path_factory.mktemp("user")
    for name in ("benchmarks", "examples", "tvm_gnn_cost"):
        (made / name).symlink_to(ROOT / name)
    export_onnx(make(Transformer), made / "my.onnx", dynamo=False)
    (made / "models").mkdir()
    (made / "models" / "mine.py").write_text(
        "import torch\n\n\ndef small():\n    return torch.nn.Linear(16, 8), (torch.zeros(4, 16),)\n"
    )
    return made


@pytest.fixture
def there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def python_pages(part: str) -> list[Path]:
    return [page for page in PAGES if any(needs(block) == part for block in blocks_of(page))]


def with_slow(pages: Iterable[Path]) -> list[Any]:
    return [pytest.param(page, marks=pytest.mark.slow if page.name in SLOW else ()) for page in pages]


def needs(block: str) -> str:
    return "auto_scheduler" if "auto_scheduler" in block else "s_tir"


def test_every_replacement_is_of_something_on_its_page() -> None:
    for name, replacements in SMALLER.items():
        (page,) = (page for page in PAGES if page.name == name)
        text = "\n".join([*commands_of(page), *blocks_of(page)])
        for said in replacements:
            assert said in text, f"{name} does not say {said} any more"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_have_arguments_and_options_that_exist(page: Path) -> None:
    named = re.findall(r"`(tvm-gnn-cost [a-z][^`]*)`", page.read_text())
    group = typer.main.get_command(app)
    for line in [*named, *commands_of(page)]:
        words = shlex.split(line)
        if words[0] != "tvm-gnn-cost" or words[-1].endswith("..."):
            continue
        command, arguments = group, words[1:]
        while hasattr(command, "commands"):
            command, arguments = command.commands[arguments[0]], arguments[1:]
        if arguments:  # else the command's name alone is meant
            command.make_context(line, arguments)


@pytest.mark.needs("s_tir")
@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("page", with_slow(page for page in PAGES if commands_of(page)), ids=lambda page: page.name)
def test_the_commands_of_a_page_run_one_after_another(page: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with ExitStack() as stack:
        for line in commands_of(page):
            command = with_servers(smaller(page, line), stack)
            words = shlex.split(command)
            if words[0] == "python":
                done = subprocess.run([sys.executable, *words[1:]], capture_output=True, text=True, timeout=300)
                assert done.returncode == 0, f"{command}: {done.stderr}"
            else:
                code, _, err = call(capfd, *words[1:])
                assert code == 0, f"{command}: {err}"


def with_servers(command: str, stack: ExitStack) -> str:
    """The command with the addresses of a tracker or of a Dask scheduler that were started for it."""
    if "--dask" in command:
        from distributed import LocalCluster

        cluster = stack.enter_context(LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None))
        return re.sub(r"tcp://\S+", cluster.scheduler_address, command)
    if "--tracker" in command:
        from tests.schedulers.rack import KEY, Rack

        rack = stack.enter_context(Rack(machines=1))
        command = re.sub(r"--tracker \S+", f"--tracker {rack.tracker}", command)
        return re.sub(r"--key \S+", f"--key {KEY}", command)
    return command


@pytest.mark.needs("s_tir")
@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("page", with_slow(python_pages("s_tir")), ids=lambda page: page.name)
def test_the_python_of_a_page_runs(page: Path) -> None:
    from tvm_gnn_cost.schedulers.meta_schedule.search_log import quiet_console

    quiet_console()  # a user's process has made no search before
    if page.name == "formats.md":  # the page describes a store and does not make one
        GraphStore(Path("work/store")).append(synthetic.programs(4, 8))
    run_blocks(page, "s_tir", META_SCHEDULE)


@pytest.mark.needs("auto_scheduler")
@pytest.mark.parametrize("page", python_pages("auto_scheduler"), ids=lambda page: page.name)
def test_the_python_of_a_page_runs_with_ansor(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a TaskScheduler writes total_latency.tsv there
    run_blocks(page, "auto_scheduler", AUTO_SCHEDULER)


def run_blocks(page: Path, part: str, given: dict[str, Callable[[], Any]]) -> None:
    """Runs the blocks one after another with one set of names; what a block takes for granted is given to it."""
    names: dict[str, Any] = {}
    for block in blocks_of(page):
        if needs(block) != part:
            continue
        for name in free_names(block):
            if name in given:
                names[name] = given[name]()
            assert name in names, f"{page.name}: nobody gives a snippet its {name}"
        exec(compile(smaller(page, block), page.name, "exec"), names)


def free_names(block: str) -> Iterator[str]:
    """The names that a block reads and does not make itself."""
    walked = list(ast.walk(ast.parse(block)))
    names = [node for node in walked if isinstance(node, ast.Name)]
    made = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    for node in walked:
        if isinstance(node, ast.Import | ast.ImportFrom):
            made |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    read = dict.fromkeys(node.id for node in names if isinstance(node.ctx, ast.Load))
    return (name for name in read if name not in made and not hasattr(builtins, name))


def _relax_module() -> Any:
    import torch

    from tvm_gnn_cost.schedulers import scheduler

    return scheduler().network(torch.nn.Linear(8, 4), (torch.ones(3, 8),)).mod


def _target() -> Any:
    from tvm_gnn_cost.schedulers import scheduler

    return scheduler().target()


def _programs() -> Any:
    import tvm
    from tvm import te

    a = te.placeholder((64, 64))
    return [tvm.IRModule({"main": te.create_prim_func([a, te.compute((64, 64), lambda i, j: a[i, j] + 1)])})]


META_SCHEDULE: dict[str, Callable[[], Any]] = {
    "programs": _programs,
    "latencies": lambda: [0.001],
    "mod": _relax_module,
    "params": dict,
    "target": _target,
    "work_dir": lambda: os.path.join(os.getcwd(), "tuned"),
}


def _ansor_task() -> Any:
    from tests.schedulers.auto_scheduler.small_tasks import matmul_task

    return matmul_task()


def _ansor_options() -> Any:
    from tvm import auto_scheduler

    return auto_scheduler.TuningOptions(num_measure_trials=2, num_measures_per_round=2, verbose=0)


AUTO_SCHEDULER: dict[str, Callable[[], Any]] = {
    "task": _ansor_task,
    "tasks": lambda: [_ansor_task()],
    "weights": lambda: [1],
    "options": _ansor_options,
}
