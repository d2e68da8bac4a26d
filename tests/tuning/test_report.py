"""The report of a made-up result: every number and name of it must be found in the page."""

import dataclasses
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

from tvm_gnn_cost.measuring.bandwidth import CopySpeed
from tvm_gnn_cost.schedulers.scheduler import Kernel, Profile
from tvm_gnn_cost.tuning.report import headline, latency, tables, write_report
from tvm_gnn_cost.tuning.result import CurvePoint, EndToEnd, NetworkTimes, Settings, StruckOff, TaskResult, TuneResult

HOSTILE = "conv<script>alert('1')</script>&"


@pytest.fixture
def result() -> TuneResult:
    return TuneResult(
        Settings("resnet-18", 64, None, "models/best.safetensors", 0, '{"kind": "llvm"}', 16, 128, "meta-schedule"),
        {"processor": "A processor", "cores": 2, "memory_gib": 24},
        {"apache-tvm": "0.27.0.post1"},
        "2026-11-20",
        tasks=[
            TaskResult("softmax", 1, untuned=0.0001, best=0.0002, trials=16, flops=1e5, bytes=8e5),
            TaskResult(HOSTILE, 2, untuned=0.050, best=0.010, trials=32, failed=3, flops=1e9),
            TaskResult("pool", 1, untuned=0.0002, best=None, trials=16, failed=16),
        ],
        curve=[CurvePoint(0, 0.0, 0.1003), CurvePoint(16, 30.0, 0.0603), CurvePoint(64, 90.0, 0.0203)],
        copies=[CopySpeed(10**6, 1e10)],
        seconds={"mutation": 30.0, "prediction": 10.0, "building": 50.0, "running": 10.0},
        searched=True,
        end_to_end=EndToEnd(
            [
                NetworkTimes("tuned", [0.021, 0.020, 0.024], 2e-7),
                NetworkTimes("PyTorch", [0.042, 0.04, 0.05], 0.0),
                NetworkTimes("ONNX Runtime", [], None, "onnxruntime is not installed"),
                NetworkTimes("untuned", [1.1], 1e-7),
            ],
            matrix_product=2e11,
            reference="PyTorch",
            peers=True,
        ),
    )


class Page(HTMLParser):
    """The text, the tags and the attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.links, self.text = [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "xlink:href", "data", "action")]

    def handle_data(self, data):
        self.text.append(data)


def test_the_numbers(result):
    tasks, time, end_to_end = tables(result)
    rows = {row[0]: row[1:] for row in tasks.rows}
    # The slowest in the tuned network first, with its part of 2 * 10 ms + 0.1 ms + 0.2 ms and its speed.
    assert list(rows) == [HOSTILE, "pool", "softmax", "weighted sum"]
    assert rows[HOSTILE] == ("2", "10 ms", "98.5 %", "100", "50 %", "50 %", "32", "3")
    assert rows["softmax"] == ("1", "100 µs", "0.5 %", "1", "0 %", "80 %", "16", "0")
    assert rows["pool"] == ("1", "200 µs", "1.0 %", "-", "-", "-", "16", "16")
    # What did not get faster keeps its default schedule.
    assert rows["weighted sum"] == ("", "20.3 ms", "100.0 %", "98.5", "49 %", "", "64", "19")
    assert "Every program failed, default schedule kept: pool." in tasks.note
    assert "default kept: softmax." in tasks.note
    assert end_to_end.rows == [
        ("tuned", "21 ms", "20 ms", "24 ms", "1.00x", "95.2", "48 %", "2e-07"),
        ("PyTorch", "42 ms", "40 ms", "50 ms", "2.00x", "47.6", "24 %", "0"),
        ("untuned", "1.1 s", "1.1 s", "1.1 s", "52.38x", "1.82", "1 %", "1e-07"),
    ]
    assert "matmul: PyTorch's product of large matrices, 200 GFLOPS." in end_to_end.note
    assert "ONNX Runtime cannot be timed: onnxruntime is not installed." in end_to_end.note
    assert len({len(row) for row in [end_to_end.columns, *end_to_end.rows]}) == 1
    assert len({len(row) for row in [tasks.columns, *tasks.rows]}) == 1
    shares = {row[0]: row[1:] for row in time.rows}
    assert shares["building"] == ("50.0 s", "50.0 %")
    assert shares["other"] == ("0.0 s", "0.0 %")
    assert shares["all"] == ("100.0 s", "100.0 %")


def test_the_library_stands_beside_the_search(result):
    kernels = [
        Kernel("vm.builtin.alloc_tensor", 4, 8e-6),
        Kernel("conv", 1, 0.012),
        Kernel("pool", 1, 3e-4),
        Kernel("conv_prepacked", 1, 0.006),
        Kernel("copy", 2, 1e-3),
        Kernel("sequence_of_3_kernels", 1, 5e-4),
    ]
    result.profile = Profile(kernels, seconds=0.020, profiled=0.0209)
    result.kernels = {"conv": [1], "conv_prepacked": [1], "pool": [2], "sequence_of_3_kernels": [2, 2], "copy": []}
    (table,) = [table for table in tables(result) if table.title == "Profile of the library"]
    assert table.rows == [
        (HOSTILE, "2", "20 ms", "18 ms", "90.0 %", "-2 ms"),
        ("copy (no task)", "2", "-", "1 ms", "5.0 %", "-"),
        ("sequence_of_3_kernels", "1", "400 µs", "500 µs", "2.5 %", "+100 µs"),
        ("pool", "1", "200 µs", "300 µs", "1.5 %", "+100 µs"),
        ("outside the kernels", "", "-", "+200 µs", "1.0 %", "-"),
        ("whole", "6", "-", "20 ms", "100.0 %", "-"),
    ]
    assert "A run takes 20 ms, and with the profiler 20.9 ms: it adds 90 µs to a call" in table.note
    assert "alloc_tensor 4x 8 µs." in table.note
    assert "more than a tenth" not in table.note
    result.tasks[1].best = 0.005
    (table,) = [table for table in tables(result) if table.title == "Profile of the library"]
    assert table.note.endswith(f"Search and library differ by more than a tenth of the network: {HOSTILE} (+8 ms).")


def test_a_task_that_another_one_replaces_comes_last(result):
    result.tasks.append(TaskResult("other conv", 2, None, best=0.005, trials=5, flops=3e8, instead_of=1))
    tasks = tables(result)[0]
    assert [row[0] for row in tasks.rows] == ["other conv", "pool", "softmax", HOSTILE, "weighted sum"]
    assert tasks.rows[0][3] == "97.1 %"
    assert tasks.rows[3][3] == "-"
    assert f"Not used, replaced by faster equivalent tasks: {HOSTILE}." in tasks.note


def test_tasks_that_were_not_searched_are_told_apart(result):
    result.tasks += [TaskResult("reshape", 1, untuned=1e-6), TaskResult("late", 1, None)]
    note = tables(result)[0].note
    assert "Not searched, default schedule kept: reshape." in note
    assert "Not measured, schedule chosen by the cost model: late." in note
    assert "Every program failed, default schedule kept: pool." in note


def test_a_run_that_measured_nothing_says_so(result):
    chosen = dataclasses.replace(result, settings=dataclasses.replace(result.settings, trials=0))
    note = tables(chosen)[0].note
    assert "No program was measured: the cost model chose the schedules." in note
    assert "default schedule kept" not in note


def test_the_page_stands_alone_and_escapes(result, tmp_path):
    result.save(tmp_path)
    page = write_report(tmp_path).read_text()
    parsed = Page(page)
    assert "script" not in parsed.tags
    assert HOSTILE in "".join(parsed.text)
    assert not {"link", "img", "iframe", "object"} & set(parsed.tags)
    assert all(link.startswith("#") for link in parsed.links)
    assert "url(http" not in page
    assert '<meta name="viewport"' in page
    for text in ("A processor", "0.27.0.post1", "models/best.safetensors", "after 64 measured programs in 1:40"):
        assert text in "".join(parsed.text)


@pytest.mark.parametrize("name", [r"$\nosuchcmd$", "[/nope]", "$x$"])
def test_a_name_is_no_markup(result, tmp_path, name):
    result.settings = dataclasses.replace(result.settings, network=name)
    result.tasks[0].name = name
    result.end_to_end.networks.append(NetworkTimes(name, [0.03], 1e-7))
    result.save(tmp_path)
    page = write_report(tmp_path).read_text()
    assert "".join(Page(page).text).count(name) >= 4
    bars = re.search(r"<svg.*?</svg>", page, re.DOTALL)
    assert name in "".join(ET.fromstring(bars[0]).itertext())


def test_a_comparison_without_peers_is_told(result):
    result.end_to_end.networks[1:] = []
    assert headline(result) == "resnet-18: 21 ms tuned; after 64 measured programs in 1:40."


def test_the_curves_are_drawn(result, tmp_path):
    result.save(tmp_path)
    page = write_report(tmp_path).read_text()
    drawings = [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]
    assert len(drawings) == 3
    ids: list[set[str]] = []
    bars, *curves = drawings
    words = "".join(bars.itertext())
    assert all(text in words for text in ("tuned", "21 ms", "PyTorch", "42 ms"))
    # It would dwarf the others.
    assert "untuned" not in words
    for drawing, label in zip(curves, ("measured programs", "minutes of search"), strict=True):
        curve = next(node for node in drawing.iter() if node.get("id") == "curve")
        path = next(node for node in curve.iter() if node.tag.endswith("path"))
        # Two steps, each a horizontal and a vertical line.
        assert len(re.findall("[ML]", path.get("d"))) == 5
        assert label in "".join(drawing.itertext())
        ids.append({node.get("id") for node in drawing.iter() if "clip" in str(node.tag).lower()})
    assert not (ids[0] & ids[1]) - {None}


def test_an_unfinished_run_has_a_report_too(result, tmp_path):
    unfinished = dataclasses.replace(result, end_to_end=None, searched=False, curve=result.curve[:1])
    unfinished.save(tmp_path)
    page = write_report(tmp_path).read_text()
    assert "Not finished: 64 programs measured." in page
    assert "<svg" not in page
    assert headline(unfinished) in page


def test_the_headline_names_the_peers_and_only_without_them_the_untuned_network(result):
    assert headline(result) == ("resnet-18: 21 ms tuned; PyTorch 42 ms; after 64 measured programs in 1:40.")
    stopped = dataclasses.replace(result, stopped="stopped early")
    assert headline(stopped).endswith("after 64 measured programs in 1:40 (stopped early).")
    compared = result.end_to_end
    alone = dataclasses.replace(compared, networks=[compared.tuned, compared.networks[-1]])
    assert headline(dataclasses.replace(result, end_to_end=alone)) == (
        "resnet-18: 21 ms tuned; untuned 1.1 s; after 64 measured programs in 1:40."
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (12.3456, "12.3 s"),
        (1.0, "1 s"),
        (0.9996, "1 s"),
        (0.9994, "999 ms"),
        (0.0123, "12.3 ms"),
        (4.5e-6, "4.5 µs"),
        (3e-8, "30 ns"),
    ],
)
def test_latencies_are_readable(seconds, text):
    assert latency(seconds) == text


def test_no_result_is_a_clear_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="no network was tuned in"):
        write_report(tmp_path)


def test_programs_that_are_struck_off_are_said(result: TuneResult) -> None:
    assert not any("Struck off" in table.title for table in tables(result))
    result.struck.append(StruckOff(HOSTILE, "computes something else in output 0: 3 of 4 values", "a trace"))
    (table,) = [table for table in tables(result) if "Struck off" in table.title]
    assert table.rows == [(HOSTILE, "it computes something else in output 0: 3 of 4 values")]
