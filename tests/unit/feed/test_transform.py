"""``transform_batch`` on the loop's thread and in processes ahead of it."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from checkout import TESTS
from waiting import wait_until

from hostcore.plugins.hooks import Hooks
from hostcore.plugins.load import Component, load_component
from hostcore.plugins.resolve import Selected
from hostcore.worker.feed.feed import Cursor
from hostcore.worker.feed.transform import Transformer, check_workers, make_transformer
from hostcore.worker.feed.transform_call import EVALUATION, GlobalGenerator
from hostcore.worker.feed.transform_failure import ChildDied, TransformFailed, UnsendableResult
from hostcore_hookspecs import HostcoreError, InvalidData, Job, StepContext
from hostcore_hookspecs.plan import PluginRef

HERE = Path(__file__).parent
MODULE = "transforming_trainer"
ROWS = 4

#: A script that makes a pool when it is imported. Whoever imports it a second time leaves a second line.
SCRIPT = """
import sys
from pathlib import Path
sys.path[:0] = {paths!r}
with Path({log!r}).open("a") as log:
    log.write("imported\\n")
from hostcore.worker.feed.feed import Cursor
from test_transform import Lab, raw
transformer = Lab().make("Behaves", workers=2, at={{"8": "hangs"}}, sign={sign!r})
for rows in transformer.apply(iter(raw(5)), Cursor()):
    pass
"""


def raw(count: int, start: int = 0) -> list[pa.RecordBatch]:
    """Batches of numbered rows."""
    return [
        pa.record_batch({"n": pa.array(range(first, first + ROWS), pa.int64())})
        for first in range(start, start + count * ROWS, ROWS)
    ]


def processes(*, of: int | None = None) -> set[int]:
    """The living processes of transformers: all, or those that a process has started."""
    table = subprocess.run(
        ["ps", "-axwwo", "pid=,ppid=,stat=,args="], capture_output=True, text=True, check=True
    ).stdout
    lines = [line.split(None, 3) for line in table.splitlines()]
    return {
        int(pid)
        for pid, parent, state, args in (line for line in lines if len(line) == 4)
        if "hostcore.worker.feed.transform_process" in args and "Z" not in state and of in (None, int(parent))
    }


def mine() -> set[int]:
    """Those that this process has started."""
    return processes(of=os.getpid())


class Lab:
    """Makes transformers of the classes in ``transforming_trainer``, as an attempt makes them."""

    module = MODULE

    def __init__(self) -> None:
        self.before = mine()
        self.made: list[Transformer] = []
        self.stop = threading.Event()

    def load(self, trainer: str, *callbacks: str, **hyperparams: Any) -> tuple[list[Selected], list[Component]]:
        names = [("trainer", trainer, "/hyperparams"), *(("callback", one, "/callbacks/0") for one in callbacks)]
        selected = [
            Selected(
                ref=PluginRef(kind=kind, name=f"{self.module}:{name}", value=f"{self.module}:{name}"),
                settings=hyperparams if kind == "trainer" else {},
                pointer=pointer,
                use=f"{kind}:{name}",
                named_at=pointer,
            )
            for kind, name, pointer in names
        ]
        return selected, [load_component(one, job_dir=HERE, import_paths=True) for one in selected]

    def make(
        self,
        trainer: str,
        *callbacks: str,
        workers: int = 0,
        seed: int = 7,
        rank: int = 0,
        stride: int = ROWS,
        **hyperparams: Any,
    ) -> Transformer:
        selected, components = self.load(trainer, *callbacks, **hyperparams)
        made = make_transformer(
            hooks=Hooks(components),
            components=components,
            selected=selected,
            job_dir=HERE,
            ctx=StepContext(job=Job(seed=seed), hyperparams=hyperparams, rank=rank, device="cuda"),
            split="train",
            workers=workers,
            stride=stride,
            first=rank,
            stopping=self.stop.is_set,
        )
        assert made is not None
        self.made.append(made)
        return made


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Everything that it makes is closed, and no process is left."""
    made = Lab()
    yield made
    for each in made.made:
        each.close()
    assert mine() == made.before
    if str(HERE) in sys.path:
        sys.path.remove(str(HERE))
    sys.modules.pop(MODULE, None)


def plain(results: Sequence[Any]) -> list[Any]:
    """Everything that must be equal, as plain values."""
    return [
        {**one, "drawn": one["drawn"].tobytes(), "batch": one["batch"].to_pylist(), "pid": 0, "torch": 0}
        for one in results
    ]


class TestAnyNumberOfProcesses:
    def test_gives_the_same_results_in_the_same_order(self, lab: Lab) -> None:
        here = lab.make("Draws", scale=3)
        expected = [plain(list(here.apply(iter(raw(20)), Cursor(epoch=epoch)))) for epoch in (0, 1)]
        assert [one["rows"][0] for one in expected[0]] == list(range(0, 80, ROWS))
        assert expected[0][3]["seen"] == ("cpu", 0, 7, 3, None, None)
        assert expected[0] != expected[1]
        for workers in (1, 2):
            with closing(lab.make("Draws", workers=workers, scale=3)) as there:
                first = list(there.apply(iter(raw(20)), Cursor(epoch=0)))
                assert plain(first) == expected[0]
                # as a resume from the middle of the second epoch
                rest = list(there.apply(iter(raw(8, start=12 * ROWS)), Cursor(epoch=1, rows=12 * ROWS)))
                assert plain(rest) == expected[1][12:]
                assert {one["pid"] for one in first} <= mine()
                assert len(mine() - lab.before) == workers
                assert not any(one["torch"] for one in first), "the process has imported torch by itself"

    def test_takes_a_bounded_number_of_batches_ahead(self, lab: Lab) -> None:
        taken = 0

        def stream() -> Iterator[Any]:
            nonlocal taken
            for batch in raw(30):
                taken += 1
                yield batch

        given = 0
        for _ in lab.make("Draws", workers=1, scale=1).apply(stream(), Cursor()):
            given += 1
            assert taken <= given + 1
        assert (taken, given) == (30, 30)

    @pytest.mark.parametrize("workers", [0, 1])
    def test_an_error_of_the_stream_comes_after_the_batches_before_it(self, lab: Lab, workers: int) -> None:
        def stream() -> Iterator[Any]:
            yield from raw(2)
            raise InvalidData("a null in column n")

        results = lab.make("Draws", workers=workers, scale=1).apply(stream(), Cursor())
        assert [next(results)["rows"][0], next(results)["rows"][0]] == [0, ROWS]
        with pytest.raises(InvalidData, match="a null in column n"):
            next(results)

    def test_callbacks_that_wrap_it_are_there_and_others_are_not_made(
        self, lab: Lab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("WORKER", str(os.getpid()))
        there = lab.make("Behaves", "OnlyInTheWorker", "Doubles", workers=1, at={})
        assert list(there.apply(iter(raw(2)), Cursor())) == [[0, 1, 2, 3] * 2, [4, 5, 6, 7] * 2]


class TestGenerator:
    def drawn(self, lab: Lab, cursor: Cursor, count: int = 3, **about: Any) -> list[bytes]:
        # the rows are the same wherever the cursor is, so that only the generator differs
        transformer = lab.make("Draws", scale=1, **about)
        return [one["drawn"].tobytes() for one in transformer.apply(iter(raw(1) * count), cursor)]

    def test_depends_on_seed_epoch_position_and_rank_alone(self, lab: Lab) -> None:
        first = self.drawn(lab, Cursor())
        assert self.drawn(lab, Cursor()) == first
        assert len(set(first)) == 3
        assert self.drawn(lab, Cursor(rows=ROWS))[:2] == first[1:]
        assert set(self.drawn(lab, Cursor(epoch=1))).isdisjoint(first)
        assert set(self.drawn(lab, Cursor(), seed=8)).isdisjoint(first)

        ranks = [self.drawn(lab, Cursor(), rank=rank, stride=2 * ROWS) for rank in (0, 1)]
        assert len({*ranks[0], *ranks[1]}) == 6

    def test_is_philox_with_the_documented_counter(self, lab: Lab) -> None:
        philox = np.random.Philox(
            key=np.array([7, 5], dtype=np.uint64), counter=np.array([0, 2, 9, 0], dtype=np.uint64)
        )
        expected = np.random.Generator(philox).random(4).tobytes()
        assert self.drawn(lab, Cursor(epoch=5, rows=8), count=1, rank=1) == [expected]

    @pytest.mark.parametrize("workers", [0, 1])
    def test_drawing_from_a_global_one_instead_is_an_error(self, lab: Lab, workers: int) -> None:
        results = lab.make("DrawsGlobally", workers=workers).apply(iter(raw(3)), Cursor())
        next(results)
        with pytest.raises(HostcoreError, match=r"draws from the global random generator of numpy\.random") as caught:
            next(results)
        assert caught.value.code == GlobalGenerator.code
        assert "draw from rng" in str(caught.value.hint)

        if not workers:  # what is made once may draw from it
            assert len(set(lab.make("DrawsOnce").apply(iter(raw(3)), Cursor()))) == 1


#: What happens at which row; one pool serves all of them.
FAILURES = {
    "gives_up": 300,
    "needs_setup": 400,
    "exits": 500,
    "returns_a_lock": 600,
    "stops_the_run": 700,
}


@pytest.fixture(scope="module")
def failing() -> Iterator[Transformer]:
    """Two processes that do all of ``FAILURES``."""
    made = Lab().make("Behaves", workers=2, at={str(row): how for how, row in FAILURES.items()})
    with closing(made):
        yield made


class TestErrors:
    def results(self, transformer: Transformer, how: str) -> Iterator[Any]:
        """The results from the second batch before the failure on, of which the first two are taken."""
        row = FAILURES[how]
        first = row - 2 * ROWS
        results = transformer.apply(iter(raw(6, start=first)), Cursor(rows=first))
        assert [next(results)[0], next(results)[0]] == [first, first + ROWS]
        return results

    @pytest.mark.parametrize(
        ("how", "kind", "message", "hint"),
        [
            ("gives_up", "FatalError", "no decoder", "install one"),
            ("needs_setup", "AttributeError", "has no attribute 'vocabulary'", "setup and configure are not called"),
            ("exits", "SystemExit", "3", ""),
            ("stops_the_run", None, "runs ahead of the loop, where there is no request_stop", ""),
        ],
    )
    def test_an_exception_is_that_of_the_batch(
        self, failing: Transformer, how: str, kind: str | None, message: str, hint: str
    ) -> None:
        with pytest.raises(TransformFailed, match=message) as caught:
            next(self.results(failing, how))
        error = caught.value.as_run_error(rank=0)
        assert kind in (None, error.type)
        assert hint in str(error.hint)
        assert how != "gives_up" or error.traceback == "", "it explains itself"

    def test_a_result_that_cannot_be_sent_is_named(self, failing: Transformer) -> None:
        results = self.results(failing, "returns_a_lock")
        with pytest.raises(
            HostcoreError, match=r"returned a dict that cannot be sent .*: .*'_thread\.lock' object"
        ) as caught:
            next(results)
        assert caught.value.code == UnsendableResult.code

    @pytest.mark.parametrize(("epoch", "where"), [(0, "epoch 1"), (EVALUATION, "an evaluation")])
    def test_a_killed_process_is_one_error_that_says_so(self, lab: Lab, epoch: int, where: str) -> None:
        results = lab.make("Behaves", workers=1, at={"4": "is_killed"}).apply(iter(raw(6)), Cursor(epoch=epoch))
        assert next(results) == [0, 1, 2, 3]
        with pytest.raises(ChildDied) as caught:
            next(results)
        message = f"a process of dataset.workers was killed by SIGKILL on the batch from row 4 of {where} on"
        assert caught.value.message == message
        assert caught.value.pointer == "/dataset/workers"
        assert "memory" in str(caught.value.hint)

    def test_a_process_that_cannot_import_the_plugin_says_why(
        self, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "once.py").write_text(
            f"import os\nfrom {MODULE} import Draws\nif os.getpid() != {os.getpid()}:\n    1 / 0\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.syspath_prepend(str(HERE))
        lab.module = "once"
        with pytest.raises(TransformFailed, match="ZeroDivisionError") as caught:
            next(lab.make("Draws", workers=1, scale=1).apply(iter(raw(1)), Cursor()))
        assert "once.py" in caught.value.traceback
        del sys.modules["once"], sys.modules["transforming_trainer"]


class TestProcesses:
    def test_a_stop_ends_the_wait_for_a_batch_that_hangs_and_closing_ends_the_process(
        self, lab: Lab, tmp_path: Path
    ) -> None:
        sign = tmp_path / "hanging"
        there = lab.make("Behaves", workers=1, at={"4": "hangs"}, sign=str(sign))
        (pid,) = mine() - lab.before
        results = there.apply(iter(raw(6)), Cursor())
        assert next(results) == [0, 1, 2, 3]
        wait_until(sign.exists, "the batch to hang")
        threading.Timer(0.1, lab.stop.set).start()
        assert list(results) == []
        assert pid in mine()
        there.close()
        assert pid not in mine()
        there.close()

    def test_signals_of_a_scheduler_are_ignored_from_the_very_start(self, lab: Lab) -> None:
        there = lab.make("Behaves", workers=1, at={})
        (pid,) = mine() - lab.before
        scheduler = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)

        def bother() -> None:
            for number in scheduler:
                os.kill(pid, number)

        bother()
        results = there.apply(iter(raw(200)), Cursor())
        for _ in range(200):
            bother()
            next(results)
        assert pid in mine()
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []).isdisjoint(scheduler)

    def test_output_goes_where_the_worker_writes(self, lab: Lab, capfd: pytest.CaptureFixture[str]) -> None:
        results = lab.make("Behaves", workers=1, at={"0": "prints"}).apply(iter(raw(1)), Cursor())
        assert list(results) == ["printed"]
        assert capfd.readouterr().out == "hello from a batch\n"

    def test_a_worker_that_is_killed_leaves_none_and_its_script_was_imported_once(self, tmp_path: Path) -> None:
        log, sign, script = tmp_path / "log", tmp_path / "hanging", tmp_path / "script.py"
        script.write_text(SCRIPT.format(paths=[str(HERE), str(TESTS)], log=str(log), sign=str(sign)))
        process = subprocess.Popen([sys.executable, str(script)])
        try:
            wait_until(sign.exists, "a batch to hang")
            started = processes(of=process.pid)
            assert len(started) == 2
        finally:
            process.kill()
            process.wait()
        wait_until(lambda: not started & processes(), "the processes to end")
        assert log.read_text() == "imported\n"


class TestCheck:
    def test_processes_need_a_trainer_that_can_be_imported(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        _, (trainer,) = lab.load("Draws")
        monkeypatch.setattr(type(trainer.instance), "__module__", "__main__")
        with pytest.raises(HostcoreError, match="part of the running script"):
            check_workers(trainer, 1)
