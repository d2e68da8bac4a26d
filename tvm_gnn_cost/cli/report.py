"""``tvm-gnn-cost report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tvm_gnn_cost.cli.options import JsonOption
from tvm_gnn_cost.cli.outcome import console, exit_codes, json_result


def report(
    work_dir: Annotated[Path, typer.Argument(help="The work directory of a tuning run, finished or not.")],
    json: JsonOption = None,
) -> None:
    """Writes report.html of a tuning run again and prints its tables; nothing is measured, TVM is not needed."""
    from tvm_gnn_cost.cli.display import print_tuning
    from tvm_gnn_cost.tuning.report import write_report
    from tvm_gnn_cost.tuning.result import load_result

    with exit_codes(), json_result(json) as write:
        result = load_result(work_dir)
        page = write_report(work_dir)
        print_tuning(result)
        console.print(f"report: {page}", soft_wrap=True)
        write({"work_dir": str(work_dir), "report": str(page), **result.as_json()})
