"""Files that are cut at every tenth of their bytes: a command names the file in one sentence or reads what is whole."""

from __future__ import annotations

import gzip
import lzma
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.command import assert_mistake, call, call_json
from tests.tpugraphs.modules import small_module, tile_run
from tests.tpugraphs.published import layout_fields, write
from tests.tpugraphs.trained import COLLECTION, Example, example, one_thread
from tests.tuning.test_result import result
from tvm_gnn_cost.tpugraphs.format.protos import TuningData

__all__ = ["example", "one_thread"]


#: Programs of the collection.
PROGRAMS = 6


def cut(path: Path, tenths: Iterable[int] = range(10)) -> Iterator[bytes]:
    """Cuts a file at tenths of its bytes and yields what is left; at the end it is whole again."""
    whole = path.read_bytes()
    for part in tenths:
        path.write_bytes(whole[: len(whole) * part // 10])
        yield path.read_bytes()
    path.write_bytes(whole)


def test_a_shard(store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    copy = Path(shutil.copytree(store, tmp_path / "store"))
    for _ in cut(copy / "shard-00000.parquet"):
        answer = call(capfd, "evaluate", copy, "--model", "constant", "--network", "net1")
        assert_mistake(answer, f"error: {copy / 'shard-00000.parquet'} cannot be read (")
    assert call(capfd, "evaluate", copy, "--model", "constant", "--network", "net1")[0] == 0


def test_a_checkpoint(store: Path, checkpoint: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = Path(shutil.copy(checkpoint, tmp_path / "m.safetensors"))
    for _ in cut(path):
        answer = call(capfd, "evaluate", store, "--model", path, "--network", "net1")
        assert_mistake(answer, f"error: {path}: not a checkpoint (")


def test_a_tuning_result(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result().save(tmp_path)
    for _ in cut(tmp_path / "tuning.json"):
        assert_mistake(call(capfd, "report", tmp_path), f"error: {tmp_path / 'tuning.json'} is not a tuning result")


def test_a_card(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    card = tmp_path / "card.json"
    card.write_text('{"settings": {}, "machine": {}, "graphs": {}}\n')
    for _ in cut(card):
        answer = call(capfd, "tpugraphs", "measure", tmp_path, "--network", "perceptron-a")
        assert_mistake(answer, f"error: {card} is not a card of measurements: not JSON")


def test_a_published_graph_is_left_out(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "npz/layout/xla/random/train"
    write(folder / "whole.npz", layout_fields())
    path = write(folder / "cut.npz", layout_fields(seed=1))
    for number, _ in enumerate(cut(path)):
        code, _, err = call(capfd, "tpugraphs", "prepare", tmp_path, tmp_path / str(number))
        assert code == 0
        assert f"left out: {path}: the archive cannot be read (" in err
        assert "Traceback" not in err
        prepared = tmp_path / str(number) / "layout-xla-random" / "train"
        assert sorted(one.name for one in prepared.iterdir()) == ["whole.npy", "whole.npz"]


@pytest.mark.parametrize("name", ["g0.npz", "g0.npy"])
def test_a_prepared_graph(name: str, example: Example, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    copy = Path(shutil.copytree(example.prepared, tmp_path / "prepared"))
    path = copy / "layout-xla-random" / "train" / name
    for _ in cut(path):
        answer = call(capfd, "tpugraphs", "train", copy, COLLECTION, tmp_path / "models", "--folds", 2)
        assert_mistake(answer, f"error: {path}: not ")


@pytest.mark.parametrize("name", ["fold", "kept.json"])
def test_a_ranker(name: str, example: Example, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    models = Path(shutil.copytree(example.models, tmp_path / "models"))
    (path,) = [one for one in models.iterdir() if one.name == name] or [
        one for one in models.iterdir() if one.name in (models / "kept.json").read_text()
    ]
    sentence = f"error: {path}: not a checkpoint (" if name == "fold" else f"error: {models} holds no finished training"
    for _ in cut(path):
        chosen = ("--model", f"{COLLECTION}={models}")
        assert_mistake(call(capfd, "tpugraphs", "rank", example.root, tmp_path / "out.csv", *chosen), sentence)


def test_a_protobuf_message(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kernels.pb"
    modules = [{"module": small_module(), "runs": [tile_run(30, True), tile_run(20)]}] * 3
    path.write_bytes(TuningData(modules=modules).SerializeToString())
    refused = 0
    for left in cut(path):
        code, out, err = call(capfd, "tpugraphs", "encode", path, tmp_path / "out", "--source", "tile")
        # Where a field ends, what is left is a message too: that of no bytes has no kernel.
        if left:
            assert_mistake((code, out, err), f"error: {path}: not a serialised TuningData")
            refused += 1
        else:
            assert code == 0
    assert refused == 9


@pytest.mark.needs("s_tir")
@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
@pytest.mark.parametrize("name", ["database_tuning_record.json", "database_workload.json"])
def test_a_database(name: str, suffix: str, measured: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = Path(shutil.copytree(measured, tmp_path / "database"))
    path = (folder / name).rename(folder / f"{name}{suffix}")
    if suffix:
        path.write_bytes((gzip if suffix == ".gz" else lzma).compress(path.read_bytes()))
    for number, left in enumerate(cut(path)):
        found = call_json(capfd, "extract", folder, tmp_path / str(number), "--no-features")
        if not suffix and name == "database_tuning_record.json":
            assert found["added"] == left.count(b"\n")
        # A plain file can end between two lines; then nothing shows that there were more.
        whole = left.endswith(b"\n") or not left
        assert found["added"] + found["left_out"] > 0 or whole
        assert found["added"] < PROGRAMS
        if suffix and left:
            code, _, err = call(capfd, "extract", folder, tmp_path / f"again-{number}", "--no-features")
            assert (code, f"left out: {path}:0: the compressed file is cut off or damaged" in err) == (0, True)


@pytest.mark.needs("s_tir")
@pytest.mark.parametrize("name", ["measurements.jsonl", "tasks.jsonl", "card.json"])
def test_what_lies_beside_a_database(
    name: str, measured: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(measured, tmp_path / "database"))
    options = ("--random", 3, "--guided", 0, "--patience", 0)
    sentences = {
        "tasks.jsonl": f"error: {folder / name}:",
        "card.json": f"error: {folder / name} is not a card of measurements",
    }
    # What is lost of the measurements is measured again.
    tenths = (0, 3, 7) if name == "measurements.jsonl" else range(10)
    for number, left in enumerate(cut(folder / name, tenths)):
        copy = Path(shutil.copytree(folder, tmp_path / str(number) / "database"))
        code, out, err = call(capfd, "collect", "softmax/0", "dense/0", copy, *options)
        # The unfinished last line of a log is dropped, and its program measured again.
        if name == "measurements.jsonl" or not left or left.endswith(b"\n"):
            assert code in (0, 2), err
        else:
            assert_mistake((code, out, err.replace(str(copy), str(folder))), sentences[name])
        if name == "measurements.jsonl" and left:
            assert call_json(capfd, "extract", copy, tmp_path / f"store-{number}", "--no-features")["added"] == PROGRAMS


@pytest.mark.needs("auto_scheduler")
def test_pickles_of_tasks_and_records(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from tests.schedulers.auto_scheduler.small_tasks import copy_records, files_of

    copy_records(tmp_path / "data", files_of("resnet_18", 2)[:2], 4)
    info = tmp_path / "data" / "network_info"
    for path in (info / "all_tasks.pkl", next(info.glob("*.task.pkl"))):
        for _ in cut(path):
            answer = call(capfd, "extract", tmp_path / "data", tmp_path / "store", "--no-features")
            assert_mistake(answer, f"error: {path} is ")
    path = next((tmp_path / "data" / "measure_records" / "cpu").glob("*.json"))
    whole = len(path.read_bytes().splitlines())
    for number, left in enumerate(cut(path)):
        store = tmp_path / str(number)
        code, _, err = call(capfd, "extract", tmp_path / "data", store, "--no-features")
        assert code == 0
        assert f"{4 + left.count(bytes([10]))} programs added" in err
        if left and not left.endswith(b"\n"):
            assert f"left out: {path}:{left.count(bytes([10])) + 1}: not JSON" in err
    assert whole == 4
