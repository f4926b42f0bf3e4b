import math
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing import plugin_event_accumulator
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.plugins.hparams import metadata

from hostcore_hookspecs import Event, Job, events
from hostcore_hookspecs.events import (
    CheckpointSaved,
    Metrics,
    RunCancelled,
    RunResumed,
    RunStarted,
    RunSubmitted,
    RunSucceeded,
    Validation,
    Warning,
)
from hostcore_trackers.tensorboard import TensorBoardReporter

Course = Any
MakeCourse = Callable[..., Course]


def report(course: Course, told: list[Event], *, path: Path | None = None) -> None:
    """One attempt: a reporter, and what it is told."""
    course.report(TensorBoardReporter(settings=TensorBoardReporter.Settings(path=path)), told)


def read(folder: Path) -> EventAccumulator:
    """What TensorBoard sees."""
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return found


def points(folder: Path, tag: str = "train/loss") -> list[tuple[int, float]]:
    return [(point.step, round(point.value, 4)) for point in read(folder).Scalars(tag)]


def texts(folder: Path, tag: str) -> list[str]:
    """As the server reads them; the other reader never forgets a text."""
    found = plugin_event_accumulator.EventAccumulator(str(folder))
    found.Reload()
    return [point.tensor_proto.string_val[0].decode() for point in found.Tensors(tag)]


def begin(course: Course, *, step: int = 0) -> list[Event]:
    return [
        course.tell(RunSubmitted(trainer="flights", max_steps=100)),
        course.tell(RunStarted(device="cpu"), step=step),
    ]


def steps(course: Course, *steps: int, loss: Callable[[int], float] = float) -> list[Event]:
    return [course.tell(Metrics(metrics={"train/loss": loss(step)}), step=step) for step in steps]


def test_curves_have_the_steps_times_and_values_of_the_events(course: MakeCourse) -> None:
    run = course()
    told = begin(run)
    told.append(run.tell(Metrics(metrics={"train/loss": 0.5, "lr": 0.1}, samples_per_second=800.0), step=10))
    told.append(run.tell(Validation(metrics={"val/loss": 0.25}, weight=100), step=10))
    told.append(run.tell(events.Test(metrics={"test/accuracy": 0.75}, weight=100), step=10))
    told.append(run.tell(Metrics(metrics={"lr": None}, nonfinite=("lr",)), step=11))
    report(run, told)
    found = read(run.run_dir / "tensorboard")
    assert set(found.Tags()["scalars"]) == {"train/loss", "lr", "host/samples_per_second", "val/loss", "test/accuracy"}
    assert [(p.wall_time, p.step, p.value) for p in found.Scalars("train/loss")] == [(1_700_000_002.0, 10, 0.5)]
    assert found.Scalars("val/loss")[0].value == 0.25
    assert found.Scalars("host/samples_per_second")[0].value == 800
    assert math.isnan(found.Scalars("lr")[1].value), "what was not finite"


def test_an_attempt_without_a_checkpoint_replaces_everything(course: MakeCourse) -> None:
    run = course()
    told = [*begin(run), *steps(run, 10, 20)]
    report(run, told)
    run.attempt = 2
    report(run, [*begin(run), *steps(run, 10, loss=lambda _: 0.5)])
    assert points(run.run_dir / "tensorboard") == [(10, 0.5)]
    assert len(texts(run.run_dir / "tensorboard", "job")) == 1


def test_a_replay_of_a_run_of_two_attempts_draws_the_same_curve(course: MakeCourse, tmp_path: Path) -> None:
    run = course()
    told = [*begin(run), *steps(run, 10, 20, 30)]
    run.attempt = 2
    told += [run.tell(RunResumed(path="checkpoints/step-000010"), step=10), *begin(run, step=10)]
    told += steps(run, 20, 30, loss=lambda step: step + 0.5)
    for _ in range(2):  # a second one replaces the first
        report(run, told, path=tmp_path / "shared")
    assert points(tmp_path / "shared" / "flights-1") == [(10, 10), (20, 20.5), (30, 30.5)]


def test_a_new_run_of_the_same_name_replaces_the_old_one(course: MakeCourse, tmp_path: Path) -> None:
    old, new = course("old"), course("new")
    report(old, [*begin(old), *steps(old, 10, 20, 30)], path=tmp_path)
    report(new, [*begin(new), *steps(new, 10, loss=lambda _: 0.5)], path=tmp_path)
    assert points(tmp_path / "flights-1") == [(10, 0.5)]


def test_a_file_that_was_torn_when_its_writer_died_is_passed_over(course: MakeCourse) -> None:
    run = course()
    told = [*begin(run), *steps(run, 10, 20)]
    report(run, told)
    (file,) = (run.run_dir / "tensorboard").iterdir()
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size - 5)
    run.attempt = 2
    report(run, [told[-1], *begin(run, step=20), *steps(run, 30)])
    assert points(run.run_dir / "tensorboard") == [(10, 10), (20, 20), (30, 30)]


def test_a_full_disk_leaves_no_half_record_and_what_did_not_fit_comes_later(course: MakeCourse) -> None:
    run = course()
    told = [*begin(run), *steps(run, 10, 20, 30)]
    reporter = TensorBoardReporter()
    reporter.open(run.ctx())
    for event in told[:3]:
        reporter.report_event(event)
    (file,) = (run.run_dir / "tensorboard").iterdir()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 20, before[1]))
    size = file.stat().st_size
    try:
        with pytest.raises(OSError):
            reporter.report_event(told[3])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert file.stat().st_size == size
    for event in told[3:]:
        reporter.report_event(event)
    reporter.close()
    assert points(run.run_dir / "tensorboard") == [(10, 10), (20, 20), (30, 30)]


def test_a_file_comes_after_one_of_a_machine_whose_clock_is_ahead(course: MakeCourse) -> None:
    run = course()
    told = [*begin(run), *steps(run, 10, 20)]
    report(run, told)
    (file,) = (run.run_dir / "tensorboard").iterdir()
    file.rename(file.with_name("events.out.tfevents.4000000000.elsewhere.1.0"))
    run.attempt = 2
    report(run, [*begin(run), *steps(run, 10, loss=lambda _: 0.5)])
    assert points(run.run_dir / "tensorboard") == [(10, 0.5)]


def test_the_job_is_a_table_and_parameters_to_compare_runs_by(course: MakeCourse) -> None:
    run = course(job=Job(trainer="flights", hyperparams={"lr": 0.1, "sizes": [64, 8]}, seed=7, deterministic=True))
    report(run, [*begin(run), run.tell(RunSucceeded(), step=1)])
    folder = run.run_dir / "tensorboard"
    (job,) = texts(folder, "job")
    assert "| hyperparams.lr | 0.1 |" in job
    assert "| trainer | flights |" in job
    content = read(folder).PluginTagToContent("hparams")
    start = metadata.parse_session_start_info_plugin_data(content["_hparams_/session_start_info"])
    assert start.hparams["hyperparams.lr"].number_value == 0.1
    assert start.hparams["hyperparams.sizes"].string_value == "[64, 8]"
    assert start.hparams["deterministic"].bool_value is True
    assert "_hparams_/session_end_info" in content


def test_what_happened_is_text_and_messages_of_one_step_stay_together(course: MakeCourse) -> None:
    run = course()
    told = begin(run)
    told.append(
        run.tell(
            CheckpointSaved(path="checkpoints/step-000010", bytes=10, final=False, best={"val/loss": 0.1}), step=10
        )
    )
    told.append(run.tell(Warning(code="a", message="the first"), step=10))
    told.append(run.tell(Warning(code="b", message="the second"), step=10))
    told.append(run.tell(RunCancelled(reason="enough"), step=12))
    report(run, told)
    folder = run.run_dir / "tensorboard"
    assert texts(folder, "checkpoints") == ["- checkpoint checkpoints/step-000010 saved (10 B), best val/loss 0.1"]
    assert texts(folder, "events")[-2:] == [
        "- warning: the first\n- warning: the second",
        "- cancelled at step 12: enough",
    ]


def test_an_event_that_shows_nothing_leaves_no_file(course: MakeCourse) -> None:
    run = course()
    report(run, [run.tell(RunSubmitted(trainer="flights", max_steps=1))])
    assert not (run.run_dir / "tensorboard").exists()


def test_the_records_are_whole_ones_of_tensorboard(course: MakeCourse) -> None:
    run = course()
    report(run, [*begin(run), *steps(run, 10)])
    (file,) = (run.run_dir / "tensorboard").iterdir()
    records = list(LegacyEventFileLoader(str(file)).Load())  # checks the checksums
    assert records[0].file_version == "brain.Event:2"
    assert records[-1].summary.value[0].node_name == "hostcore-event:3"
