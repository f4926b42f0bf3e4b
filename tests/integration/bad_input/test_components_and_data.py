"""Trainers, data and devices that cannot be used: found by the worker before the run begins; nothing of it stays."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checkout import HOST

TRAINER = textwrap.dedent("""
    import attrs
    from hostcore_hookspecs import InvalidSettings, StepResult

    class Trainer:
        def setup(self): pass
        def configure(self): return {}
        def prepare_batch(self, raw_batch): return raw_batch
        def train_step(self, prepared_batch): return StepResult(metrics={"loss": 1.0})
        def state_dict(self, state): return state
        def load_state_dict(self, state, payload): state.update(payload)
""")
STRICT = """
    @attrs.frozen(kw_only=True)
    class Hyperparams:
        learning_rate: float = 0.1

    def setup(self, ctx):
        if ctx.hyperparams.learning_rate > 1:
            raise InvalidSettings("/learning_rate", "is above 1", hint="0.1 is usual")
"""
TENSORS = """
    def prepare_batch(self, raw_batch):
        from hostcore_toolkit import to_tensors
        return to_tensors(raw_batch)
"""


def trainer(extra: str = "", *, before: str = "", **replace: str) -> str:
    """The source of a trainer: with more in it, something before it, or lines replaced."""
    source = before + "\n" + TRAINER + extra
    for old, new in replace.items():
        source = source.replace(f"def {old}", f"def {new}")
    return source


def table(**columns: Any) -> pa.Table:
    return pa.table({"x": pa.array(range(64), pa.float32()), **columns})


def parquet(**columns: Any) -> Callable[[Path], object]:
    return lambda path: pq.write_table(table(**columns), path)


def truncated(path: Path) -> None:
    pq.write_table(table(), path)
    path.write_bytes(path.read_bytes()[:-100])


@attrs.frozen(kw_only=True)
class Case:
    """A job that the worker refuses."""

    #: The source of ``mine.py``, which has the trainer ``mine:Trainer``.
    trainer: str = TRAINER
    #: Writes ``data.parquet``; None: the job has two mock batches instead.
    data: Callable[[Path], object] | None = None
    job: dict[str, Any] = attrs.field(factory=dict)
    dataset: dict[str, Any] = attrs.field(factory=dict)
    pointer: str
    #: Parts of the message and of the hint.
    says: tuple[str, ...]
    hints: tuple[str, ...] = ()
    #: The name of the file that is to blame.
    file: str = "mine.py"


CASES = {
    "a mistyped hook": Case(
        trainer=trainer("    def save_chekpoint(self, state): pass"),
        pointer="/trainer",
        says=("save_chekpoint", "never called", "did you mean 'save_checkpoint'?"),
        hints=("@not_a_hook",),
    ),
    "an import that interrupts": Case(
        trainer=trainer(before="raise KeyboardInterrupt"),
        pointer="/trainer",
        says=("could not be imported", "KeyboardInterrupt"),
    ),
    "a constructor that interrupts": Case(
        trainer=trainer("    def __init__(self): raise KeyboardInterrupt"),
        pointer="/trainer",
        says=("could not be constructed", "KeyboardInterrupt", "mine.py:"),
    ),
    "a hyperparameter that the trainer refuses later": Case(
        trainer=trainer(STRICT),
        job={"hyperparams": {"learning_rate": 2.0}},
        pointer="/hyperparams/learning_rate",
        says=("is above 1",),
        hints=("0.1 is usual",),
        file="mine.py:20",
    ),
    "data that is not there": Case(
        data=lambda path: path.with_name("date.parquet").touch(),
        pointer="/dataset/parquet_paths/0",
        says=("data.parquet does not exist",),
        hints=("did you mean date.parquet",),
        file="data.parquet",
    ),
    "a truncated file": Case(
        data=truncated,
        pointer="/dataset",
        says=("truncated or damaged Parquet file",),
        hints=("copy or write it again",),
        file="data.parquet",
    ),
    "a column that is not there": Case(
        data=parquet(price=pa.array(range(64))),
        dataset={"columns": ["x", "prize"]},
        pointer="/dataset/columns/1",
        says=("no column 'prize'",),
        hints=("did you mean 'price'?",),
        file="data.parquet",
    ),
    "a type that cannot become a tensor": Case(
        trainer=trainer(TENSORS),
        data=parquet(name=pa.array(["a"] * 64)),
        pointer="/dataset",
        says=("column 'name' is of type string, which cannot become a tensor",),
        hints=("encode it as numbers", "dataset.columns"),
        file="mine.py:16",
    ),
    "a null among numbers": Case(
        data=parquet(y=pa.array([None] + [1.0] * 63)),
        pointer="/dataset",
        says=("column 'y' has 1 null",),
        hints=("allow_nulls",),
        file="job.json",
    ),
    "a device that is not there": Case(
        job={"device": "cuda:7"},
        pointer="/device",
        says=("there is no device 'cuda:7' here",),
        hints=("this machine has:", "cpu"),
        file="job.json",
    ),
}


def prepare(case: Case, workplace: Any) -> None:
    """Write the trainer, the data and the job."""
    workplace.write(case.trainer, "mine.py")
    job: dict[str, Any] = {"trainer": "mine:Trainer", "run_id": "new", "max_steps": 2, "terminal": False}
    if case.data is None:
        job["mock_batches"] = [1, 2]
    else:
        case.data(workplace.folder / "data.parquet")
        job["dataset"] = {"parquet_paths": ["data.parquet"], "batch_size": 8, **case.dataset}
    workplace.write({**job, **case.job})


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_cannot_be_used_is_refused_with_one_clear_error(case: Case, workplace: Any) -> None:
    if "device" in case.job and Path("/dev/nvidia7").exists():
        pytest.skip("this machine has an eighth GPU")
    prepare(case, workplace)
    error = workplace.hostcore("run", "job.json", "--json").error
    assert (error["pointer"], Path(error["file"]).name) == (case.pointer, case.file)
    for part in case.says:
        assert part in error["message"]
    for part in case.hints:
        assert part in error["hint"].lower()
    if case is CASES["a truncated file"]:
        told = workplace.hostcore("validate", "job.json").told
        for part in (*case.says, f"at: {case.pointer}", "file: "):
            assert part in told
    assert workplace.tree() == {}


def test_the_faults_of_several_plugins_are_told_at_once(workplace: Any) -> None:
    workplace.write(trainer(train_step="train_step(self, batch): pass #"), "mine.py")
    workplace.write("class Calls:\n    def on_batch_ended(self): pass\n", "calls.py")
    job = {"trainer": "mine:Trainer", "callbacks": ["calls:Calls"], "dataset": {"parquet_paths": ["none.parquet"]}}
    workplace.write(job)
    answer = workplace.hostcore("run", "job.json", "--json")
    assert [error["pointer"] for error in answer.errors] == ["/trainer", "/callbacks/0", "/dataset/parquet_paths/0"]
    assert workplace.tree() == {}


def test_verbose_adds_the_traceback_of_the_plugin_alone(workplace: Any) -> None:
    workplace.write(trainer("    def __init__(self): raise RuntimeError('no licence')"), "mine.py")
    workplace.write({"trainer": "mine:Trainer", "mock_batches": [1]})
    answer = workplace.hostcore("run", "job.json", "-v")
    assert answer.code == 2
    traceback = answer.err[answer.err.index("Traceback") :]
    assert "mine.py" in traceback
    assert HOST not in traceback
    assert workplace.tree() == {}


@pytest.mark.parametrize("paths", ["数据/a.parquet", "data"])
def test_names_that_the_locale_cannot_encode_are_an_error_of_the_data(paths: str, workplace: Any) -> None:
    workplace.write(trainer(), "mine.py")
    for name in ("数据/a.parquet", "data/数据.parquet"):
        (workplace.folder / name).parent.mkdir()
        pq.write_table(table(), workplace.folder / name)
    workplace.write({"trainer": "mine:Trainer", "run_id": "new", "dataset": {"parquet_paths": paths, "batch_size": 8}})
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    answer = workplace.hostcore("run", "job.json", "--json", through=["env"], environment=ascii_only)
    assert "names of files are ascii in this process" in answer.error["message"]
    assert answer.error["pointer"] == "/dataset"
    assert "PYTHONUTF8=1" in answer.error["hint"]
    assert workplace.tree() == {}


def test_a_job_reads_the_data_of_its_own_folder_whatever_that_is_called(workplace: Any) -> None:
    workplace.write(trainer(), "mine.py")
    for folder, rows in (("exp1", 64), ("exp[1]", 32)):
        (workplace.folder / folder).mkdir()
        pq.write_table(table().slice(0, rows), workplace.folder / folder / "a.parquet")
        workplace.write({"dataset": {"parquet_paths": "*.parquet", "batch_size": 8}}, f"{folder}/data.json")
    workplace.write({"include": "data.json", "trainer": "mine:Trainer"}, "exp[1]/job.json")
    (workplace.folder / "exp[1]" / "mine.py").write_text(trainer())
    answer = workplace.hostcore("validate", "exp[1]/job.json", "--json")
    assert '"num_rows": 32' in answer.out


def test_a_column_with_an_empty_name_may_be_chosen(workplace: Any) -> None:
    workplace.write(trainer(), "mine.py")
    pq.write_table(pa.table({"": [1.0] * 8, "y": [2.0] * 8}), workplace.folder / "a.parquet")
    dataset = {"parquet_paths": "a.parquet", "columns": ["", "y"], "batch_size": 8}
    workplace.write({"trainer": "mine:Trainer", "dataset": dataset})
    assert ": double, y: double" in workplace.hostcore("validate", "job.json").out
