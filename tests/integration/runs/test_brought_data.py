"""Jobs whose trainer brings the data, by the installed command."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import hostcore
from hostcore.errors import all_errors
from hostcore.runs.result import RunResult
from hostcore_hookspecs import HostcoreError

HERE = Path(__file__).parent
DATASET = {"source": "data_trainer:Numbers", "rows": 26, "batch_size": 4, "shuffle": True}
VALIDATION = {"source": "data_trainer:Numbers", "rows": 10, "first": 100, "batch_size": 3}


@pytest.fixture(scope="module")
def brings(project: Any) -> Any:
    """The project with a trainer that brings its data."""
    shutil.copy(HERE / "data_trainer.py", project.path)
    return project


def settings(run_id: str, **keys: Any) -> dict[str, Any]:
    """A job; keys that are None are none of it."""
    usual = {"trainer": "data_trainer:Trainer", "metric_every": 1, "epochs": 2, "validate_every": "epoch"}
    keys = {"run_id": run_id, "device": "cpu", "terminal": False, **usual, **keys}
    return {key: value for key, value in keys.items() if value is not None}


def job(brings: Any, run_id: str, **keys: Any) -> Path:
    return brings.job(f"{run_id}.json", **settings(run_id, **keys))


def losses(brings: Any, run_id: str) -> dict[int, float | None]:
    return brings.run(run_id).metric("train/loss")


def refused(run_id: str, **keys: Any) -> HostcoreError:
    """The only error of a run in this process that leaves nothing."""
    with pytest.raises(HostcoreError) as caught:
        here_run(run_id, **keys)
    (error,) = all_errors(caught.value)
    assert not Path("runs", run_id).exists()
    return error


def here_run(run_id: str, **keys: Any) -> RunResult:
    return hostcore.run(settings(run_id, **keys))


def of(brings: Any, run_id: str, name: str) -> list[dict[str, Any]]:
    return [event for event in brings.run(run_id).events if event["event"] == name]


@pytest.fixture(scope="module")
def trained(brings: Any) -> Any:
    """A run of two epochs."""
    said = brings.command("run", job(brings, "trained"))
    assert said.code == 0, said.err
    return brings.run("trained")


def test_a_run_is_that_of_a_job_with_the_same_sections(brings: Any, trained: Any) -> None:
    own = {"dataset": DATASET, "validation": VALIDATION}
    assert brings.command("run", job(brings, "own", **own)).code == 0
    assert losses(brings, "own") == trained.metric("train/loss")
    assert len(trained.metric("train/loss")) == 12
    for name, keys in (("run_submitted", ("batch_size", "num_rows", "total_steps")), ("validation", ("metrics",))):
        ours, theirs = (
            [{key: one[key] for key in keys} for one in of(brings, run, name)] for run in ("trained", "own")
        )
        assert ours == theirs
    assert of(brings, "trained", "run_submitted")[0]["batch_size"] == 4


def test_the_record_has_what_was_trained_on(trained: Any) -> None:
    record = json.loads((trained.path / "config" / "run.json").read_text())
    assert "dataset" not in record["job"]
    assert {key: section["rows"] for key, section in record["brought"].items()} == {"dataset": 26, "validation": 10}
    assert record["brought"]["dataset"]["batch_size"] == 4
    assert record["rows_left_out"] == 2


def test_validate_shows_what_the_trainer_brings(brings: Any) -> None:
    said = brings.command("validate", job(brings, "shown"))
    assert said.code == 0, said.err
    assert "26 rows in 1 shard, shuffled, batches of 4, as the trainer brings them" in said.out
    assert "validation   10 rows, batches of 3, as the trainer brings them" in said.out
    assert "left out     2 rows of each epoch, which do not fill a step of 4" in said.out
    assert said.err == ""
    found = json.loads(brings.command("validate", job(brings, "shown"), "--json").out)
    assert found["brought"]["validation"]["first"] == 100
    assert (found["num_rows"], found["rows_left_out"], found["validation_rows"]) == (26, 2, 10)
    assert "dataset" not in found["job"]
    assert not brings.run("shown").path.exists()


@pytest.mark.usefixtures("here")
def test_data_that_is_brought_and_not_used_is_no_mistake_of_the_job() -> None:
    result = here_run("unused", validate_every=None)
    assert (result.status, result.warnings) == ("succeeded", ())


def test_what_the_job_says_wins_as_a_whole(brings: Any) -> None:
    own = {"source": "data_trainer:Numbers", "rows": 9}
    found = brings.command("validate", job(brings, "wins", dataset={**own, "batch_size": 3}), "--json")
    assert found.code == 0, found.err
    checked = json.loads(found.out)
    assert (checked["num_rows"], checked["rows_per_step"], list(checked["brought"])) == (9, 3, ["validation"])
    found = brings.command("validate", job(brings, "wins", mock_batches=[1, 2], validation=own), "--json")
    assert json.loads(found.out)["num_rows"] == 2
    assert json.loads(found.out)["brought"] == {}


@pytest.mark.usefixtures("here")
def test_callbacks_may_wrap_what_the_trainer_brings() -> None:
    result = here_run("wrapped", callbacks=["data_trainer:Shorter"])
    assert (result.status, result.step) == ("succeeded", 4), "of 8 rows in batches of 4, twice"


def test_a_killed_run_goes_on_as_if_it_had_not_been(brings: Any, trained: Any) -> None:
    keys = {"checkpoint_every": 2, "callbacks": [{"use": "chaos", "faults": ["kill@step=8"]}]}
    assert brings.command("run", job(brings, "killed", **keys)).code == 1
    record = json.loads((brings.run("killed").path / "config" / "run.json").read_text())
    assert record["brought"]["dataset"]["rows"] == 26
    said = brings.command("run", job(brings, "killed", **keys))
    assert said.code == 0, said.err
    assert losses(brings, "killed") == trained.metric("train/loss")


def test_two_ranks_share_the_data_out(brings: Any) -> None:
    sections = {"dataset": {**DATASET, "shuffle": False, "batch_size": 2}, "validation": VALIDATION}
    (brings.path / "two.data").write_text(json.dumps(sections))
    keys = {"devices": ["cpu", "cpu"], "device": "auto", "hyperparams": {"sections": "two.data"}}
    said = brings.command("run", job(brings, "two", **keys))
    assert said.code == 0, said.err
    (submitted,) = of(brings, "two", "run_submitted")
    assert (submitted["batch_size"], submitted["total_steps"], submitted["num_rows"]) == (2, 12, 26)
    assert [event["metrics"] for event in of(brings, "two", "validation")] == [{"val/x": 104.5}] * 2
    (brings.path / "two.data").write_text(json.dumps({"0": sections, "1": {**sections, "dataset": DATASET}}))
    for command in ("validate", "run"):
        said = brings.command(command, job(brings, "different", **keys))
        assert said.code == 2
        assert "data_sections of the trainer returned one thing on rank 0, and another on rank 1" in said.err
    assert not brings.run("different").path.exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"batch_size": 2}, "the batch size changed"),
        ({"rows": 30}, "the number of rows"),
        ({"shuffle": False}, "the shuffling changed"),
        ({"note": "cleaned"}, '/dataset/note: not given -> "cleaned"'),
    ],
    ids=["batch size", "rows", "order", "what only the source knows"],
)
@pytest.mark.usefixtures("here")
def test_a_run_does_not_go_on_with_other_data(change: dict[str, Any], told: str) -> None:
    run_id = f"other-{next(iter(change)).replace('_', '-')}"
    data = Path(f"{run_id}.data")
    keys = {"hyperparams": {"sections": data.name}, "validate_every": None, "epochs": None}
    data.write_text(json.dumps({"dataset": DATASET}))
    assert here_run(run_id, max_steps=3, **keys).status == "succeeded"
    before = {path: path.read_bytes() for path in Path("runs", run_id).rglob("*") if path.is_file()}
    data.write_text(json.dumps({"dataset": {**DATASET, **change}}))
    with pytest.raises(HostcoreError) as caught:
        here_run(run_id, max_steps=5, **keys)
    (error,) = all_errors(caught.value)
    assert told in error.message
    assert error.pointer == "/trainer"
    assert {path: path.read_bytes() for path in Path("runs", run_id).rglob("*") if path.is_file()} == before
    data.write_text(json.dumps({"dataset": {**DATASET, "readahead": 0}}))
    assert here_run(run_id, max_steps=5, **keys).step == 5


@pytest.mark.usefixtures("here")
def test_a_global_batch_is_made_of_the_batches_that_the_trainer_brings() -> None:
    error = refused("global", global_batch_size=6)
    assert "batches of 4 on 1 rank cannot make up a global batch of 6 rows" in error.message
    assert (error.pointer, error.hint) == ("/global_batch_size", "4 or 8 would do")


def test_a_checkpoint_is_evaluated_on_what_the_trainer_brings(brings: Any, trained: Any) -> None:
    file = job(brings, "trained")
    said = brings.command("evaluate", file, "--checkpoint", "trained", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert (found["split"], found["metrics"], found["weight"]) == ("validation", {"val/x": 104.5}, 10)
    said = brings.command("evaluate", file, "--checkpoint", "trained", "--split", "test")
    assert said.code == 2
    assert 'the job has no "test" data' in said.err
    assert "--split validation" in said.err


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ([1], ["data_sections returned a list of 1"]),
        ({"datset": {}}, ['a section "datset"', "dataset, validation, test"]),
        (
            {"dataset": 3},
            ['in the "dataset" that the trainer data_trainer:Trainer brings: expected an object, found 3'],
        ),
        ({"dataset": {"source": "nope"}}, ["at /source: no data source is called 'nope'"]),
        ({"dataset": {**DATASET, "rowz": 3}}, ['at /rowz: unknown key "rowz"', 'did you mean "rows"?']),
        ({"dataset": {**DATASET, "batch_size": 0}}, ["at /batch_size: expected an integer of at least 1"]),
        ({"dataset": {**DATASET, "rows": 1}}, ["at /batch_size: the data has 1 rows", "less than one batch of 4"]),
        ({"dataset": {**DATASET, "workers": 2}}, ["transform_batch"]),
        ({"dataset": DATASET, "test": VALIDATION}, ["has no test_step"]),
        ({"dataset": DATASET, "validation": DATASET}, ["at /shuffle", "is read once, in file order"]),
        (
            {"dataset": {"source": "parquet", "parquet_paths": ["no.parquet"]}},
            ["at /parquet_paths/0", "does not exist"],
        ),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_is_wrong_with_brought_data_is_one_error_that_names_the_trainer(sections: Any, words: list[str]) -> None:
    Path("wrong.data").write_text(json.dumps(sections))
    error = refused("wrong", hyperparams={"sections": "wrong.data"}, validate_every=None, epochs=1)
    assert error.pointer == "/trainer"
    told = f"{error.message} {error.hint}"
    assert "the trainer data_trainer:Trainer" in told
    for one in words:
        assert one in told


@pytest.mark.usefixtures("here")
def test_a_trainer_that_fails_to_bring_its_data_is_an_error_of_its_own() -> None:
    error = refused("raises", hyperparams={"wrong": "no such split"})
    assert "the trainer data_trainer:Trainer could not be started: ValueError: no such split" in error.message
    assert refused("raises", hyperparams={"wrong": "settings"}).pointer == "/hyperparams/wrong"


@pytest.mark.parametrize(
    ("keys", "pointer", "words"),
    [
        (
            {"epochs": None},
            "/max_steps",
            'the job names no "dataset", and its trainer brings none: a job without data needs "max_steps"',
        ),
        ({"max_steps": 3}, "/epochs", "there is no data to go through"),
        ({"max_steps": 3, "epochs": None, "validate_every": 2}, "/validate_every", 'no "validation" data'),
    ],
)
@pytest.mark.usefixtures("here")
def test_a_job_without_data_is_refused_once_its_trainer_brings_none(
    keys: dict[str, Any], pointer: str, words: str
) -> None:
    error = refused("none", **{"trainer": "small_trainer:Trainer", "validate_every": None, **keys})
    assert words in error.message
    assert error.pointer == pointer
