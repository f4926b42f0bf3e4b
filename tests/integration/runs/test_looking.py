"""The commands that look at runs, at real ones: what they tell of whole runs, and what they find in damaged ones."""

import itertools
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from command_line import Said

import hostcore
from hostcore.checkpoints.commit import commit
from hostcore.checkpoints.find import load_record
from hostcore.cli.wording import lasting

JOB: dict[str, Any] = {
    "trainer": "small_trainer:Trainer",
    "device": "cpu",
    "terminal": False,
    "callbacks": ["small_trainer:Loss"],
    "metric_every": 1,
    "checkpoint_every": 5,
    "keep_checkpoints": 2,
}
DATA: dict[str, Any] = {"source": "mock", "num_rows": 70, "batch_size": 10, "shuffle": True}


@pytest.fixture(scope="module")
def runs(here: Path) -> Path:
    """``longer``: 12 steps, then 23, over the end of epochs; ``other``: another seed; ``mock``, ``bare``: no data.

    ``short`` has another loss than those.
    """
    for max_steps in (12, 23):
        hostcore.run({**JOB, "run_id": "longer", "dataset": DATA, "max_steps": max_steps})
    hostcore.run({**JOB, "run_id": "other", "dataset": DATA, "max_steps": 12, "seed": 7, "terminal": True})
    hostcore.run({**JOB, "run_id": "mock", "mock_batches": [1, 2, 3], "max_steps": 8, "callbacks": []})
    hostcore.run({**JOB, "run_id": "bare", "max_steps": 3, "callbacks": []})
    hostcore.run({**JOB, "run_id": "short", "dataset": DATA, "max_steps": 2})
    return here


@pytest.fixture
def copy(runs: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of ``longer``, to damage."""
    path = runs / f"copy-{request.node.name.replace('[', '-').replace(']', '')[-40:]}"
    shutil.copytree(runs / "longer", path)
    return path


def failed(said: Said) -> dict[str, str]:
    """The messages of the checks that failed, by their id."""
    assert list(said.json) == ["run_id", "ok", "checks"]
    assert all(list(check) == ["id", "status", "message", "path"] for check in said.json["checks"])
    found = {check["id"]: check["message"] for check in said.json["checks"] if check["status"] == "failed"}
    assert (said.code, said.json["ok"]) == ((1, False) if found else (0, True))
    return found


class TestVerify:
    def test_finds_nothing_wrong_in_a_run_that_is_whole_and_proves_the_order_of_its_data(
        self, look: Callable, runs: Path
    ) -> None:
        verified = {run_id: look("verify", run_id, "--json") for run_id in ("longer", "other", "mock", "bare")}
        assert [failed(said) for said in verified.values()] == [{}] * 4
        orders = {
            run_id: {
                one["path"]: (one["status"], one["message"]) for one in said.json["checks"] if one["id"] == "data.order"
            }
            for run_id, said in verified.items()
        }
        assert list(orders["longer"]) == [f"checkpoints/step-{step:06}" for step in (12, 20, 23)]
        proved = orders["longer"]["checkpoints/step-000023"][1]
        assert proved.startswith("230 rows were trained on, each once an epoch")
        assert [*orders["bare"].values()] == [("skipped", "the job has no data, and so no order of it")]

    def test_is_a_table_with_a_verdict_for_people(self, look: Callable, runs: Path, copy: Path) -> None:
        said = look("verify", "longer")
        assert said.code == 0
        assert (
            said.out.splitlines()[-1]
            == "nothing lost, skipped or repeated; whether a resume is exact was not seen  longer"
        )
        (copy / "checkpoints" / "step-000020" / "state.json").write_text("{}")
        said = look("verify", copy.name)
        assert said.code == 1
        damaged = ["FAILED", "checkpoint.content", "checkpoints/step-000020/state.json"]
        assert damaged in [line.split()[:3] for line in said.out.splitlines()]
        assert said.out.splitlines()[-1].endswith(f"checks FAILED  {copy.name}")

    def test_of_an_unknown_run_exits_2(self, look: Callable, runs: Path) -> None:
        assert look("verify", "nothing", "--json").json["errors"][0]["code"] == "run.unknown"
        assert look("verify", "nothing").code == 2

    def test_finds_a_flipped_bit_in_any_committed_file(self, look: Callable, copy: Path) -> None:
        for file in load_record(copy / "checkpoints" / "step-000023.json").record.files:
            path = copy / "checkpoints" / "step-000023" / file.path
            whole = path.read_bytes()
            path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
            found = failed(look("verify", str(copy), "--json"))
            path.write_bytes(whole)
            assert list(found) == ["checkpoint.content"], file.path
            assert file.path in found["checkpoint.content"]

    def test_finds_a_row_that_was_trained_on_twice(self, look: Callable, copy: Path) -> None:
        host = self.recommitted(copy, lambda host: host["cursor"].update(digest=12345))
        found = failed(look("verify", str(copy), "--json"))
        assert list(found) == ["data.order"]
        assert "their digest should be" in found["data.order"]
        assert host["cursor"]["rows"] == 20

    def test_finds_a_place_in_the_data_that_the_steps_cannot_have_led_to(self, look: Callable, copy: Path) -> None:
        self.recommitted(copy, lambda host: host["cursor"].update(rows=30))
        assert (
            "it stands behind 240 rows after 23 steps of 10 rows"
            in failed(look("verify", str(copy), "--json"))["data.order"]
        )

    def test_finds_metrics_that_the_log_says_otherwise(self, look: Callable, copy: Path) -> None:
        (check,) = [
            one for one in look("verify", "longer", "--json").json["checks"] if one["id"] == "checkpoint.metrics"
        ]
        assert check["message"] == "3 values, as the log says"
        self.recommitted(copy, lambda host: host["progress"]["metrics"].update({"train/loss": 7.5}))
        found = failed(look("verify", str(copy), "--json"))
        assert found["checkpoint.metrics"].startswith("the checkpoint of step 23 has train/loss 7.5, and the log ")

    def recommitted(self, copy: Path, change: Callable[[Any], None]) -> Any:
        """Commit the newest checkpoint anew, with another host state: nothing is damaged, and yet it is wrong."""
        folder = copy / "checkpoints"
        record = load_record(folder / "step-000023.json").record
        aside = copy / "aside"
        shutil.move(folder / "step-000023", aside)
        (folder / "step-000023.json").unlink()
        host = orjson.loads((aside / "host.json").read_bytes())
        change(host["tree"])
        size = (aside / "host.json").stat().st_size
        (aside / "host.json").write_bytes(orjson.dumps(host).ljust(size))

        def fill(draft: Path) -> None:
            shutil.copytree(aside, draft, dirs_exist_ok=True)

        commit(folder, step=23, epoch=record.epoch, final=True, attempt=2, fill=fill)
        shutil.rmtree(aside)
        return host["tree"]

    @pytest.mark.parametrize(
        ("removed", "problem", "says"),
        [
            (["step-000023"], "checkpoint.content", ""),
            (["step-000023.json"], "log.checkpoints", ""),
            (["step-000020", "step-000020.json"], "log.checkpoints", "the checkpoint of step 20 was saved"),
        ],
        ids=["its folder", "its record", "both"],
    )
    def test_finds_a_checkpoint_that_was_removed_or_half_of_it(
        self, look: Callable, copy: Path, removed: list[str], problem: str, says: str
    ) -> None:
        for name in removed:
            path = copy / "checkpoints" / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        found = failed(look("verify", str(copy), "--json"))
        assert list(found) == [problem]
        assert says in found[problem]

    def test_names_what_was_never_committed_and_calls_it_no_failure(self, look: Callable, copy: Path) -> None:
        (copy / "checkpoints" / ".step-000025.attempt-1.tmp").mkdir()
        (copy / "checkpoints" / "step-000030").mkdir()
        said = look("verify", str(copy), "--json")
        assert failed(said) == {}
        left = [check["path"] for check in said.json["checks"] if check["id"] == "checkpoint.leftover"]
        assert sorted(left) == ["checkpoints/.step-000025.attempt-1.tmp", "checkpoints/step-000030"]

    def test_finds_every_line_that_is_missing_from_the_log_or_there_twice(self, look: Callable, copy: Path) -> None:
        log = copy / "logs" / "events.jsonl"
        lines = log.read_bytes().splitlines(keepends=True)
        for number, line in enumerate(lines):
            log.write_bytes(b"".join([*lines[:number], *lines[number + 1 :]]))
            assert failed(look("verify", str(copy), "--json")), line
            log.write_bytes(b"".join([*lines[:number], line, *lines[number:]]))
            assert "log.sequence" in failed(look("verify", str(copy), "--json")), line

    def test_finds_a_log_that_is_gone_and_one_that_is_none(self, look: Callable, copy: Path) -> None:
        (copy / "logs" / "events.jsonl").write_text("what is this?\n")
        assert "line 1 is no event" in failed(look("verify", str(copy), "--json"))["log.sequence"]
        (copy / "logs" / "events.jsonl").unlink()
        assert failed(look("verify", str(copy), "--json")) == {"log.sequence": "there is none"}

    def test_finds_a_log_that_ends_before_what_a_reporter_has_received(self, look: Callable, copy: Path) -> None:
        count = len((copy / "logs" / "events.jsonl").read_bytes().splitlines())
        (copy / "cursors").mkdir(exist_ok=True)
        cursor = copy / "cursors" / "mine.json"
        cursor.write_bytes(orjson.dumps({"seq": count, "offset": 1}))
        assert failed(look("verify", str(copy), "--json")) == {}
        cursor.write_bytes(orjson.dumps({"seq": count + 1, "offset": 1}))
        message = f"the reporter mine has received event {count + 1}, and the log ends at {count}"
        assert failed(look("verify", str(copy), "--json")) == {"log.received": message}
        cursor.write_text("[]")
        assert failed(look("verify", str(copy), "--json")) == {}

    def test_finds_nothing_wrong_in_a_run_that_has_not_begun_to_write(self, look: Callable, copy: Path) -> None:
        for name in ("logs", "checkpoints"):
            shutil.rmtree(copy / name)
        (copy / "result.json").unlink()
        assert failed(look("verify", str(copy), "--json")) == {}

    def test_finds_a_result_that_the_log_does_not_confirm(self, look: Callable, copy: Path) -> None:
        result = orjson.loads((copy / "result.json").read_bytes())
        (copy / "result.json").write_bytes(orjson.dumps({**result, "step": 22}))
        found = failed(look("verify", str(copy), "--json"))
        assert found == {"log.result": "it ended at step 22 by result.json, and at step 23 by the log"}


class TestList:
    @pytest.mark.parametrize("reverse", [False, True])
    def test_sorts_by_a_metric_and_shows_it(self, look: Callable, runs: Path, reverse: bool) -> None:
        options = ["--sort", "train/loss", "--metric", "noise", *(["--reverse"] if reverse else [])]
        said = look("list", *options, "--json")
        found = [(run["run_id"], run["metrics"]) for run in said.json["runs"]]
        losses = [metrics["train/loss"] for _, metrics in found if "train/loss" in metrics]
        assert len({*losses}) > 1
        assert losses == sorted(losses, reverse=reverse)
        assert [run_id for run_id, metrics in found if "noise" in metrics]
        for run_id, metrics in found:
            assert metrics.get("train/loss") == look("status", run_id, "--json").json["metrics"].get("train/loss")
        table = look("list", *options, "-n", "2").out.splitlines()
        assert table[0].split()[-2:] == ["train/loss", "noise"]
        assert [line.split()[0] for line in table[1:]] == [run_id for run_id, _ in found[:2]]

    def test_refuses_a_metric_that_no_run_has(self, look: Callable, runs: Path) -> None:
        said = look("list", "--sort", "train_loss", "--json")
        (error,) = said.json["errors"]
        assert (said.code, error["code"], error["hint"]) == (2, "metric.unknown", 'did you mean "train/loss"?')
        assert look("list", "--reverse").code == 2


class TestCompare:
    def test_has_what_differs_and_what_came_of_it_and_draws_the_curves_of_both(
        self, look: Callable, runs: Path, tmp_path: Path
    ) -> None:
        said = look("compare", "longer", "other", "--json", "--plot", str(tmp_path / "both.png"))
        assert (said.code, said.err) == (0, "")
        found = said.json
        assert list(found) == ["a", "b", "job", "plugins", "environment", "metrics", "plot"]
        assert [found[side]["run_id"] for side in "ab"] == ["longer", "other"]
        assert [found[side]["step"] for side in "ab"] == [23, 12]
        assert {one["pointer"]: (one["a"], one["b"]) for one in found["job"]} == {
            "/max_steps": (23, 12),
            "/seed": (0, 7),
            "/reporters": ([], ["hostcore-builtin-plugins/terminal"]),
            "/terminal": (False, True),
        }
        (plugin,) = found["plugins"]
        assert (plugin["plugin"], "a" in plugin) == ("reporter terminal", False)
        assert plugin["b"]["distribution"] == "hostcore-builtin-plugins"
        assert found["environment"] == []
        (metric,) = found["metrics"]
        assert metric["name"] == "train/loss"
        assert metric["difference"] == metric["b"] - metric["a"]

        from matplotlib.colors import to_rgb
        from matplotlib.image import imread

        assert found["plot"] == str(tmp_path / "both.png")
        pixels = imread(tmp_path / "both.png")[..., :3]
        for color in ("C0", "C1"):
            assert (abs(pixels - to_rgb(color)).max(axis=-1) < 0.02).any(), f"nothing is drawn in {color}"

    def test_draws_the_metrics_that_are_named(self, look: Callable, runs: Path, tmp_path: Path) -> None:
        from matplotlib.image import imread

        for number, metrics in enumerate((["error"], ["error", "noise"])):
            options = [option for name in metrics for option in ("--metric", name)]
            said = look("compare", "mock", "bare", "--plot", str(tmp_path / f"{number}.png"), *options)
            assert said.out.splitlines()[-1] == f"curves of {', '.join(metrics)}: {tmp_path / f'{number}.png'}"
        heights = [imread(tmp_path / f"{number}.png").shape[0] for number in (0, 1)]
        assert heights[0] < heights[1]

    def test_is_tables_for_people_and_a_picture_in_the_working_directory(self, look: Callable, runs: Path) -> None:
        said = look("compare", "longer", "other")
        assert said.out.splitlines()[-1] == "curves of train/loss: compare-longer-other.png"
        assert Path("compare-longer-other.png").read_bytes().startswith(b"\x89PNG")
        lines = [line.split() for line in said.out.splitlines()]
        assert lines[0] == ["RUN", "longer", "other"]
        assert ["steps", "23/23", "12/12"] in lines
        assert ["/seed", "0", "7"] in lines
        assert ["the", "environments", "are", "the", "same"] in lines

    def test_of_many_runs_has_each_with_its_metrics_and_the_keys_that_differ(self, look: Callable, runs: Path) -> None:
        said = look("compare", "short", "other", "bare", "mock", "--no-plot", "--sort", "train/loss", "--json")
        assert (said.code, said.err) == (0, "")
        found = said.json["runs"]
        values = [run["metrics"]["train/loss"] for run in found if "train/loss" in run["metrics"]]
        assert len({*values}) > 1
        assert values == sorted(values)
        by_name = {run["run_id"]: run for run in found}
        assert {name: run["job"]["/max_steps"] for name, run in by_name.items()} == {
            "short": 2,
            "other": 12,
            "bare": 3,
            "mock": 8,
        }
        assert by_name["other"]["job"]["/seed"] == 7
        assert by_name["mock"]["job"]["/mock_batches"] == [1, 2, 3]
        assert "/run_id" not in by_name["bare"]["job"]
        assert "reporter terminal" in by_name["other"]["plugins"]
        assert "reporter terminal" not in by_name["bare"]["plugins"]
        for name, run in by_name.items():
            assert run["metrics"] == look("status", name, "--json").json["metrics"]
        again = look("compare", "other", "short", "bare", "--sort", "train/loss", "--reverse", "--no-plot", "--json")
        ordered = [run["metrics"]["train/loss"] for run in again.json["runs"] if "train/loss" in run["metrics"]]
        assert ordered == sorted(ordered, reverse=True)

    def test_of_many_runs_is_a_table_with_a_line_for_each(self, look: Callable, runs: Path) -> None:
        options = ["--metric", "train/loss", "--no-plot"]
        lines = look("compare", "longer", "other", "bare", *options).out.splitlines()
        head = lines[0].split()
        assert head[:4] == ["RUN", "STATUS", "STEPS", "train/loss"]
        assert {"/max_steps", "/seed"} <= set(head[4:])
        assert [line.split()[0] for line in lines[1:4]] == ["longer", "other", "bare"]
        assert lines[4:6] == ["", lines[5]]
        assert lines[5].startswith("the plugins differ: data_source mock")
        assert lines[5].endswith("reporter terminal (--json has the values)")
        assert lines[-1] == "the environments are the same"

    def test_of_many_runs_draws_the_curves_of_all(self, look: Callable, runs: Path) -> None:
        said = look("compare", "longer", "other", "mock")
        assert said.out.splitlines()[-1].endswith(": compare-3-runs.png")
        assert Path("compare-3-runs.png").read_bytes().startswith(b"\x89PNG")
        for options in (["--sort", "train/loss"], ["--reverse"]):  # two runs are not sorted
            assert look("compare", "longer", "other", *options).code == 2

    @pytest.mark.parametrize(
        ("arguments", "code"),
        [
            (["longer", "longer"], "compare.same_run"),
            (["longer", "other", "longer"], "compare.same_run"),
            (["longer", "other", "bare", "--sort", "los"], "metric.unknown"),
            (["longer", "other", "bare", "--no-plot", "--metric", "los"], "metric.unknown"),
            (["longer", "nothing"], "run.unknown"),
            (["longer", "other", "--metric", "los"], "metric.unknown"),
            (["longer", "other", "--plot", "nowhere/both.png"], "plot.unwritable"),
            (["longer", "other", "--plot", "both.svg"], "plot.name"),
        ],
    )
    def test_refuses_what_makes_no_sense(self, look: Callable, runs: Path, arguments: list[str], code: str) -> None:
        said = look("compare", *arguments, "--json")
        assert said.code == 2
        assert said.json["errors"][0]["code"] == code


class TestStatus:
    def test_tells_of_all_attempts_and_checkpoints(self, look: Callable, runs: Path) -> None:
        found = look("status", "longer", "--json").json
        assert (found["status"], found["step"], found["max_steps"], found["attempt"]) == ("succeeded", 23, 23, 2)
        steps = [(one["status"], one["first_step"], one["last_step"]) for one in found["attempts"]]
        assert steps == [("succeeded", 0, 12), ("succeeded", 12, 23)]
        assert [(one["step"], one["attempt"]) for one in found["checkpoints"]] == [(12, 1), (20, 2), (23, 2)]

        copy = shutil.copytree(runs / "longer", runs / "copy-of-longer")
        paths = [one["path"] for one in look("status", str(copy), "--json").json["checkpoints"]]
        assert paths == [str(copy / "checkpoints" / f"step-{step:06}") for step in (12, 20, 23)]

    def test_keeps_the_time_of_the_first_submission(self, look: Callable, runs: Path) -> None:
        listed = {run["run_id"]: run for run in look("list", "--json").json["runs"]}
        order = [run_id for run_id in listed if run_id in ("longer", "other")]
        assert order == ["other", "longer"]
        assert listed["longer"]["submitted_ms"] < listed["other"]["submitted_ms"]


def test_a_run_whose_supervisor_was_killed_is_lost_and_whole_and_goes_on(project: Any, until: Callable) -> None:
    slow = {**JOB, "trainer": "small_trainer:Slow", "callbacks": [], "dataset": DATA, "max_steps": 10**6}
    job = project.job("killed.json", run_id="killed", **slow)
    first = project.start("run", job)
    checkpoints = project.run("killed").path / "checkpoints"
    until(lambda: len(list(checkpoints.glob("step-*.json"))) >= 2, "the second checkpoint")
    # A checkpoint is on the disk before its supervisor has read of it in the worker's log.
    until(lambda: project.command("status", "killed", "--json").json["step"] >= 10, "the status to be as far")
    running = project.command("status", "killed", "--json").json
    assert (running["status"], running["attempts"][0]["status"]) == ("running", "running")
    assert set(running["metrics"]) == {"error", "noise"}
    assert project.command("verify", "killed").code == 0

    follower = project.start("logs", "killed", "-f", "--json")
    first.process.kill()
    followed = follower.end()
    assert followed.code == 1
    assert "killed is lost: its supervisor" in followed.err
    assert followed.out.encode() == (project.run("killed").path / "logs" / "events.jsonl").read_bytes()
    assert project.command("list", "--json", "--status", "lost").json["runs"][0]["run_id"] == "killed"

    until(lambda: not Path("/proc", str(project.run("killed").worker_pid)).exists(), "the end of the worker")
    copied = project.copy("killed", "unmerged")
    log = copied.path / "logs" / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    first_saved = next(at for at, line in enumerate(lines) if b'"checkpoint_saved"' in line)
    log.write_bytes(b"".join(lines[: first_saved + 1]))  # the worker went on after the last merge, and pruned that one
    unmerged = project.command("verify", "unmerged", "--json")
    assert failed(unmerged) == {}
    (saved,) = [check["message"] for check in unmerged.json["checks"] if check["id"] == "log.checkpoints"]
    assert saved.startswith("1 saved, 1 of them removed since")
    assert saved.endswith("more are there, whose events are not merged yet")
    log.write_bytes(b"")
    emptied = failed(project.command("verify", "unmerged", "--json"))
    assert list(emptied) == ["log.begins"]
    assert "its beginning is not in the log: events were lost" in emptied["log.begins"]
    shutil.rmtree(copied.path / "checkpoints")
    assert "as rank-0.attempt-1.jsonl shows" in failed(project.command("verify", "unmerged", "--json"))["log.begins"]

    second = project.start("resume", "killed")
    until(lambda: '"run_started"' in project.run("killed").rank_log(attempt=2), "the first step of the next attempt")
    second.signal(signal.SIGINT)
    assert second.end().code == 130
    verified = project.command("verify", "killed", "--json")
    assert failed(verified) == {}
    (ends,) = [check["message"] for check in verified.json["checks"] if check["id"] == "log.ends"]
    assert ends.endswith("attempt 2 cancelled")


class TestDuration:
    def test_is_the_same_wherever_it_is_shown(self, look: Callable, runs: Path, tmp_path: Path) -> None:
        result = orjson.loads((runs / "longer" / "result.json").read_bytes())
        *_, before, newest = look("status", "longer", "--json").json["attempts"]
        assert newest["started_ms"] == orjson.loads((runs / "longer/attempts/2.json").read_bytes())["started_ms"]
        assert [newest[key] for key in ("started_ms", "ended_ms")] == [result["started_ms"], result["ended_ms"]]
        of_newest, of_both = (
            lasting(sum(one["ended_ms"] - one["started_ms"] for one in them) / 1000)
            for them in ([newest], [before, newest])
        )
        whole = f"{of_newest} ({of_both} in 2 attempts)"
        assert re.search(rf"^  duration +{re.escape(whole)}$", look("status", "longer").out, re.M)
        assert re.search(rf"^  duration +{of_newest} \(of attempt 2\)$", look("resume", "longer").out, re.M)
        assert re.search(rf"^longer .* {of_newest}$", look("list").out, re.M)
        compared = look("compare", "longer", "other", "--no-plot").out
        assert re.search(rf"^duration +{of_newest} ", compared, re.M)
        assert re.search(rf"^all attempts +{of_both} ", compared, re.M)
        look("report", "longer", "--output", str(tmp_path / "longer.html"))
        assert f"<dt>Duration</dt><dd>{whole}</dd>" in (tmp_path / "longer.html").read_text()


class TestReport:
    @pytest.fixture
    def page(self, look: Callable, runs: Path) -> Callable[[str], str]:
        """``page("a")``: the report of a run."""
        return lambda run_id: Path(look("report", run_id, "--json").json["report"]).read_text()

    def test_has_the_curve_of_the_log_of_a_run_that_was_extended(
        self, runs: Path, page: Callable, events_of: Callable
    ) -> None:
        shown = page("longer")
        measured = {one["step"]: one["metrics"]["train/loss"] for one in events_of("longer", "metrics")}
        assert len(measured) == 23
        (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', shown, re.DOTALL)
        curves = [one for plot in orjson.loads(text)["plots"] for one in plot["curves"]]
        (curve,) = [one for one in curves if one["name"] == "train/loss"]
        steps = itertools.accumulate(curve["steps"])
        assert dict(zip(steps, curve["values"], strict=True)) == {
            step: float(f"{value:.6g}") for step, value in measured.items()
        }
        assert '"attempts":[[2,12]]' in shown
        assert shown.count(">kept<") == len(list((runs / "longer/checkpoints").glob("*.json")))
        assert shown.count(">removed<") > 0

    def test_of_a_run_that_failed_shows_its_own_traceback_and_how_to_go_on(self, page: Callable) -> None:
        job = {**JOB, "run_id": "exploded", "max_steps": 12, "hyperparams": {"how": "raise", "at": 8}}
        assert hostcore.run(job).status == "failed"
        shown = page("exploded")
        for part in ("ValueError", "the loss has exploded", "in _deep", "hostcore resume exploded"):
            assert part in shown

    def test_of_a_run_without_metrics_has_no_curves(self, page: Callable) -> None:
        job = {**JOB, "run_id": "silent", "max_steps": 2, "metric_every": 0, "callbacks": []}
        assert hostcore.run(job).status == "succeeded"
        shown = page("silent")
        assert 'id="curves"' not in shown
        assert 'id="environment"' in shown
        assert "small_trainer:Trainer" in shown
