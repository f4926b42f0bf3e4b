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

    def __init__(
        self, *, job: Job | None = None, start_seconds: float = 60.0, env: dict[str, str] | None = None, **instead: str
    ) -> None:
        self.stopped: list[str] = []
        command = (sys.executable, "-I", "-S", "-c", PROGRAM, json.dumps(instead))
        hyperparams = Hyperparams(
            command=command, env=env or {}, start_seconds=start_seconds, settings={"rate": 0.5, "names": ["a"]}
        )
        self.ctx = StepContext(
            job=job or Job(max_steps=3), hyperparams=hyperparams, run_state=RunState(total_steps=3), host=_Host(self)
        )
        self.trainer = ProcessTrainer()
        self.state: Any = None

    def begin(self) -> None:
        self.trainer.setup(self.ctx)
        self.state = self.trainer.configure()

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
    """What runs here of the programs that a test has started, and of what they have started."""
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


def refusal(stage: Stage, batch: Any = BATCH) -> HostcoreError:
    """The error of a run with the first step."""
    with pytest.raises(HostcoreError) as caught:
        stage.begin()
        stage.step(batch)
    return caught.value


class TestAProgramThatSpeaksTheProtocol:
    def test_trains(self) -> None:
        stage = Stage()
        stage.begin()
        assert stage.step().metrics == {"loss": 0.5}
        validated = stage.trainer.validate_step(stage.trainer.prepare_batch(BATCH, stage.state), stage.state, stage.ctx)
        assert (validated.metrics, validated.weight) == ({"loss": 0.25}, 3)
        assert len(programs()) == 1
        stage.trainer.teardown(stage.state)
        assert programs() == []

    def test_is_told_of_its_settings_and_of_the_run(self) -> None:
        told = Stage(initialize="raise SystemExit(json.dumps(params))")
        message = refusal(told).message
        said = json.loads(message[message.index("{") :])
        assert said["protocol"] == "hostcore.trainer/1"
        assert said["settings"] == {"rate": 0.5, "names": ["a"]}
        assert (said["run"]["seed"], said["run"]["total_steps"], said["run"]["device"]) == (0, 3, "cpu")

    def test_has_the_variables_of_the_job(self) -> None:
        told = Stage(env={"NAME": "value"}, setup="error(os.environ['NAME'])")
        assert refusal(told).message.endswith("setup of python: value")

    def test_gets_numbers_that_json_does_not_have(self) -> None:
        stage = Stage(train_step='answer({"metrics": {"loss": "NaN", "most": "Infinity", "least": "-Infinity"}})')
        stage.begin()
        metrics = stage.step().metrics
        assert math.isnan(metrics["loss"])
        assert (metrics["most"], metrics["least"]) == (math.inf, -math.inf)

    def test_may_report_debug_values(self) -> None:
        stage = Stage(train_step='answer({"metrics": {}, "debug": {"clipped": [1, 2]}})')
        stage.begin()
        assert stage.step().debug == {"clipped": [1, 2]}

    def test_may_ask_for_a_pause_and_for_silence(self) -> None:
        control = '{"backoff_seconds": 0.5, "skip_cadence_emit": True, "record_metrics": True}'
        stage = Stage(train_step=f'answer({{"metrics": {{}}, "control": {control}}})')
        stage.begin()
        given = stage.step().control
        assert (given.backoff_seconds, given.skip_cadence_emit, given.record_metrics) == (0.5, True, True)

    def test_may_warn_and_ask_for_the_end(self) -> None:
        stage = Stage(
            train_step="tell('warn', message='it is warm'); tell('request_stop', reason='it is enough');"
            "answer({'metrics': {}})"
        )
        stage.begin()
        stage.step()
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
        stage.begin()
        assert stage.step([1, 2]).metrics == {"loss": 0.5}

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


class TestAProgramThatCannotBeUsed:
    @pytest.mark.parametrize("program", ["no-such-program", "/nowhere/program", "./not-there"])
    def test_because_it_is_not_there(self, program: str, tmp_path: Path) -> None:
        stage = Stage()
        stage.ctx.hyperparams = Hyperparams(command=(program,), cwd=tmp_path)
        error = refusal(stage)
        assert isinstance(error, InvalidSettings)
        assert error.pointer == "/command"
        assert error.message == f"{program} cannot be started: No such file or directory"

    def test_because_there_is_no_folder_for_it(self, tmp_path: Path) -> None:
        stage = Stage()
        stage.ctx.hyperparams = Hyperparams(command=("true",), cwd=tmp_path / "none")
        error = refusal(stage)
        assert isinstance(error, InvalidSettings)
        assert (error.pointer, "is no folder to work in" in error.message) == ("/cwd", True)

    def test_because_it_may_not_be_executed(self, tmp_path: Path) -> None:
        (tmp_path / "program").touch()
        stage = Stage()
        stage.ctx.hyperparams = Hyperparams(command=("./program",), cwd=tmp_path)
        assert refusal(stage).message == "./program cannot be started: Permission denied"

    def test_because_it_speaks_another_protocol(self) -> None:
        error = refusal(Stage(initialize='answer({"protocol": "hostcore.trainer/7"})'))
        assert error.code == "process.failed"
        assert "does not speak hostcore.trainer/1" in error.message
        assert "hostcore.trainer/7" in error.message

    def test_because_it_says_nothing(self) -> None:
        error = refusal(Stage(initialize="time.sleep(60)", start_seconds=0.3))
        assert "has not answered `initialize` within 0.3 seconds" in error.message

    def test_because_it_says_half_a_message_and_waits(self) -> None:
        error = refusal(Stage(initialize="write('{\"id'); time.sleep(60)", start_seconds=0.3))
        assert "has not answered `initialize` within 0.3 seconds" in error.message

    @pytest.mark.parametrize("settings", [{}, {"large": "x" * 2**20}], ids=["small", "more than a pipe holds"])
    def test_because_what_it_has_started_says_nothing(self, settings: dict[str, str]) -> None:
        """That holds the pipes open, also when the program itself has ended."""
        stage = Stage()
        stage.ctx.hyperparams = Hyperparams(command=("sh", "-c", "sleep 600; :"), start_seconds=0.3, settings=settings)
        assert refusal(stage).message == "sh has not answered `initialize` within 0.3 seconds"
        assert programs() == []

    def test_because_it_has_ended_and_another_holds_its_pipes(self) -> None:
        stage = Stage()
        command = ("sh", "-c", "exec 3<&0; tail -n 1 <&3 2>/dev/null &")
        stage.ctx.hyperparams = Hyperparams(command=command, start_seconds=0.3)
        assert refusal(stage).message == "sh has not answered `initialize` within 0.3 seconds"

    def test_because_it_lacks_what_the_job_asks_for(self) -> None:
        error = refusal(Stage(job=Job(max_steps=3, samples=(SampleRequest(prompt="x"),))))
        assert isinstance(error, InvalidSettings)
        assert error.message == "the program has no generate_sample, which `samples` or `sample_every` of the job needs"

    def test_because_it_takes_one_batch_a_step(self) -> None:
        error = refusal(Stage(job=Job(max_steps=3, accumulate=4)))
        assert error.message == "the program takes one batch a step, and the job accumulates 4"

    def test_because_it_has_methods_that_there_are_not(self) -> None:
        error = refusal(Stage(initialize='answer({"protocol": "hostcore.trainer/1", "methods": ["fit"]})'))
        assert "`methods` that hostcore.trainer/1 does not have: ['fit']" in error.message

    def test_because_of_its_settings(self) -> None:
        refused = "error('is above 1', kind='InvalidSettings', pointer='/rate', hint='take 0.1')"
        error = refusal(Stage(initialize=refused))
        assert isinstance(error, InvalidSettings)
        assert (error.pointer, error.message, error.hint) == ("/settings/rate", "is above 1", "take 0.1")

    def test_because_of_the_data(self) -> None:
        error = refusal(Stage(prepare_batch="error('no column y', kind='InvalidData')"))
        assert isinstance(error, InvalidData)
        assert error.message == "no column y"


class TestAProgramThatFails:
    @pytest.mark.parametrize("method", ["initialize", "setup", "configure", "prepare_batch", "train_step"])
    def test_with_an_error_of_its_own(self, method: str) -> None:
        error = refusal(Stage(**{method: "error('the matrix is singular')"}))
        assert (error.code, error.message) == ("process.raised", f"{method} of python: the matrix is singular")

    @pytest.mark.parametrize("method", ["initialize", "setup", "configure", "prepare_batch", "train_step"])
    def test_by_a_signal(self, method: str) -> None:
        error = refusal(Stage(**{method: "sys.stderr.write('it hurts\\n'); os.kill(os.getpid(), signal.SIGSEGV)"}))
        assert error.code == "process.failed"
        assert error.message.endswith(f"was ended by SIGSEGV without an answer, in `{method}`; it said: it hurts")

    def test_by_its_own_end(self) -> None:
        error = refusal(Stage(train_step="raise SystemExit(3)"))
        assert error.message.endswith("exited with 3 without an answer, in `train_step`")

    def test_in_the_middle_of_a_message(self) -> None:
        error = refusal(Stage(train_step='write(\'{"id": 4, "res\'); raise SystemExit(0)'))
        assert "exited with 0 in the middle of a message, in `train_step`" in error.message

    def test_by_closing_its_output(self) -> None:
        error = refusal(Stage(train_step="os.close(1); time.sleep(60)"))
        assert "closed its standard output without an answer, in `train_step`" in error.message

    def test_while_a_large_batch_is_sent(self) -> None:
        error = refusal(Stage(prepare_batch="raise SystemExit('no room')"), LARGE)
        assert "exited with 1 without an answer, in `prepare_batch`; it said: no room" in error.message

    def test_without_reading_a_large_batch(self) -> None:
        error = refusal(Stage(prepare_batch="error('I do not read')"), LARGE)
        assert error.message == "prepare_batch of python: I do not read"

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

    def test_by_a_notification_that_there_is_not(self) -> None:
        error = refusal(Stage(train_step="tell('dance', to='music')"))
        assert error.message.endswith("a notification that hostcore.trainer/1 does not have: 'dance'")

    def test_to_end(self) -> None:
        stage = Stage(
            initialize="signal.signal(signal.SIGTERM, signal.SIG_IGN); answer(usual['initialize'])",
            teardown="answer(None); time.sleep(60)",
        )
        stage.begin()
        stage.trainer.teardown(stage.state)
        assert programs() == []

    def test_to_end_and_so_does_what_it_has_started(self) -> None:
        stage = Stage(teardown="import subprocess; answer(None); subprocess.run(['sleep', '600'])")
        stage.begin()
        stage.trainer.teardown(stage.state)
        assert programs() == []

    def test_is_ended_if_setup_fails(self) -> None:
        stage = Stage(setup="error('no')")
        refusal(stage)
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
