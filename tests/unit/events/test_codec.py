"""Events as lines of JSON, and back."""

import json
import math
import os

import attrs
import orjson
import pytest

from hostcore.events.codec import CorruptLog, decode_event, decode_payload, encode_event, encode_payload, finite
from hostcore_hookspecs import events
from hostcore_hookspecs.events import PAYLOADS, Event, Metrics, Payload, RunError, RunFailed, RunSucceeded

#: One of every payload.
EXAMPLES = [
    events.RunSubmitted(
        trainer="mine", max_steps=10, epochs=2, total_steps=8, num_rows=256, batch_size=32, devices=["cpu"]
    ),
    events.RunSubmitted(trainer="mine", max_steps=10),
    events.RunStarted(device="cuda:1", world_size=2),
    events.RunResumed(path="checkpoints/step-000200"),
    events.EpochStarted(),
    events.Metrics(
        metrics={"train/loss": 0.1 + 0.2, "train/lr": 1e-300, "grad": None},
        nonfinite=["grad"],
        samples_per_second=1234.5,
        step_seconds=0.01,
        data_wait_seconds=0.0,
    ),
    events.Metrics(metrics={}),
    events.Validation(metrics={"val/loss": None, "val/accuracy": 0.5}, weight=100.0),
    events.Test(metrics={"test/loss": 2.0}, weight=3.0),
    events.Progress(samples_per_second=None),
    events.CheckpointSaved(path="checkpoints/step-000200", bytes=2**40, final=True),
    events.CheckpointSkipped(path="checkpoints/step-000100", reason="state.json is missing"),
    events.SampleSaved(path="samples/step-000200"),
    events.ArtifactUploaded(path="a", uri="s3://b/a", uploader="fsspec"),
    events.BatchSplit(rows=32, micro_batch_rows=8, error="no room", rank=1, memory="none is free"),
    events.UploadFailed(path="a", uploader="fsspec", message="no", will_retry=True),
    events.ReporterFailed(reporter="mlflow", message="ValueError: no"),
    events.Warning(code="x", message="naïve \u2028 line \n break"),
    events.TrainerRestored(restored_step=2, reason="best", requested_by="x", values={"val/loss": None}),
    events.ResumeProbe(values={"train/loss": 0.5, "train/ratio": None}),
    events.StopRequested(reason="enough", requested_by="user"),
    events.RunSucceeded(),
    events.RunFailed(
        error=RunError(type="ValueError", message="no", traceback="Traceback…", plugin="p", rank=0, hint="h")
    ),
    events.RunCancelled(reason="interrupted by the user"),
    events.RunPreempted(reason=None),
]


def event(payload: Payload, **envelope: object) -> Event:
    return Event(
        **{"seq": 3, "time_ms": 1_700_000_000_000, "run_id": "a", "attempt": 2, "payload": payload, **envelope}
    )


def plain(value: object) -> object:
    """A payload without the difference between a list and a tuple, which JSON does not know."""
    return json.loads(json.dumps(attrs.asdict(value)))


class TestALine:
    def test_comes_back_as_the_event_or_payload_that_it_was(self) -> None:
        assert {type(example) for example in EXAMPLES} == set(PAYLOADS.values())
        for payload in EXAMPLES:
            written = event(payload, src=(0, 2, 512), step=40, epoch=1)
            read = decode_event(encode_event(written))
            assert type(read.payload) is type(payload)
            assert plain(read) == plain(written)
            assert encode_event(read) == encode_event(written)
            of_rank = encode_payload(payload, time_ms=5, step=40, epoch=1)
            line = orjson.loads(of_rank)
            assert (line["time_ms"], line["step"], line["epoch"]) == (5, 40, 1)
            assert plain(decode_payload(line)) == plain(payload)
            for strict in (encode_event(written), of_rank):
                assert strict.index(b"\n") == len(strict) - 1
                json.loads(strict, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))

    def test_holds_a_name_that_is_not_utf8_with_question_marks(self) -> None:
        path = os.fsdecode(b"data-\xff.parquet")
        failed = RunFailed(error=RunError(type="OSError", message=f"no such file: {path}"))
        assert decode_event(encode_event(event(failed))).payload.error.message == "no such file: data-?.parquet"
        line = encode_payload(failed, time_ms=5, step=math.nan, epoch=None)
        assert orjson.loads(line)["error"]["message"] == "no such file: data-?.parquet"

    def test_of_what_json_cannot_hold_is_an_error(self) -> None:
        with pytest.raises(TypeError):
            encode_event(event(RunSucceeded(reason=object())))

    def test_is_flat_and_carries_the_documented_envelope(self) -> None:
        line = orjson.loads(encode_event(event(RunSucceeded(reason="done"), src=(0, 2, 7))))
        assert line == {
            "schema": "hostcore.event/1",
            "seq": 3,
            "time_ms": 1_700_000_000_000,
            "run_id": "a",
            "attempt": 2,
            "src": [0, 2, 7],
            "event": "run_succeeded",
            "step": None,
            "epoch": None,
            "reason": "done",
        }

        for src in (None, (0, 1, 0)):  # of the supervisor, and at the start of the first rank's log
            assert decode_event(encode_event(event(RunSucceeded(), src=src))).src == src


class TestReading:
    def test_fields_of_a_newer_version_are_passed_over(self) -> None:
        line = orjson.loads(encode_event(event(RunSucceeded(reason="done"))))
        newer = orjson.dumps({**line, "new_in_envelope": 1, "new_in_payload": {"deep": [1]}})
        assert decode_event(newer).payload == RunSucceeded(reason="done")

    def test_fields_that_an_older_version_did_not_write_have_their_defaults(self) -> None:
        line = orjson.loads(encode_event(event(Metrics(metrics={"a": 1.0}))))
        for later in ("nonfinite", "samples_per_second", "step_seconds", "data_wait_seconds"):
            del line[later]
        assert plain(decode_event(orjson.dumps(line)).payload) == plain(Metrics(metrics={"a": 1.0}))

    @pytest.mark.parametrize(
        "line",
        [
            b"",
            b"{",
            b"null",
            b"5",
            b"[]",
            b"{}",
            b'{"event":"run_succeeded"}',
            b'{"schema":"hostcore.event/1","seq":1,"time_ms":0,"run_id":"a","attempt":1,"src":null,"event":"metrics",'
            b'"step":1,"epoch":0}',
            b'{"schema":"hostcore.event/1","seq":1,"time_ms":0,"run_id":"a","attempt":1,"src":null,"event":"no_such",'
            b'"step":1,"epoch":0}',
        ],
        ids=repr,
    )
    def test_what_is_no_event_is_an_error_that_shows_it(self, line: bytes) -> None:
        with pytest.raises(CorruptLog, match="not an event"):
            decode_event(line)

    def test_another_schema_is_an_error_that_names_both(self) -> None:
        line = encode_event(event(RunSucceeded())).replace(b"hostcore.event/1", b"hostcore.event/2")
        with pytest.raises(CorruptLog, match=r"'hostcore.event/2'; this hostcore reads 'hostcore.event/1'"):
            decode_event(line)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_null_and_named(value: float) -> None:
    assert finite({"a": 1.5, "b": -0.0}) == ({"a": 1.5, "b": -0.0}, ())
    assert finite({"a": value, "b": 1.0, "c": value}) == ({"a": None, "b": 1.0, "c": None}, ("a", "c"))
