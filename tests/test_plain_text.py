from __future__ import annotations

import io

import pytest
from matplotlib.figure import Figure

from tvm_gnn_cost.plain_text import no_math


@pytest.mark.parametrize("text", ["conv", "$", r"$\nosuchcmd$", "$x$ and $y", r"\$a$", r"a\\$b$", "{$}_$^"])
def test_matplotlib_draws_a_text_as_it_is(text: str) -> None:
    figure, file = Figure(), io.StringIO()
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):
        figure.text(0.5, 0.5, no_math(text))
        figure.savefig(file, format="svg")
    assert f">{text}<" in file.getvalue()
