"""The trainer ``process`` with programs that speak its protocol well, badly, or not at all. All are real processes."""

import json
import math
import os
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import psutil
import pyarrow as pa
import pytest
from waiting import wait_until

from hostcore_builtin_plugins.process import child
from hostcore_builtin_plugins.process.child import ChildFailed, ChildRaised
from hostcore_builtin_plugins.process.trainer import Hyperparams, PreparedBatch, ProcessTrainer
from hostcore_hookspecs import HostcoreError, InvalidData, InvalidSettings, Job, RunState, SampleRequest, StepContext

#: Answers each request; what it does for one of them instead is in its argument, by method.
PROGRAM = """
import json, os, signal, socket, sys, time
instead = json.loads(sys.argv[1])
usual = {
    "initialize": {"protocol": "hostcore.trainer/1", "methods": ["validate_step", "teardown"]},
    "train_step": {"metrics": {"loss": 0.5}},
    "validate_step": {"metrics": {"loss": 0.25}, "weight": 3},
}
def write(text):
    sys.stdout.write(text)
    sys.stdout.flush()
def answer(result, number=None):
    write(json.dumps({"jsonrpc": "2.0", "id": number or asked["id"], "result": result}) + "\\n")
def error(message, **data):
    write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"message": message, "data": data}}) + "\\n")
def tell(method, **params):
    write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}) + "\\n")
batches = socket.socket(fileno=int(os.environ["HOSTCORE_BATCHES_FD"]))
for line in sys.stdin:
    asked = json.loads(line)
    params = asked["params"]
    if asked["method"] in instead:
        exec(instead[asked["method"]])
    else:
        answer(usual.get(asked["method"]))
"""
SCHEMA = json.loads(files("hostcore_builtin_plugins.process").joinpath("hostcore.trainer-1.schema.json").read_text())
BATCH = pa.record_batch({"x": pa.array([1.0, 2.0, 3.0])})
#: More than a socket holds.
LARGE = pa.record_batch({"x": pa.array([0.0] * 2_000_000)})


class Stage:
    """A trainer whose program does something else than usual."""

    def __init__(self, *, job: Job | None = None, hyperparams: dict[str, Any] | None = None, **instead: str) -> None:
        self.stopped: list[str] = []
        command = (sys.executable, "-I", "-S", "-c", PROGRAM, json.dumps(instead))
        usual = {"command": command, "start_seconds": 60.0, "settings": {"rate": 0.5, "names": ["a"]}}
        given = Hyperparams(**{**usual, **(hyperparams or {})})
        self.ctx = StepContext(
            job=job or Job(max_steps=3), hyperparams=given, run_state=RunState(total_steps=3), host=_Host(self)
        )
        self.trainer = ProcessTrainer()
        self.state: Any = None

    def begin(self) -> None:
        self.trainer.setup(self.ctx)
        self.state = self.trainer.configure()

    def answers(self, batch: Any = BATCH) -> Any:
        """Return the answer of the program to the first step."""
        self.begin()
        return self.step(batch)

    def step(self, batch: Any = BATCH) -> Any:
        prepared = self.trainer.prepare_batch(batch, self.state)
        return self.trainer.train_step(prepared, self.state, self.ctx)


class _Host:
    """Notes what is asked of it."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def request_stop(self, reason: str) -> None:
        self._stage.stopped.append(reason)

    def warn(self, message: str) -> None:
        self._stage.stopped.append(f"warning: {message}")


#: The children of this process that are no test's: the server that forks processes for all tests may be one.
_OTHERS: set[int] = set()


def programs() -> list[psutil.Process]:
    """Processes of the programs that a test has started, and of those that these have started."""
    found = []
    for one in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if one.pid not in _OTHERS:
                found += [
                    each for each in (one, *one.children(recursive=True)) if each.status() != psutil.STATUS_ZOMBIE
                ]
    return found


@pytest.fixture(autouse=True)
def _ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No thread of a program is left behind when it has ended."""
    monkeypatch.setattr(child, "_END_SECONDS", 2.0)
    _OTHERS.clear()
    _OTHERS.update(one.pid for one in psutil.Process().children())
    yield
    for one in programs():
        one.kill()
    wait_until(
        lambda: not [thread for thread in threading.enumerate() if "process trainer" in thread.name], "threads to end"
    )


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that does not end is killed soon."""
    monkeypatch.setattr(child, "_END_SECONDS", 0.3)


def refusal(stage: Stage, batch: Any = BATCH) -> HostcoreError:
    """The error of a run with the first step."""
    with pytest.raises(HostcoreError) as caught:
        stage.answers(batch)
    return caught.value


class TestAProgramThatSpeaksTheProtocol:
    def test_trains(self) -> None:
        stage = Stage()
        assert stage.answers().metrics == {"loss": 0.5}
        validated = stage.trainer.validate_step(stage.trainer.prepare_batch(BATCH, stage.state), stage.state, stage.ctx)
        assert (validated.metrics, validated.weight) == ({"loss": 0.25}, 3)
        assert len(programs()) == 1
        stage.trainer.teardown(stage.state)
        assert programs() == []

    def test_is_told_of_its_settings_of_the_run_and_has_the_variables_of_the_job(self) -> None:
        told = Stage(initialize="raise SystemExit(json.dumps(params))")
        message = refusal(told).message
        said = json.loads(message[message.index("{") :])
        assert said["protocol"] == "hostcore.trainer/1"
        assert said["settings"] == {"rate": 0.5, "names": ["a"]}
        assert (said["run"]["seed"], said["run"]["total_steps"], said["run"]["device"]) == (0, 3, "cpu")
        told = Stage(hyperparams={"env": {"NAME": "value"}}, setup="error(os.environ['NAME'])")
        assert refusal(told).message.endswith("setup of python: value")

    def test_may_answer_with_numbers_that_json_does_not_have_debug_values_and_wishes(self) -> None:
        metrics = '{"loss": "NaN", "most": "Infinity", "least": "-Infinity"}'
        control = '{"backoff_seconds": 0.5, "skip_cadence_emit": True, "record_metrics": True}'
        stage = Stage(
            train_step="tell('warn', message='it is warm'); tell('request_stop', reason='it is enough');"
            f'answer({{"metrics": {metrics}, "debug": {{"clipped": [1, 2]}}, "control": {control}}})'
        )
        given = stage.answers()
        assert math.isnan(given.metrics["loss"])
        assert (given.metrics["most"], given.metrics["least"]) == (math.inf, -math.inf)
        assert given.debug == {"clipped": [1, 2]}
        wishes = given.control
        assert (wishes.backoff_seconds, wishes.skip_cadence_emit, wishes.record_metrics) == (0.5, True, True)
        assert stage.stopped == ["warning: it is warm", "it is enough"]

    @pytest.mark.parametrize(
        "notification",
        [
            *({"method": "warn", "params": {"message": "it is warm"}}, {"method": "request_stop", "params": {}}),
            *({"method": "request_stop", "params": {"reason": "enough"}}, {"method": "warn", "params": {"message": 7}}),
            *({"method": "warn", "params": {"reason": "x"}}, {"method": "warn", "params": ["x"]}, {"method": "warn"}),
            *({"method": "dance", "params": {"message": "x"}}, {"method": 7, "params": {"message": "x"}}),
            {"jsonrpc": "2.0", "method": "warn", "params": {"message": "it is warm", "more": 1}},
        ],
        ids=json.dumps,
    )
    def test_may_send_the_notifications_that_the_schema_has_and_no_others(self, notification: dict[str, Any]) -> None:
        line = json.dumps(notification) + "\n"
        stage = Stage(train_step=f"write({line!r}); answer({{'metrics': {{}}}})")
        stage.begin()
        its = {**SCHEMA, "oneOf": [{"$ref": "#/$defs/notification"}]}
        if jsonschema.Draft202012Validator(its).is_valid(notification):
            stage.step()
            assert len(stage.stopped) == 1
        else:
            with pytest.raises(ChildFailed):
                stage.step()

    def test_gets_several_batches_of_a_step(self) -> None:
        job = Job(max_steps=3, accumulate=2)
        accumulates = 'answer({"protocol": "hostcore.trainer/1", "accumulate": True})'
        stage = Stage(job=job, initialize=accumulates, train_step='answer({"metrics": {"n": len(params["batches"])}})')
        stage.begin()
        batches = tuple(stage.trainer.prepare_batch(BATCH, stage.state) for _ in range(2))
        assert stage.trainer.train_step(batches, stage.state, stage.ctx).metrics == {"n": 2}

    def test_gets_batches_that_are_no_rows_as_json(self) -> None:
        stage = Stage(prepare_batch="answer(None) if params == {'batch': 1, 'rows': None, 'value': [1, 2]} else 1 / 0")
        assert stage.answers([1, 2]).metrics == {"loss": 0.5}

    def test_gets_batches_as_arrow_streams_one_for_each_schema(self, tmp_path: Path) -> None:
        kept = tmp_path / "bytes"
        stage = Stage(
            prepare_batch="answer(None)",
            teardown=f"answer(None); batches.setblocking(False); open({str(kept)!r}, 'wb').write(batches.recv(10**6))",
        )
        stage.begin()
        other = pa.record_batch({"y": pa.array(["a", None])})
        for batch in (BATCH, BATCH.slice(1), other, BATCH):
            stage.trainer.prepare_batch(batch, stage.state)
        stage.trainer.teardown(stage.state)
        source = pa.BufferReader(kept.read_bytes())
        assert pa.ipc.open_stream(source).read_all().to_batches() == [BATCH, BATCH.slice(1)]
        assert pa.ipc.open_stream(source).read_all().to_batches() == [other]
        assert pa.ipc.open_stream(source).read_next_batch() == BATCH

    def test_writes_its_checkpoints_and_samples(self, tmp_path: Path) -> None:
        write = "open(params['output_dir'] + '/own', 'w').write(str(params['step'])); answer({'files': 1})"
        stage = Stage(
            save_checkpoint=write,
            generate_sample=write,
            load_checkpoint="error(open(params['checkpoint_dir'] + '/own').read())",
        )
        stage.begin()
        assert stage.trainer.save_checkpoint(stage.state, 3, str(tmp_path), True) == {"files": 1}
        with pytest.raises(ChildRaised, match="load_checkpoint of python: 3"):
            stage.trainer.load_checkpoint(stage.state, str(tmp_path), stage.ctx)
        assert stage.trainer.generate_sample(stage.state, 4, SampleRequest(prompt="x"), str(tmp_path)) == {"files": 1}
        stage.trainer.load_state_dict(stage.trainer.state_dict())
        with pytest.raises(ChildFailed, match="is one of 'another/2'"):
            stage.trainer.load_state_dict({"protocol": "another/2"})


SAMPLES = Job(max_steps=3, samples=(SampleRequest(prompt="x"),))
SILENT = "has not answered `initialize` within 0.3 seconds"
OTHER = {"initialize": 'answer({"protocol": "hostcore.trainer/7"})'}
UNKNOWN = {"initialize": 'answer({"protocol": "hostcore.trainer/1", "methods": ["fit"]})'}
NO_DATA = {"prepare_batch": "error('no column y', kind='InvalidData')"}


class TestAProgramThatCannotBeUsed:
    @pytest.mark.parametrize("program", ["no-such-program", "/nowhere/program", "./not-there", "./file", "true"])
    def test_because_it_is_not_there(self, program: str, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        folder = tmp_path / ("none" if program == "true" else "")
        error = refusal(Stage(hyperparams={"command": (program,), "cwd": folder}))
        assert isinstance(error, InvalidSettings)
        if program == "true":
            assert (error.pointer, "is no folder to work in" in error.message) == ("/cwd", True)
        else:
            why = "Permission denied" if program == "./file" else "No such file or directory"
            assert (error.pointer, error.message) == ("/command", f"{program} cannot be started: {why}")

    @pytest.mark.parametrize(
        ("instead", "job", "kind", "message"),
        [
            (OTHER, None, ChildFailed, "does not speak hostcore.trainer/1: .*hostcore.trainer/7"),
            (UNKNOWN, None, ChildFailed, r"`methods` that hostcore.trainer/1 does not have: \['fit'\]"),
            (
                {},
                SAMPLES,
                InvalidSettings,
                "has no generate_sample, which `samples` or `sample_every` of the job needs",
            ),
            ({}, Job(max_steps=3, accumulate=4), HostcoreError, "takes one batch a step, and the job accumulates 4"),
            (NO_DATA, None, InvalidData, "no column y"),
        ],
    )
    def test_because_it_lacks_what_the_job_asks_for(
        self, instead: dict[str, str], job: Any, kind: type[Exception], message: str
    ) -> None:
        with pytest.raises(kind, match=message):
            Stage(job=job, **instead).answers()

    @pytest.mark.parametrize("wrong", ["time.sleep(60)", "write('{\"id'); time.sleep(60)"])
    def test_because_it_says_nothing_or_half_a_message(self, wrong: str) -> None:
        assert SILENT in refusal(Stage(hyperparams={"start_seconds": 0.3}, initialize=wrong)).message

    @pytest.mark.parametrize("holds", ["sleep 600; :", "exec 3<&0; tail -n 1 <&3 2>/dev/null &"])
    @pytest.mark.parametrize("settings", [{}, {"large": "x" * 2**20}], ids=["small", "more than a pipe holds"])
    def test_because_what_it_has_started_holds_its_pipes(self, holds: str, settings: dict[str, str]) -> None:
        """That holds the pipes open, also when the program itself has ended."""
        hyperparams = {"command": ("sh", "-c", holds), "start_seconds": 0.3, "settings": settings}
        assert refusal(Stage(hyperparams=hyperparams)).message == f"sh {SILENT}"
        if holds.startswith("sleep"):
            assert programs() == []

    def test_because_of_its_settings(self) -> None:
        refused = "error('is above 1', kind='InvalidSettings', pointer='/rate', hint='take 0.1')"
        error = refusal(Stage(initialize=refused))
        assert isinstance(error, InvalidSettings)
        assert (error.pointer, error.message, error.hint) == ("/settings/rate", "is above 1", "take 0.1")


class TestAProgramThatFails:
    @pytest.mark.parametrize("method", ["initialize", "setup", "configure", "prepare_batch", "train_step"])
    def test_with_an_error_of_its_own_or_by_a_signal(self, method: str) -> None:
        error = refusal(Stage(**{method: "error('the matrix is singular')"}))
        assert (error.code, error.message) == ("process.raised", f"{method} of python: the matrix is singular")
        error = refusal(Stage(**{method: "sys.stderr.write('it hurts\\n'); os.kill(os.getpid(), signal.SIGSEGV)"}))
        assert error.code == "process.failed"
        assert error.message.endswith(f"was ended by SIGSEGV without an answer, in `{method}`; it said: it hurts")

    @pytest.mark.parametrize(
        ("batch", "method", "wrong", "message"),
        [
            (BATCH, "train_step", "raise SystemExit(3)", "exited with 3 without an answer, in `train_step`"),
            (BATCH, "train_step", 'write(\'{"id": 4, "res\'); raise SystemExit(0)', "in the middle of a message"),
            (BATCH, "train_step", "tell('dance', to='music')", "hostcore.trainer/1 does not have: 'dance'"),
            (LARGE, "prepare_batch", "raise SystemExit('no room')", "in `prepare_batch`; it said: no room"),
            (LARGE, "prepare_batch", "error('I do not read')", "prepare_batch of python: I do not read"),
        ],
    )
    def test_at_a_step_also_without_reading_a_large_batch(
        self, batch: Any, method: str, wrong: str, message: str
    ) -> None:
        assert message in refusal(Stage(**{method: wrong}), batch).message

    @pytest.mark.usefixtures("_impatient")
    def test_by_closing_its_output(self) -> None:
        error = refusal(Stage(train_step="os.close(1); time.sleep(60)"))
        assert "closed its standard output without an answer, in `train_step`" in error.message

    def test_without_reading_the_second_of_two_batches_of_which_it_has_said_so_before(self) -> None:
        """Both answers come at once, so that the second one is read with the first."""
        job = Job(max_steps=3, accumulate=2)
        stage = Stage(
            job=job,
            initialize='answer({"protocol": "hostcore.trainer/1", "accumulate": True})',
            prepare_batch="both = [json.dumps({'id': n, **of}) + chr(10) for n, of in"
            " ((4, {'result': None}), (5, {'error': {'message': 'no more'}}))]\n"
            "if asked['id'] == 5: write(''.join(both))",
        )
        stage.begin()
        stage.trainer.prepare_batch(BATCH, stage.state)
        with pytest.raises(ChildRaised, match="prepare_batch of python: no more"):
            stage.trainer.prepare_batch(LARGE, stage.state)

    @pytest.mark.parametrize(
        ("wrong", "told"),
        [
            ("write('hello\\n')", "a line that is no message: 'hello'"),
            ("write('[1]\\n')", "a line that is no message: '[1]'"),
            ("write('x' * 2**24 + '\\n')", "a line of more than 16,777,216 bytes"),
            ("answer(None, number=77)", "an answer to request '77', where 4 (prepare_batch) is open"),
            ("answer(None); answer(None); answer(None)", "an answer to request '4', where 5 (train_step) is open"),
            ("write('{\"id\": 4}\\n')", "an answer to `prepare_batch` with neither `result` nor `error`"),
            ('write(\'{"id": 4, "error": {}}\\n\')', "an error without `message` as its answer"),
            ("write('{}\\n')", "a message that is neither an answer nor a notification"),
        ],
    )
    def test_to_keep_to_the_protocol(self, wrong: str, told: str) -> None:
        error = refusal(Stage(prepare_batch=wrong))
        assert error.code == "process.failed"
        assert f"does not keep to hostcore.trainer/1: it wrote {told}" in error.message

    @pytest.mark.parametrize(
        ("result", "told"),
        [
            ("[1]", "answered train_step with list: [1]"),
            ("{}", "answered train_step with dict: {}"),
            ('{"metrics": {"loss": "low"}}', "answered train_step: metric 'loss' with str: 'low'"),
            ('{"metrics": {"loss": True}}', "answered train_step: metric 'loss' with bool: True"),
            ('{"metrics": {}, "loss": 1}', "answered train_step with dict"),
            ('{"metrics": {}, "debug": 3}', "answered train_step: debug with int: 3"),
            ('{"metrics": {}, "weight": []}', "answered train_step: weight with list: []"),
            ('{"metrics": {}, "control": {"stop": 1}}', "answered train_step with dict: {'stop': 1}"),
        ],
    )
    def test_with_a_result_of_a_wrong_kind(self, result: str, told: str) -> None:
        error = refusal(Stage(train_step=f"answer({result})"))
        assert f"the program {told}" in error.message
        assert error.hint

    def test_to_end_its_line(self) -> None:
        stage = Stage(train_step="while True: write('x' * 2**20)")
        stage.begin()
        tracemalloc.start()
        try:
            with pytest.raises(ChildFailed, match="a line of more than 16,777,216 bytes"):
                stage.step()
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < 5 * 2**24

    @pytest.mark.usefixtures("_impatient")
    @pytest.mark.parametrize("waits", ["time.sleep(60)", "import subprocess; subprocess.run(['sleep', '600'])"])
    def test_to_end_is_killed_with_what_it_has_started(self, waits: str) -> None:
        ignores = "signal.signal(signal.SIGTERM, signal.SIG_IGN); answer(usual['initialize'])"
        stage = Stage(initialize=ignores, teardown=f"answer(None); {waits}")
        stage.begin()
        stage.trainer.teardown(stage.state)
        assert programs() == []

    def test_at_setup_is_ended(self) -> None:
        refusal(Stage(setup="error('no')"))
        assert programs() == []


def test_a_batch_is_compared_by_its_rows() -> None:
    """The number is by which the program knows it."""
    assert PreparedBatch(number=1, rows=3) == PreparedBatch(number=2, rows=3)


def test_a_program_is_heard_on_where_its_words_cannot_be_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error may be a pipe that is not read any more, or a file on a full disk."""
    reading, writing = os.pipe()
    os.close(reading)
    monkeypatch.setattr(child, "_STANDARD_ERROR", writing)
    stage = Stage(train_step="sys.stderr.write('loud ' * 2**16 + '\\n'); sys.stderr.flush(); answer({'metrics': {}})")
    try:
        stage.begin()
        for _ in range(3):
            assert stage.step().metrics == {}
        stage.trainer.teardown(stage.state)
    finally:
        os.close(writing)
