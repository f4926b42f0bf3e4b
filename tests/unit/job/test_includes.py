"""Job files that include others: one merge rule, and errors that name the file that a value came from."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hostcore.errors import Errors
from hostcore.job.load import load_job
from hostcore_hookspecs import HostcoreError

BASE: dict[str, Any] = {
    "trainer": "flight_delay",
    "max_steps": 9,
    "hyperparams": {"lr": 0.1, "layers": [1, 2], "optimizer": {"name": "adam", "eps": 1}},
    "labels": {"team": "maps", "kind": "base"},
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a file to include."""
    monkeypatch.chdir(tmp_path)
    write("base.json", BASE)
    return tmp_path


def write(name: str, job: Any) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(job if isinstance(job, str) else json.dumps(job))
    return path


def errors_of(name: str, **how: Any) -> tuple[HostcoreError, ...]:
    with pytest.raises(Errors) as raised:
        load_job(Path(name), **how)
    return raised.value.errors


class TestTheRule:
    def test_merges_objects_replaces_all_else_and_removes_by_null(self) -> None:
        changes = {"lr": 0.5, "layers": [3], "optimizer": {"eps": None, "beta": 2}}
        path = write("job.json", {"include": "base.json", "hyperparams": changes, "labels": {"kind": None}})
        spec = load_job(path)
        assert load_job(write("alone.json", {**BASE, "hyperparams": {"a": None}})).hyperparams == {"a": None}
        assert spec.hyperparams == {"lr": 0.5, "layers": [3], "optimizer": {"name": "adam", "beta": 2}}
        assert (spec.trainer, spec.max_steps, spec.labels) == ("flight_delay", 9, {"team": "maps"})

    def test_lets_the_later_of_two_win_and_the_including_file_over_both(self) -> None:
        write("more.json", {"max_steps": 10, "seed": 1, "labels": {"kind": "more"}, "devices": ["cpu"]})
        path = write("job.json", {"include": ["base.json", "more.json"], "seed": 2, "device": "cuda"})
        for job in (path, write("outer.json", {"include": "job.json"})):  # through files that include others as well
            spec = load_job(job)
            assert (spec.max_steps, spec.seed, spec.labels) == (10, 2, {"team": "maps", "kind": "more"})
            assert (spec.device, spec.devices) == ("cuda", None), "one of two keys that stand for one another"

    def test_is_the_same_for_every_way_to_write_a_job(self) -> None:
        write("data.yaml", "dataset: {parquet_paths: [a.parquet], batch_size: 4}\n")
        path = write(
            "job.toml", '# mine\ninclude = ["base.json", "data.yaml"]\nrun_id = "a"\n[dataset]\nbatch_size = 8\n'
        )
        spec = load_job(path)
        assert spec.dataset is not None
        assert (spec.run_id, spec.dataset.batch_size, spec.trainer) == ("a", 8, "flight_delay")

    def test_comes_before_profiles_and_overrides(self) -> None:
        write("profiles.json", {"profiles": {"smoke": {"max_steps": 1, "seed": 1}}})
        path = write("job.json", {"include": ["base.json", "profiles.json"], "seed": 5})
        spec = load_job(path, profile="smoke", overrides=["seed=7"])
        assert (spec.max_steps, spec.seed) == (1, 7)

    @pytest.mark.parametrize("name", ["base.json", "job.json"])
    def test_leaves_what_a_profile_removes_to_the_profile(self, name: str) -> None:
        profiles = {"profiles": {"plain": {"hyperparams": {"lr": None}, "labels": None}}}
        write("base.json", {**BASE, **(profiles if name == "base.json" else {})})
        path = write("job.json", {"include": "base.json", **(profiles if name == "job.json" else {})})
        spec = load_job(path, profile="plain")
        assert "lr" not in spec.hyperparams
        assert spec.labels == {}

    def test_merges_a_profile_of_two_files_into_one(self) -> None:
        smoke = {"devices": ["cpu"], "seed": None, "labels": {"kind": None, "a": 1}}
        write("base.json", {**BASE, "seed": 3, "profiles": {"smoke": smoke, "other": {}}})
        mine = {"smoke": {"device": "cpu", "labels": {"a": None, "b": "2"}}, "other": None}
        path = write("job.json", {"include": "base.json", "labels": {"a": "0"}, "profiles": mine})
        spec = load_job(path, profile="smoke")
        assert (spec.device, spec.devices, spec.seed) == ("cpu", None, load_job({"trainer": "x"}).seed)
        assert spec.labels == {"team": "maps", "b": "2"}
        assert errors_of("job.json", profile="other")[0].code == "job.profile"


class TestPaths:
    def test_of_an_included_file_start_at_its_own_folder(self, folder: Path) -> None:
        data = {"dataset": {"parquet_paths": ["a.parquet"]}, "profiles": {"p": {"weights": "w.pt"}}}
        write("conf/data.json", {**data, "hyperparams": {"key": {"$secret": "file:key.txt"}}})
        path = write("job.json", {"include": ["base.json", "conf/data.json"], "test": {"parquet_paths": ["t.parquet"]}})
        spec = load_job(path, profile="p")
        assert spec.dataset is not None
        assert spec.test is not None
        assert spec.dataset.settings["parquet_paths"] == [str(folder / "conf/a.parquet")]
        assert spec.test.settings["parquet_paths"] == [str(folder / "t.parquet")]
        assert spec.weights == str(folder / "conf/w.pt")
        assert spec.hyperparams["key"] == {"$secret": f"file:{folder}/conf/key.txt"}

    def test_to_files_start_at_the_file_that_names_them(self) -> None:
        write("conf/deep/more.json", {"include": "../../base.json"})
        assert load_job(write("conf/job.json", {"include": "deep/more.json"})).trainer == "flight_delay"

        reading, writing = os.pipe()  # for a job that is piped in, at the working directory
        os.write(writing, b'{"include": "base.json", "seed": 3}')
        os.close(writing)
        spec = load_job(Path(f"/dev/fd/{reading}"))
        os.close(reading)
        assert (spec.trainer, spec.seed) == ("flight_delay", 3)


class TestAnError:
    def test_names_the_last_file_that_touched_its_key(self) -> None:
        write("wrong.json", {"max_steps": "3", "dataset": {"batch_size": "4", "shuffle": 1}})
        path = write("job.json", {"include": ["base.json", "wrong.json"], "dataset": {"shuffle": 2}, "seed": "x"})
        found = {error.pointer: error.file for error in errors_of(str(path))}
        assert found == {
            "/max_steps": "wrong.json",
            "/dataset/batch_size": "job.json",
            "/dataset/shuffle": "job.json",
            "/seed": "job.json",
        }

    def test_names_the_innermost_file_and_above_the_files_the_profile_or_the_option(self) -> None:
        write("conf/inner.json", {"hyperparams": [], "seed": "x"})
        write("conf/middle.json", {"include": "inner.json", "seed": "y"})
        write("job.json", {"include": ["base.json", "conf/middle.json"]})
        found = {error.pointer: error.file for error in errors_of("job.json")}
        assert found == {"/hyperparams": "conf/inner.json", "/seed": "conf/middle.json"}

        write("job.json", {"include": "base.json", "profiles": {"p": {"hyperparams": []}}})
        found = {error.pointer: error.file for error in errors_of("job.json", profile="p", overrides=["labels.kind=3"])}
        assert found == {"/hyperparams": "--profile p", "/labels/kind": "--set labels.kind"}

    def test_of_syntax_names_the_file_that_has_it(self) -> None:
        write("wrong.yaml", "labels: {a: [}\n")
        write("job.json", {"include": "wrong.yaml"})
        (error,) = errors_of("job.json")
        assert (error.code, error.file) == ("job.syntax", "wrong.yaml")
        assert "line 1" in error.message

    def test_of_a_file_that_is_not_there_names_who_includes_it(self) -> None:
        write("conf/middle.json", {"include": ["../base.json", "bsae.json"]})
        write("conf/base.json", BASE)
        write("job.json", {"include": "conf/middle.json"})
        (error,) = errors_of("job.json")
        assert (error.code, error.pointer, error.file) == ("job.not_found", "/include/1", "conf/middle.json")
        assert error.message == 'it includes "bsae.json", and there is no such job file'
        assert error.hint == 'did you mean "base.json"?'


class TestWhatIsNoInclude:
    @pytest.mark.parametrize(
        ("value", "code", "pointer"),
        [
            (3, "value.type", "/include"),
            (None, "value.type", "/include"),
            ("", "value.type", "/include"),
            (["base.json", {}], "value.type", "/include/1"),
            ("s3://bucket/base.json", "job.include", "/include"),
            ("job.json", "job.include", "/include"),
            (".", "job.unreadable", "/include"),
            ("a\0b", "job.value", "/include"),
        ],
        ids=str,
    )
    def test_is_one_error(self, value: Any, code: str, pointer: str) -> None:
        write("job.json", {"include": value})
        (error,) = errors_of("job.json")
        assert (error.code, error.pointer, error.file) == (code, pointer, "job.json")

    def test_a_cycle_names_its_files(self) -> None:
        write("conf/a.json", {"include": "b.yaml"})
        write("conf/b.yaml", "include: a.json\n")
        write("job.json", {"include": "conf/a.json"})
        (error,) = errors_of("job.json")
        assert error.message == "these files include one another: job.json → conf/a.json → conf/b.yaml → conf/a.json"
        assert (error.code, error.file) == ("job.include", "conf/b.yaml")

    def test_files_that_include_ever_more_end(self) -> None:
        for number in range(8):
            write(f"{number}.json", {"include": [f"{number + 1}.json"] * 9})
        write("8.json", BASE)
        write("job.json", {"include": "0.json"})
        (error,) = errors_of("job.json")
        assert (error.code, "at most 64 files" in error.message) == ("job.include", True)

    @pytest.mark.parametrize(
        ("job", "how"),
        [
            ({**BASE, "profiles": {"p": {"include": "base.json"}}}, {"profile": "p"}),
            (BASE, {"overrides": ["include=base.json"]}),
        ],
    )
    def test_is_one_that_no_file_says_or_a_job_that_is_no_file(self, job: Any, how: Any) -> None:
        write("job.json", job)
        (error,) = errors_of("job.json", **how)
        assert (error.code, error.pointer) == ("job.include", "/include")

        with pytest.raises(Errors, match="job files alone include others"):
            load_job({**BASE, "include": "base.json"})


def test_a_schema_for_editors_says_nothing_about_the_job() -> None:
    assert load_job(write("job.json", {**BASE, "$schema": "./job.schema.json"})).trainer == "flight_delay"
    assert load_job({**BASE, "$schema": "./job.schema.json"}).trainer == "flight_delay"
    write("job.json", {**BASE, "$schema": 3})
    (error,) = errors_of("job.json")
    assert (error.code, error.pointer) == ("key.unknown", "/$schema")


def test_what_a_run_records_is_one_job_without_files() -> None:
    write("job.json", {"include": "base.json", "$schema": "x"})
    recorded = load_job(Path("job.json")).to_json()
    assert not {"include", "$schema"} & recorded.keys()
    assert load_job(recorded).hyperparams == BASE["hyperparams"]
