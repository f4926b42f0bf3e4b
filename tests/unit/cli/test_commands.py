"""What the commands say, and with what exit code they end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hostcore as package
from hostcore.checkpoints.commit import commit
from hostcore.cli import _COMMANDS
from hostcore.events.writer import now_ms
from hostcore.runs.attempts import claim_attempt
from hostcore.runs.directory import RunDirectory
from hostcore.runs.lease import Lease, ProcessIdentity
from hostcore.runs.record import RunRecord
from hostcore.runs.result import EXIT_CODES, RunResult
from hostcore_hookspecs.errors import RunError
from hostcore_hookspecs.events import PAYLOADS

RUN_KEYS = ["run_id", "status", "trainer", "step", "max_steps", "attempt", "submitted_ms", "ended_ms"]
ERROR_KEYS = ["code", "message", "pointer", "file", "hint"]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., RunDirectory]:
    """``run("a", status="succeeded")``: the directory of a run that ended so; without a status, of one that runs."""

    def make(run_id: str, *, status: str = "", submitted_ms: int = 1000, **result: Any) -> RunDirectory:
        directory = RunDirectory(tmp_path / "runs" / run_id)
        directory.make()
        job = {"trainer": "mine", "max_steps": 2000}
        RunRecord(job=job, job_dir=str(tmp_path), submitted_ms=submitted_ms).write(directory.record)
        me = ProcessIdentity.current()
        claim_attempt(directory.attempts, 1, process=me, started_ms=submitted_ms)
        if not status:
            Lease(process=me, attempt=1, step=7, last_progress_ms=0, renewed_ms=now_ms()).write(directory.lease)
            return directory
        about = {"metrics": {"train/loss": 0.5, "grad": None}, "started_ms": 1000, "ended_ms": 3000, **result}
        code = EXIT_CODES[status]
        RunResult(run_id=run_id, status=status, exit_code=code, attempt=1, step=1500, epoch=2, **about).write(
            directory.result
        )
        return directory

    return make


class TestTheCommand:
    @pytest.mark.parametrize("flag", ["--help", "-h"])
    def test_lists_its_commands(self, hostcore: Callable, flag: str) -> None:
        said = hostcore(flag)
        assert said.code == 0
        for name, command in _COMMANDS.items():
            assert f"  {name}" in said.out
            assert command.help in said.out

    def test_tells_its_version(self, hostcore: Callable) -> None:
        assert package.__version__ in hostcore("--version").out

    @pytest.mark.parametrize("name", list(_COMMANDS))
    def test_has_help_for_every_command(self, hostcore: Callable, name: str) -> None:
        said = hostcore(name, "--help")
        assert (said.code, said.out.startswith(f"Usage: hostcore {name}")) == (0, True)

    @pytest.mark.parametrize(("typed", "meant"), [("plugin", "plugins"), ("stauts", "status"), ("valdate", "validate")])
    def test_suggests_the_command_that_was_meant(self, hostcore: Callable, typed: str, meant: str) -> None:
        said = hostcore(typed)
        assert said.code == 2
        assert f"No such command '{typed}'. Did you mean '{meant}'?" in said.err

    def test_that_is_like_no_other_points_to_the_list(self, hostcore: Callable) -> None:
        said = hostcore("xyzzy")
        assert said.code == 2
        assert "`hostcore --help` lists the commands" in said.err

    def test_refuses_to_resume_and_begin_at_once(self, hostcore: Callable, tmp_path: Path) -> None:
        (tmp_path / "job.json").write_text('{"trainer": "a:B", "max_steps": 1}')
        said = hostcore("run", "job.json", "--resume", "--from", "x")
        assert said.code == 2
        assert "--resume and --from exclude each other" in said.err


class TestList:
    def test_shows_the_newest_first_with_the_documented_keys(self, hostcore: Callable, run: Callable) -> None:
        run("older", status="failed", submitted_ms=1)
        run("newer", submitted_ms=2)
        said = hostcore("list", "--json")
        assert said.code == 0
        assert list(said.json) == ["runs"]
        assert [one["run_id"] for one in said.json["runs"]] == ["newer", "older"]
        assert all(list(one) == RUN_KEYS for one in said.json["runs"])
        assert [one["status"] for one in said.json["runs"]] == ["running", "failed"]
        assert [one["step"] for one in said.json["runs"]] == [7, 1500]

    def test_is_a_table_for_people(self, hostcore: Callable, run: Callable) -> None:
        run("a", status="succeeded")
        head, row = hostcore("list").out.splitlines()
        assert head.split() == ["RUN", "STATUS", "TRAINER", "STEP", "ATTEMPT", "SUBMITTED"]
        assert row.split()[:5] == ["a", "succeeded", "mine", "1,500/2,000", "1"]

    def test_without_runs_says_where_it_looked(self, hostcore: Callable, tmp_path: Path) -> None:
        assert hostcore("list", "--json").json == {"runs": []}
        said = hostcore("list")
        assert (said.code, said.out) == (0, "")
        assert str(tmp_path / "runs") in said.err

    def test_names_what_it_cannot_read_on_standard_error(self, hostcore: Callable, run: Callable) -> None:
        run("good", status="succeeded")
        run("bad", status="succeeded").record.write_text("{")
        said = hostcore("list", "--json")
        assert [one["run_id"] for one in said.json["runs"]] == ["good"]
        assert "runs/bad" in said.err

    def test_looks_where_the_variable_says(
        self, hostcore: Callable, run: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        run("a", status="succeeded")
        monkeypatch.setenv("HOSTCORE_RUNS_DIR", str(tmp_path / "elsewhere"))
        assert hostcore("list", "--json").json == {"runs": []}


class TestStatus:
    def test_has_the_documented_keys(self, hostcore: Callable, run: Callable) -> None:
        directory = run("a", status="succeeded")
        for step in (500, 1500):
            commit(
                directory.checkpoints,
                step=step,
                epoch=1,
                final=step == 1500,
                attempt=1,
                fill=lambda folder: (folder / "host.json").touch(),
            )
        said = hostcore("status", "a", "--json")
        assert said.code == 0
        assert list(said.json) == [*RUN_KEYS, "metrics", "checkpoints"]
        assert said.json["metrics"] == {"train/loss": 0.5, "grad": None}
        assert said.json["checkpoints"] == [
            {"step": 500, "epoch": 1, "final": False},
            {"step": 1500, "epoch": 1, "final": True},
        ]

    def test_tells_people_how_it_ended(self, hostcore: Callable, run: Callable) -> None:
        run("a", status="failed", error=RunError(type="ValueError", message="no", traceback=""), reason=None)
        said = hostcore("status", "a")
        assert said.out.startswith("failed  a\n")
        for line in (
            "steps       1,500/2,000",
            "error       ValueError: no",
            "train/loss  0.5",
            "grad        not finite",
        ):
            assert line in said.out

    @pytest.mark.parametrize("run_id", ["nothing", "..", ".", "../runs", "a/b", ""])
    def test_of_an_unknown_run_exits_2_with_a_hint(self, hostcore: Callable, run_id: str) -> None:
        said = hostcore("status", run_id)
        assert (said.code, said.out) == (2, "")
        assert "hostcore list" in said.err

    def test_of_an_unknown_run_is_an_error_document(self, hostcore: Callable) -> None:
        said = hostcore("status", "nothing", "--json")
        assert said.code == 2
        (error,) = said.json["errors"]
        assert list(error) == ERROR_KEYS
        assert (error["code"], said.err) == ("run.unknown", "")

    def test_of_a_run_that_cannot_be_read_is_an_error(self, hostcore: Callable, run: Callable) -> None:
        directory = run("a", status="succeeded")
        directory.result.write_text("{}")
        said = hostcore("status", "a", "--json")
        assert said.code == 2
        assert (said.json["errors"][0]["code"], said.json["errors"][0]["file"]) == (
            "run.corrupt",
            str(directory.result),
        )


class TestPlugins:
    @pytest.mark.parametrize("arguments", [["plugins", "--json"], ["plugins", "list", "--json"]])
    def test_has_the_documented_keys(self, hostcore: Callable, arguments: list[str]) -> None:
        said = hostcore(*arguments)
        assert said.code == 0
        assert list(said.json) == ["plugins", "broken"]
        for plugin in said.json["plugins"]:
            assert list(plugin) == ["kind", "name", "value", "distribution", "version", "conflict"]
        builtins = [one for one in said.json["plugins"] if one["distribution"] == "hostcore-builtin-plugins"]
        assert {(one["kind"], one["name"]) for one in builtins} >= {
            ("data_source", "parquet"),
            ("data_source", "mock"),
            ("reporter", "terminal"),
            ("launcher", "local"),
        }

    def test_names_what_is_broken_and_where(self, hostcore: Callable, site_here: Any) -> None:
        site_here.install("broken", modules={}, entry_points="[hostcore.trainers\nx = y:Z")
        (broken,) = hostcore("plugins", "--json").json["broken"]
        assert list(broken) == ["distribution", "path", "error"]
        assert broken["distribution"] == "broken"

    def test_shows_conflicts(self, hostcore: Callable, site_here: Any) -> None:
        for distribution in ("one", "two"):
            site_here.install(distribution, modules={}, entry_points={"hostcore.trainers": {"same": "m:T"}})
        plugins = hostcore("plugins", "--json").json["plugins"]
        assert [one["conflict"] for one in plugins if one["name"] == "same"] == [True, True]
        assert "'same' is provided by: one 1.0, two 1.0" in hostcore("plugins").err

    def test_that_are_unknown_exit_2_with_the_nearest_name(self, hostcore: Callable) -> None:
        said = hostcore("plugins", "show", "parket", "--json")
        assert said.code == 2
        assert "parquet" in said.json["errors"][0]["hint"]

    def test_are_shown_with_their_settings(self, hostcore: Callable) -> None:
        said = hostcore("plugins", "show", "mock", "--json")
        assert said.code == 0
        (plugin,) = said.json["plugins"]
        assert (plugin["kind"], plugin["ref"]["dist"]) == ("data_source", "hostcore-builtin-plugins")
        assert {"num_rows", "num_shards"} <= set(plugin["settings_schema"]["properties"])


class TestSchema:
    def test_of_job_files_has_every_key_of_a_job(self, hostcore: Callable) -> None:
        said = hostcore("schema")
        assert (said.code, said.err) == (0, "")
        assert said.json["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert {"trainer", "dataset", "max_steps", "resume_from_checkpoint"} <= set(said.json["properties"])

    def test_of_events_names_every_event(self, hostcore: Callable) -> None:
        text = hostcore("schema", "--events").out
        assert [name for name in PAYLOADS if f'"{name}"' not in text] == []

    def test_with_an_unknown_plugin_exits_2(self, hostcore: Callable) -> None:
        said = hostcore("schema", "parket")
        assert (said.code, said.out) == (2, "")
        assert "parquet" in said.err


class TestErrors:
    @pytest.mark.parametrize("command", ["run", "validate"])
    def test_are_all_told_at_once_as_one_document(self, hostcore: Callable, tmp_path: Path, command: str) -> None:
        (tmp_path / "job.json").write_text('{"trainer": "a:B", "max_steps": -1, "seed": "x", "nonsense": 1}')
        said = hostcore(command, "job.json", "--json")
        assert said.code == 2
        assert list(said.json) == ["errors"]
        assert {error["pointer"] for error in said.json["errors"]} == {"/max_steps", "/seed", "/nonsense"}
        assert all(list(error) == ERROR_KEYS for error in said.json["errors"])
        assert not (tmp_path / "runs").exists()

    def test_are_lines_on_standard_error_for_people(self, hostcore: Callable, tmp_path: Path) -> None:
        (tmp_path / "job.json").write_text('{"trainer": "a:B", "max_steps": -1}')
        said = hostcore("run", "job.json")
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith("error: ")
        assert "at: /max_steps" in said.err
        assert "file: job.json" in said.err
