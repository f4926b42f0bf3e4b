"""Loading: the file, then the profile, then --set; paths; YAML; run ids."""

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from hostcore.errors import Errors
from hostcore.job.load import load_job
from hostcore.job.sections import ComponentUse
from hostcore.job.spec import JobSpec
from hostcore_hookspecs import HostcoreError

JOB: dict[str, Any] = {"trainer": "flight_delay", "max_steps": 3}


def write(path: Path, job: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(job if isinstance(job, str) else json.dumps(job))
    return path


def only_error_of(source: Any, **how: Any) -> HostcoreError:
    with pytest.raises(Errors) as caught:
        load_job(source, **how)
    (error,) = caught.value.errors
    return error


def test_the_trainer_job_json_v1_loads_as_it_is(tmp_path: Path) -> None:
    job = {
        "trainer_api_version": "v1",
        "run_id": "run_123",
        "trainer": "my_pkg.train:MyTrainer",
        "max_steps": 1000,
        "metric_every": 10,
        "checkpoint_every": 200,
        "sample_every": 200,
        "owner": "org_id",
        "release_ref": "org/repo:latest",
        "hyperparams": {"learning_rate": 0.0001},
        "dataset": {
            "parquet_paths": ["/data/train.parquet"],
            "batch_size": 32,
            "readahead": 2,
            "columns": ["image_ref", "caption"],
        },
    }
    spec = load_job(write(tmp_path / "job.json", job))
    assert (spec.run_id, spec.owner, spec.hyperparams) == ("run_123", "org_id", {"learning_rate": 0.0001})
    assert spec.dataset is not None
    assert spec.dataset.source == "hostcore-builtin-plugins/parquet"
    assert spec.dataset.columns == ("image_ref", "caption")
    assert spec.dataset.settings == {"parquet_paths": ["/data/train.parquet"]}


def test_a_file_with_a_byte_order_mark_loads(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(JOB).encode())
    assert load_job(path).trainer == "flight_delay"


# --- YAML


def test_a_file_of_a_sweep_is_told_as_such(tmp_path: Path) -> None:
    sweep = {
        "job": JOB,
        "space": {"/hyperparams/lr": {"choice": [1, 2]}},
        "objective": {"metric": "loss", "mode": "min"},
    }
    error = only_error_of(write(tmp_path / "sweep.json", sweep), profile="small")
    assert (error.code, error.pointer) == ("job.another_document", "/job")
    assert "`hostcore sweep FILE`" in (error.hint or "")


def test_yaml_is_version_1_2_where_no_is_a_word_and_1e4_a_number(tmp_path: Path) -> None:
    text = """
    trainer: flight_delay  # a comment
    max_steps: 3
    labels: {answer: no, version: "1.10", time: 1:30}
    hyperparams: {lr: 1e-4, on: true, size: 0o10, nothing: ~}
    """
    spec = load_job(write(tmp_path / "job.yaml", text))
    assert spec.labels == {"answer": "no", "version": "1.10", "time": "1:30"}
    assert spec.hyperparams == {"lr": 1e-4, "on": True, "size": 8, "nothing": None}


def test_only_the_numbers_of_yaml_1_2_are_numbers(tmp_path: Path) -> None:
    numbers = {"017": 17, "0o17": 15, "0x1F": 31, "+1": 1, "-1.5e-3": -0.0015, ".5": 0.5, "5.": 5.0, "1e3": 1000.0}
    words = ("1_000", "0b11", "2024_01_05", "1_0.5", "-0x1f", "190:20:30", "_1", "1e", "0_")
    values = {**numbers, **dict.fromkeys(words)}
    text = "".join(f'\n  "of {one}": {one}' for one in values)
    found = load_job(write(tmp_path / "job.yaml", f"trainer: a\nmax_steps: 1\nhyperparams:{text}\n")).hyperparams
    for one, number in values.items():
        expected = one if number is None else number
        assert (found[f"of {one}"], type(found[f"of {one}"])) == (expected, type(expected))


@pytest.mark.parametrize("name", ["job.yaml", "job.yml", "JOB.YAML"])
def test_the_same_job_in_yaml_and_json_is_equal(tmp_path: Path, name: str) -> None:
    job = {
        **JOB,
        "run_id": "r",
        "callbacks": ["a", {"use": "b", "patience": 3}],
        "dataset": {"paths": ["a", "b"], "source": "csv"},
    }
    as_json = load_job(write(tmp_path / "job.json", job))
    assert load_job(write(tmp_path / name, json.dumps(job, indent=1))) == as_json


# --- profiles


def test_a_profile_is_a_merge_patch(tmp_path: Path) -> None:
    job = {
        **JOB,
        "labels": {"a": "1", "b": "2"},
        "hyperparams": {"model": {"width": 8, "depth": 2}, "sizes": [1, 2]},
        "owner": "me",
        "profiles": {
            "big": {"hyperparams": {"model": {"width": 64}, "sizes": [3]}, "labels": {"a": None}, "owner": None},
        },
    }
    spec = load_job(write(tmp_path / "job.json", job), profile="big")
    assert spec.hyperparams == {"model": {"width": 64, "depth": 2}, "sizes": [3]}
    assert spec.labels == {"b": "2"}
    assert spec.owner is None


def test_an_unknown_profile_names_those_there_are() -> None:
    job = {**JOB, "profiles": {"big": {}, "small": {}}}
    error = only_error_of(job, profile="huge")
    assert (error.code, error.pointer, error.hint) == ("job.profile", "/profiles", 'its profiles are "big", "small"')
    assert only_error_of(job, profile="bgi").hint == 'did you mean "big"?'
    assert only_error_of(JOB, profile="big").hint == "it has no profiles"


def test_what_only_an_unused_profile_asks_for_is_not_refused() -> None:
    job = {
        **JOB,
        "profiles": {"big": {"environment": {"python": "3.12"}, "hyperparams": {"key": {"$secret": "vault:key"}}}},
    }
    assert load_job(job).environment is None
    with pytest.raises(Errors) as caught:
        load_job(job, profile="big")
    assert [error.pointer for error in caught.value.errors] == ["/environment", "/hyperparams/key"]


# --- --set


def test_overrides_come_after_the_profile_in_their_order() -> None:
    job = {**JOB, "profiles": {"big": {"max_steps": 5}}}
    assert load_job(job, profile="big").max_steps == 5
    assert load_job(job, profile="big", overrides=["max_steps=7", "max_steps=9"]).max_steps == 9


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("seed=7", "seed", 7),
        ("owner=me", "owner", "me"),
        ("owner=a=b", "owner", "a=b"),
        ('owner="3"', "owner", "3"),
        ("deterministic=true", "deterministic", True),
        ("hyperparams.model.width=8", "hyperparams", {"model": {"width": 8}}),
        ("hyperparams.lr=1e-4", "hyperparams", {"lr": 1e-4}),
        ('hyperparams={"a": [1]}', "hyperparams", {"a": [1]}),
        ("hyperparams.name=", "hyperparams", {"name": ""}),
        ("hyperparams.none=null", "hyperparams", {"none": None}),
        ('hyperparams.text="{oops"', "hyperparams", {"text": "{oops"}),
        ("/labels/a.b~1c=x", "labels", {"a.b/c": "x"}),
    ],
)
def test_set_takes_a_dotted_key_or_a_pointer_and_json_or_a_string(override: str, key: str, value: Any) -> None:
    assert getattr(load_job(JOB, overrides=[override]), key) == value


def test_set_reaches_into_lists_and_appends() -> None:
    job = {**JOB, "callbacks": ["a", {"use": "b", "patience": 1}]}
    spec = load_job(job, overrides=["callbacks.1.patience=9", "callbacks.0=c", "/callbacks/-=d"])
    assert spec.callbacks == (
        ComponentUse(use="c"),
        ComponentUse(use="b", settings={"patience": 9}),
        ComponentUse(use="d"),
    )
    assert load_job(JOB, overrides=["callbacks.-=d"]).callbacks == (ComponentUse(use="d"),)
    made = load_job(JOB, overrides=["callbacks.0.patience=3", "callbacks.0.use=d"]).callbacks
    assert made == (ComponentUse(use="d", settings={"patience": 3}),)


@pytest.mark.parametrize(
    ("override", "pointer", "fragment"),
    [
        ("seed", None, "--set takes key=value"),
        ("=3", None, "--set takes key=value"),
        ("hyperparams..lr=3", None, "--set takes key=value"),
        ("trainer.lr=3", "/trainer", '/trainer is "flight_delay", which has no keys'),
        ("callbacks.1.x=3", "/callbacks", '"1" is no index of it'),
        ("callbacks.x=3", "/callbacks", '"x" is no index of it'),
        ("seed=" + "[" * 10_000, None, "nested too deep"),
        ("dataset=[1", "/dataset", '"[1" looks like JSON but is not: Expecting'),
        ("callbacks=[ema]", "/callbacks", "looks like JSON but is not"),
        ('hyperparams={"a": 1', "/hyperparams", "looks like JSON but is not"),
        ('owner="me', "/owner", "looks like JSON but is not"),
        ('seed={"a": 1, "a": 2}', "/seed/a", "more than once"),
    ],
)
def test_a_set_that_cannot_be_done_says_why(override: str, pointer: str | None, fragment: str) -> None:
    error = only_error_of({**JOB, "callbacks": []}, overrides=[override])
    assert (error.pointer or None) == pointer
    assert fragment in error.message
    assert error.file == f"--set {override.partition('=')[0]}"


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("dataset=[1", """single quotes: --set 'dataset=["…", …]'"""),
        ("max_steps=1e3", "write 1000"),
        ("deterministic=True", "write true"),
        ("device=gpu", 'did you mean "cuda"?'),
        ("device=GPU:1", 'did you mean "cuda:1"?'),
        ("device=cuda1", 'did you mean "cuda:1"?'),
        ("trainer=circle_trainer.CircleTrainer", 'did you mean "circle_trainer:CircleTrainer"?'),
        ("trainer=./src/circle_trainer.py", 'did you mean "src.circle_trainer:"?'),
        ("trainer.lr=3", "did you mean --set hyperparams.lr=…?"),
        ("learning_rate=1", 'did you mean "hyperparams.learning_rate"?'),
        ("batch_size=1", 'did you mean "dataset.batch_size"?'),
        ("callbacks.0.x=1", "to append it, set this as well: --set callbacks.0.use=…"),
        ("callbacks.1.x=1", "to append: --set callbacks.-=…"),
    ],
)
@pytest.mark.parametrize("job", [JOB, {**JOB, "callbacks": []}], ids=["unset", "empty"])
def test_a_frequent_slip_in_set_has_a_hint(job: Any, override: str, hint: str) -> None:
    assert hint in str(only_error_of(job, overrides=[override]).hint)


def test_a_set_of_a_wrong_value_is_told_like_one_of_the_file(tmp_path: Path) -> None:
    error = only_error_of(write(tmp_path / "job.json", JOB), overrides=["sede=7"])
    assert (error.code, error.pointer, error.hint) == ("key.unknown", "/sede", 'did you mean "seed"?')
    assert only_error_of(JOB, overrides=["hyperparams.lr=NaN"]).pointer == "/hyperparams/lr"


def test_an_error_names_the_last_set_that_touched_its_key_or_else_the_file(tmp_path: Path) -> None:
    job = {**JOB, "seed": "x", "callbacks": ["Bad", {"use": "b"}], "dataset": {"batch_size": 0}}
    path = write(tmp_path / "job.json", job)
    overrides = ["max_steps=no", "callbacks.-=Worse", "callbacks.1.use=Bad", 'validation={"lanes": 0}', "labels.a=1"]
    with pytest.raises(Errors) as caught:
        load_job(path, overrides=overrides)
    assert {error.pointer: error.file for error in caught.value.errors} == {
        "/seed": str(path),
        "/callbacks/0": "--set callbacks.1.use",
        "/dataset/batch_size": str(path),
        "/max_steps": "--set max_steps",
        "/callbacks/1/use": "--set callbacks.1.use",
        "/callbacks/2": "--set callbacks.1.use",
        "/validation/lanes": "--set validation",
        "/labels/a": "--set labels.a",
    }


def test_of_two_sets_the_later_is_to_blame_and_a_profile_that_is_no_object_for_nothing_else(tmp_path: Path) -> None:
    above_later = only_error_of(JOB, overrides=["hyperparams.lr=1", "hyperparams=3"])
    below_later = only_error_of(JOB, overrides=['labels={"a": "b"}', "labels.a=3"])
    assert (above_later.file, below_later.file) == ("--set hyperparams", "--set labels.a")
    path = write(tmp_path / "job.json", {**JOB, "seed": "x", "profiles": {"fast": 3}})
    with pytest.raises(Errors) as caught:
        load_job(path, profile="fast")
    found = {error.pointer: error.file for error in caught.value.errors}
    assert found == {"/seed": str(path), "/profiles/fast": str(path)}


def test_an_error_names_the_profile_unless_a_set_came_later_or_else_the_file(tmp_path: Path) -> None:
    fast = {"seed": "x", "labels": {"a": 1}, "hyperparams": {"lr": 1}, "validation": {"lanes": 0}, "devices": None}
    path = write(tmp_path / "job.json", {**JOB, "owner": 2, "profiles": {"fast": fast}})
    with pytest.raises(Errors) as caught:
        load_job(path, profile="fast", overrides=["seed=no"])
    assert {error.pointer: error.file for error in caught.value.errors} == {
        "/seed": "--set seed",
        "/labels/a": "--profile fast",
        "/owner": str(path),
        "/validation/lanes": "--profile fast",
    }


def test_devices_from_above_take_the_place_of_the_device_below() -> None:
    job = {**JOB, "device": "cpu", "profiles": {"gpu": {"devices": ["cuda:1"]}}}
    assert load_job(job).requested_devices == ("cpu",)
    assert load_job(job, profile="gpu").requested_devices == ("cuda:1",)
    assert load_job(job, overrides=['devices=["mps"]']).requested_devices == ("mps",)
    assert load_job(job, profile="gpu", overrides=["device=cuda"]).requested_devices == ("cuda",)


# --- paths


def test_relative_paths_of_the_file_start_at_its_folder_and_those_of_set_at_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    job = {
        "trainer": "x",
        "dataset": {"parquet_paths": ["a.parquet", "/b.parquet", "s3://bucket/c.parquet", "sub/../d/*.parquet"]},
        "weights": "w.safetensors",
        "resume_from_checkpoint": "runs/old/checkpoints/step-1.json",
        "profiles": {"other": {"weights": "other.safetensors"}},
    }
    path = write(tmp_path / "jobs" / "job.json", job)
    folder = str(tmp_path / "jobs")
    spec = load_job(path)
    assert spec.dataset is not None
    assert spec.dataset.settings["parquet_paths"] == [
        f"{folder}/a.parquet",
        "/b.parquet",
        "s3://bucket/c.parquet",
        f"{folder}/sub/../d/*.parquet",
    ]
    assert spec.weights == f"{folder}/w.safetensors"
    assert spec.resume_from_checkpoint == f"{folder}/runs/old/checkpoints/step-1.json"
    assert spec.job_dir == Path(folder)

    assert load_job(path, profile="other").weights == f"{folder}/other.safetensors"
    changed = load_job(path, overrides=["weights=w2", "dataset.parquet_paths=e.parquet"])
    assert changed.weights == f"{here}/w2"
    assert changed.dataset is not None
    assert changed.dataset.settings["parquet_paths"] == f"{here}/e.parquet"


def test_a_job_from_python_starts_at_the_working_directory_and_may_hold_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = load_job(
        {**JOB, "weights": Path("w"), "dataset": {"source": "arrow", "paths": [Path("a"), "~/b"], "index": "i"}}
    )
    assert spec.weights == f"{tmp_path}/w"
    assert spec.dataset is not None
    assert spec.dataset.settings["paths"] == [f"{tmp_path}/a", str(Path("~/b").expanduser())]
    assert spec.dataset.settings["index"] == f"{tmp_path}/i"
    assert load_job({**JOB, "weights": "w"}, job_dir=Path("/jobs")).weights == "/jobs/w"


@pytest.mark.parametrize("value", [3, None, [3, {"a": "b"}], {"a": "b"}, ""])
def test_path_keys_of_the_wrong_type_are_left_for_the_source_to_refuse(value: Any) -> None:
    spec = load_job({"trainer": "x", "dataset": {"source": "arrow", "paths": value}, "resume_from_checkpoint": "auto"})
    assert spec.dataset is not None
    assert spec.dataset.settings["paths"] == value
    assert spec.resume_from_checkpoint == "auto", "a word, and no path"


# --- run ids

NOON = datetime(2024, 5, 6, 12, 30, 1, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("trainer", "prefix"),
    [
        ("flight_delay", "flight_delay"),
        ("my-dist/flight_delay", "my-dist-flight_delay"),
        ("my_pkg.train:MyTrainer", "my_pkg.train-MyTrainer"),
        ("_x:Y", "x-Y"),
        ("a" * 300, "a" * 100),
    ],
)
def test_a_run_id_is_made_of_the_trainer_the_time_in_utc_and_a_token(trainer: str, prefix: str) -> None:
    spec = load_job({**JOB, "trainer": trainer}, now=lambda: NOON, token=lambda: "00ff")
    assert spec.run_id == f"{prefix}-20240506-103001-00ff"
    assert load_job(spec.to_json()).run_id == spec.run_id, "a made id is a valid one"


def test_a_given_run_id_stays_and_no_clock_is_read() -> None:
    def broken() -> Any:
        raise AssertionError("not needed")

    assert load_job({**JOB, "run_id": "mine"}, now=broken, token=broken).run_id == "mine"


def test_two_jobs_loaded_now_have_ids_of_today() -> None:
    before, spec, after = datetime.now(UTC), load_job(JOB), datetime.now(UTC)
    assert isinstance(spec, JobSpec)
    assert spec.run_id.startswith((f"flight_delay-{before:%Y%m%d}", f"flight_delay-{after:%Y%m%d}"))


# --- TOML


@pytest.mark.parametrize("name", ["job.toml", "JOB.TOML"])
def test_toml_holds_the_same_keys(tmp_path: Path, name: str) -> None:
    text = """
    trainer = "flight_delay"  # a comment
    max_steps = 1_000

    [hyperparams]
    lr = 1e-4
    sizes = [8, 16]

    [[callbacks]]
    use = "early-stopping"
    patience_steps = 3
    """
    spec = load_job(write(tmp_path / name, text))
    assert (spec.max_steps, spec.hyperparams) == (1000, {"lr": 1e-4, "sizes": [8, 16]})
    assert spec.callbacks == (ComponentUse(use="early-stopping", settings={"patience_steps": 3}),)
