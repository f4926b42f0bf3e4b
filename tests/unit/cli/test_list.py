"""``hostcore list``."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hostcore.cli.report import name_of

RUN_KEYS = ["run_id", "status", "trainer", "step", "max_steps", "attempt", "submitted_ms", "ended_ms"]


def ids(said) -> list[str]:
    return [one["run_id"] for one in said.json["runs"]]


def test_shows_the_newest_first_with_the_documented_keys(hostcore: Callable, run: Callable) -> None:
    run("older", status="failed", submitted_ms=1)
    run("newer", submitted_ms=2)
    said = hostcore("list", "--json")
    assert said.code == 0
    assert list(said.json) == ["runs"]
    assert ids(said) == ["newer", "older"]
    assert all(list(one) == RUN_KEYS for one in said.json["runs"])
    assert [one["status"] for one in said.json["runs"]] == ["running", "failed"]
    assert [one["step"] for one in said.json["runs"]] == [7, 1500]


def test_is_a_table_for_people_with_the_steps_of_a_job_given_in_epochs(hostcore: Callable, run: Callable) -> None:
    run("a", status="succeeded", record={"job": {"trainer": "mine", "max_steps": 0, "epochs": 3}, "total_steps": 1800})
    head, row = hostcore("list").out.splitlines()
    assert head.split() == ["RUN", "STATUS", "TRAINER", "STEP", "ATTEMPT", "SUBMITTED", "DURATION"]
    assert row.split()[:5] == ["a", "succeeded", "mine", "1,500/1,800", "1"]
    assert row.endswith("days ago  2.0s")
    assert hostcore("list", "--json").json["runs"][0]["max_steps"] == 1800


class TestAFilter:
    @pytest.fixture(autouse=True)
    def three(self, run: Callable) -> None:
        """Three runs of two trainers."""
        run("first", status="failed", submitted_ms=1)
        run("second", status="succeeded", submitted_ms=2, record={"job": {"trainer": "dist/other", "max_steps": 1}})
        run("third", submitted_ms=3)

    @pytest.mark.parametrize(
        ("options", "shown"),
        [
            (["--status", "failed"], ["first"]),
            (["--status", "failed", "--status", "running"], ["third", "first"]),
            (["--trainer", "other"], ["second"]),
            (["--trainer", "dist/other"], ["second"]),
            (["--trainer", "mine", "-n", "1"], ["third"]),
            (["--limit", "2"], ["third", "second"]),
            (["--status", "lost"], []),
        ],
    )
    def test_leaves_the_wanted_ones(self, hostcore: Callable, options: list[str], shown: list[str]) -> None:
        assert ids(hostcore("list", "--json", *options)) == shown

    def test_that_leaves_none_says_so(self, hostcore: Callable, tmp_path: Path) -> None:
        said = hostcore("list", "--status", "lost")
        assert (said.code, said.out) == (0, "")
        assert said.err == f"none of the runs in {tmp_path / 'runs'} is like that\n"

    def test_for_a_status_that_does_not_exist_names_those_that_do(self, hostcore: Callable) -> None:
        said = hostcore("list", "--status", "sleeping")
        assert said.code == 2
        assert "'preempted'" in said.err


def test_without_runs_says_where_it_looked(hostcore: Callable, tmp_path: Path) -> None:
    assert hostcore("list", "--json").json == {"runs": []}
    said = hostcore("list")
    assert (said.code, said.out) == (0, "")
    assert str(tmp_path / "runs") in said.err


def test_names_what_it_cannot_read_on_standard_error(hostcore: Callable, run: Callable) -> None:
    run("good", status="succeeded")
    run("bad", status="succeeded").record.write_text("{")
    said = hostcore("list", "--json")
    assert ids(said) == ["good"]
    assert "runs/bad" in said.err


def test_another_folder_is_named_by_an_option_or_a_variable(
    hostcore: Callable, run: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run("a", status="succeeded")
    (tmp_path / "runs").rename(tmp_path / "logs")
    assert hostcore("list", "--json").json == {"runs": []}
    for option in ("--runs-dir", "--log-dir"):
        assert ids(hostcore("list", option, "logs", "--json")) == ["a"]
    monkeypatch.setenv("HOSTCORE_RUNS_DIR", str(tmp_path / "logs"))
    assert ids(hostcore("list", "--json")) == ["a"]


def test_a_run_of_another_folder_is_called_by_its_path(
    run: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = run("a", status="succeeded")
    monkeypatch.delenv("HOSTCORE_RUNS_DIR", raising=False)
    for folder, name in ((tmp_path, "a"), (tmp_path.parent, f"{tmp_path.name}/runs/a"), (tmp_path / "runs", "./a")):
        monkeypatch.chdir(folder)
        assert name_of(directory) == name


def test_an_index_of_jobs_in_the_folder_is_no_run(hostcore: Callable, run: Callable, tmp_path: Path) -> None:
    run("a", status="succeeded")
    (tmp_path / "runs" / "index.jsonl").write_text('[1]\nnot json\n{"job_id": "b", "sta')
    listed = hostcore("list", "--json")
    assert (ids(listed), listed.err) == (["a"], "")
    assert hostcore("status", "b").code == 2
    assert hostcore("status", "a").code == 0


def uses(*versions: str, data: str = "ab" * 32) -> dict[str, object]:
    """A record of attempts that used the trainer ``mine`` in these versions."""
    job = {"trainer": "mine", "max_steps": 9}
    plugins = [[{"kind": "trainer", "name": "mine", "distribution": "my-dist", "version": one}] for one in versions]
    used = [{"attempt": number, "plugins": one, "data": data} for number, one in enumerate(plugins, 1)]
    return {"job": job, "plugins": plugins[-1], "used": used}


class TestWhatRunsUsed:
    @pytest.fixture(autouse=True)
    def three(self, run: Callable) -> None:
        """A run of one version, one that went on with another, and one of an earlier hostcore."""
        run("one", status="succeeded", submitted_ms=3, record=uses("0.1.0"))
        run("two", status="failed", submitted_ms=2, record=uses("0.1.0", "0.2.0", data="cd" * 32))
        run("old", status="succeeded", submitted_ms=1)

    def test_finds_the_runs_with_an_attempt_that_used_it(self, hostcore: Callable) -> None:
        said = hostcore("list", "--plugin", "mine>=0.2", "--json")
        (found,) = said.json["runs"]
        assert (found["run_id"], list(found)) == ("two", [*RUN_KEYS, "used"])
        assert [(one["attempt"], one["plugins"][0]["version"]) for one in found["used"]] == [(2, "0.2.0")]
        assert ids(hostcore("list", "--plugin", "mine<0.2", "--json")) == ["one", "two"]
        assert ids(hostcore("list", "--distribution", "my-dist==0.2.*", "--json")) == ["two"]
        assert ids(hostcore("list", "--plugin", "mine<0.2", "--status", "failed", "--json")) == ["two"]

    def test_shows_which_versions_were_used_when(self, hostcore: Callable) -> None:
        head, *rows = hostcore("list", "--plugin", "mine").out.splitlines()
        assert head.endswith("USED")
        assert rows[0].endswith("mine 0.1.0 (attempt 1)")
        assert rows[1].endswith("mine 0.1.0 (attempt 1); mine 0.2.0 (attempt 2)")

    def test_counts_the_runs_that_do_not_say_it(self, hostcore: Callable) -> None:
        said = hostcore("list", "--plugin", "mine==9")
        assert said.out == ""
        assert "warning: 1 run does not say what all attempts used, and may be meant as well" in said.err
        assert hostcore("list", "--plugin", "mine==9", "--json").json == {"runs": [], "unknown": 1}

    def test_finds_the_runs_of_data_by_the_beginning_of_their_fingerprint_if_none_begins_alike(
        self, hostcore: Callable, run: Callable
    ) -> None:
        said = hostcore("list", "--data", "CDCDCDCD")
        assert [line.split()[0] for line in said.out.splitlines()] == ["RUN", "two"]
        assert said.out.rstrip().endswith("data cdcdcdcdcdcd (attempt 1); data cdcdcdcdcdcd (attempt 2)")
        run("like-one", status="succeeded", record=uses("0.1.0", data="ab" * 31 + "00"))
        said = hostcore("list", "--data", "ab" * 10, "--json")
        assert (said.code, said.json["errors"][0]["code"]) == (2, "run.query")

    def test_that_cannot_be_asked_for_is_one_error_each(self, hostcore: Callable) -> None:
        said = hostcore("list", "--plugin", "mine>=new", "--data", "1", "--json")
        assert said.code == 2
        assert [error["file"] for error in said.json["errors"]] == ["--plugin", "--data"]
