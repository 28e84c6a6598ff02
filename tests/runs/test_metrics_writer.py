"""metrics.jsonl is the truth; TensorBoard and Weights & Biases show the same rows."""

import math
import shutil
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from minerva.errors import TrainingError
from minerva.runs.events import EventsFile
from minerva.runs.folder import RunFolder
from minerva.runs.metrics import MetricsWriter, evaluation_means, read_rows


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path, "ppo")
    folder.create({})
    return folder


def write(folder: RunFolder, lengths: dict[str, int], rows: range, value: float, until: int) -> dict[str, int]:
    """Go on from `lengths`, write rows with a value that tells who wrote them; the lengths after row `until`."""
    with MetricsWriter(folder, lengths) as writer:
        for row in rows:
            writer.write(row, {"losses/x": value})
            writer.write_evaluation(row, [value], [1])
            if row == until:
                lengths = writer.lengths()
    return lengths


def test_going_on_from_a_checkpoint_forgets_what_came_after_it(folder: RunFolder) -> None:
    first = write(folder, {}, range(6), value=1.0, until=3)
    for _ in range(2):  # killed before its first checkpoint, the second is forgotten as a whole
        second = write(folder, first, range(4, 8), value=2.0, until=6)
    write(folder, second, range(7, 9), value=3.0, until=8)
    expected = [(0, 1.0), (1, 1.0), (2, 1.0), (3, 1.0), (4, 2.0), (5, 2.0), (6, 2.0), (7, 3.0), (8, 3.0)]
    assert [(row["step"], row["losses/x"]) for row in read_rows(folder.metrics)] == expected
    assert [(row["step"], row["returns"][0]) for row in read_rows(folder.evaluations)] == expected
    events = EventAccumulator(str(folder.tensorboard))
    events.Reload()
    assert sorted((event.step, event.value) for event in events.Scalars("losses/x")) == expected
    raw = [event for path in sorted(folder.tensorboard.iterdir()) for event in EventFileLoader(str(path)).Load()]
    rows = [event for event in raw if event.HasField("summary") and event.summary.value[0].tag == "losses/x"]
    assert sorted(event.step for event in rows) == list(range(9))  # not hidden: not there


def test_each_row_is_on_disk_when_it_is_written(folder: RunFolder) -> None:
    with MetricsWriter(folder, {}) as writer:
        writer.write(10, {"losses/x": 1.5})
        assert folder.metrics.read_text() == '{"step": 10, "losses/x": 1.5}\n'


def test_a_row_that_does_not_fit_on_the_disk_stops_the_run_with_a_sentence(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MetricsWriter(folder, {}) as writer:
        monkeypatch.setattr(writer, "_file", open("/dev/full", "w", buffering=1))  # noqa: SIM115
        with pytest.raises(
            TrainingError, match=r"Metrics could not be written .* \(No space left on device\).*--resume"
        ):
            writer.write(1, {"a": 1.0})


def test_tensorboard_reads_the_files_of_a_run_in_the_order_in_which_they_were_written(folder: RunFolder) -> None:
    for step in range(3):  # in less than a second
        events = EventsFile(folder.tensorboard)
        events.log(step, {"a": float(step), "large": 1e300, "none": math.nan})
        events.close()
    files = sorted(folder.tensorboard.iterdir())
    read = [event for path in files for event in EventFileLoader(str(path)).Load() if event.HasField("summary")]
    assert [event.step for event in read] == [0, 1, 2]


def test_non_finite_numbers_are_null(folder: RunFolder) -> None:
    with MetricsWriter(folder, {}) as writer:
        writer.write(1, {"a": math.nan, "b": math.inf, "c": 2.0})
    assert read_rows(folder.metrics) == [{"step": 1, "a": None, "b": None, "c": 2.0}]


def test_a_line_that_was_cut_off_is_left_out(folder: RunFolder) -> None:
    folder.metrics.write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert read_rows(folder.metrics) == [{"step": 1}, {"step": 2}]


def test_what_is_no_row_is_left_out(folder: RunFolder) -> None:
    folder.metrics.write_bytes(b'{"step": 1}\n\xff\x00\xfe\n[2]\nnull\n' + b"[" * 100_000 + b'\n{"step": 3}\n')
    assert read_rows(folder.metrics) == [{"step": 1}, {"step": 3}]


def test_evaluations_that_are_none_are_left_out(folder: RunFolder) -> None:
    rows = ['{"returns": [1.0, 2.0]}', '{"returns": []}', '{"returns": ["x"]}', '{"returns": 3}', "{}", "[]"]
    folder.evaluations.write_text("\n".join(rows))
    assert evaluation_means(folder.evaluations) == [1.5]


def test_a_log_that_lost_its_end_is_named_and_goes_on_with_a_line_of_its_own(
    folder: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    lengths = write(folder, {}, range(4), value=1.0, until=3)
    folder.metrics.write_bytes(folder.metrics.read_bytes()[:-5])
    write(folder, lengths, range(4, 6), value=2.0, until=5)
    assert [row["step"] for row in read_rows(folder.metrics)] == [0, 1, 2, 4, 5]
    assert f"{folder.metrics} is shorter" in caplog.text


def test_a_log_that_is_gone_is_named_and_begun_anew(folder: RunFolder, caplog: pytest.LogCaptureFixture) -> None:
    lengths = write(folder, {}, range(4), value=1.0, until=3)
    shutil.rmtree(folder.evaluations.parent)
    (events,) = folder.tensorboard.iterdir()
    events.unlink()
    write(folder, lengths, range(4, 6), value=2.0, until=5)
    assert [row["step"] for row in read_rows(folder.evaluations)] == [4, 5]
    assert [row["step"] for row in read_rows(folder.metrics)] == list(range(6))
    for path in (folder.evaluations, events):
        assert f"{path} is gone" in caplog.text
