"""The page of ``hostcore report``: well-formed, complete, and safe whatever the run has brought along."""

import base64
import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest

from hostcore.checkpoints.commit import commit
from hostcore.cli.report import name_of
from hostcore.runs.attempts import claim_attempt
from hostcore.runs.directory import RunDirectory
from hostcore.runs.history import History
from hostcore.runs.lease import ProcessIdentity
from hostcore.runs.record import RunRecord
from hostcore.supervisor.run_status import inspect_run
from hostcore_hookspecs.errors import RunError
from hostcore_hookspecs.events import (
    CheckpointSaved,
    Metrics,
    RunFailed,
    RunPreempted,
    RunResumed,
    RunStarted,
    RunSubmitted,
    UploadFailed,
    Validation,
    Warning,
)
from hostcore_hookspecs.events import (
    Test as OverallTest,
)
from hostcore_inspect.report.page import write_page
from hostcore_inspect.report.recording import Recording

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x00\x1b[31m\u202e\ud800\u2028 ünï 🙂"
VOID = {"meta", "link", "input", "img"}
STARTED = RunStarted(device="cpu")
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@attrs.define
class Page(HTMLParser):
    """A page that was read; every element has to be closed where it should be."""

    source: str
    elements: list[tuple[str, dict[str, str | None]]] = attrs.field(factory=list)
    #: The text below each element with an id.
    texts: dict[str, str] = attrs.field(factory=dict)
    rows: list[list[str]] = attrs.field(factory=list)
    _open: list[tuple[str, str | None]] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        HTMLParser.__init__(self)
        self.feed(self.source)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, found: list[tuple[str, str | None]]) -> None:
        about = dict(found)
        assert len(about) == len(found), f"an attribute of {tag} is there twice"
        self.elements.append((tag, about))
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")
        if tag not in VOID:
            self._open.append((tag, about.get("id")))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, text: str) -> None:
        for _, name in self._open:
            if name:
                self.texts[name] = self.texts.get(name, "") + text
        if any(tag in ("th", "td") for tag, _ in self._open):
            self.rows[-1][-1] += text

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [about for name, about in self.elements if name == tag]

    def row(self, *begin: str) -> list[str]:
        """The only row of a table that begins so."""
        (found,) = [row for row in self.rows if row[: len(begin)] == list(begin)]
        return found

    @property
    def data(self) -> Any:
        """What the script is given."""
        return json.loads(self.texts["data"])

    def curve(self, name: str) -> dict[int, float | None]:
        """The points of a curve as the script gets them."""
        (found,) = [one for plot in self.data["plots"] for one in plot["curves"] if one["name"] == name]
        steps = [sum(found["steps"][: count + 1]) for count in range(len(found["steps"]))]
        return dict(zip(steps, found["values"], strict=True))


def page_of(directory: RunDirectory) -> Page:
    run_status, recording = inspect_run(directory, History(directory)), Recording.read(directory.events)
    now = 2_000_000_000_000
    record = RunRecord.read(directory.record)
    return Page(write_page(run_status, record, recording, name=name_of(directory), now=now))


class TestAPage:
    def test_needs_no_other_file_and_lets_nothing_be_loaded(self, run: Callable, tell: Callable) -> None:
        directory = run("a", status="succeeded")
        tell(directory, (0, STARTED), (10, Metrics(metrics={"train/loss": 2.0})))
        page = page_of(directory)
        links = [about.get(key) for _, about in page.elements for key in ("href", "src") if about.get(key)]
        assert links
        assert all(link.startswith(("#", "data:")) for link in links)
        (policy,) = [one["content"] for one in page.all("meta") if one.get("http-equiv") == "Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
        assert "url(" not in page.source.partition("<style>")[2].partition("</style>")[0]

    def test_can_be_found_one_s_way_in_without_seeing_it(self, run: Callable, tell: Callable) -> None:
        directory = run("a", status="succeeded")
        tell(directory, (0, STARTED), (10, Metrics(metrics={"train/loss": 2.0})))
        page = page_of(directory)
        ids = {about["id"] for _, about in page.elements if about.get("id")}
        assert [len(page.all(tag)) for tag in ("header", "nav", "main", "footer", "h1")] == [1] * 5
        assert page.all("html") == [{"lang": "en"}]
        assert all(one["href"].removeprefix("#") in ids for one in page.all("a"))
        assert all(one["aria-labelledby"] in ids and one["aria-describedby"] in ids for one in page.all("svg"))
        assert "train/loss: 1 values, 2 at step 10" in page.texts["desc-0"]
        assert len(page.all("table")) == len(page.all("caption"))
        assert all(one.get("scope") in ("row", "col") for one in page.all("th"))

    @pytest.mark.parametrize("status", ["", "succeeded", "failed", "cancelled", "preempted"])
    def test_is_there_for_a_run_of_which_nothing_is_known_but_its_status(self, run: Callable, status: str) -> None:
        page = page_of(run("a", status=status))
        assert page.texts["content"]
        assert ("span", {"class": f"status {status or 'running'}"}) in page.elements
        assert "curves" not in page.texts

    def test_of_a_run_that_is_lost_says_whose_death_has_lost_it(self, run: Callable) -> None:
        directory = run("a")
        directory.lease.unlink()
        claim = orjson.loads((directory.attempts / "1.json").read_bytes())
        claim["process"]["start_time"] = 1
        (directory.attempts / "1.json").write_bytes(orjson.dumps(claim))
        assert "died without writing a result" in page_of(directory).texts["failure"]

    def test_shows_everything_hostile_as_text(self, run: Callable, tell: Callable) -> None:
        plugin = {"kind": "trainer", "name": HOSTILE, "value": HOSTILE}
        job = {"trainer": HOSTILE, "labels": {HOSTILE: HOSTILE}}
        record = {"job": job, "plugins": [plugin], "environment": {HOSTILE: HOSTILE}}
        error = RunError(type=HOSTILE, message=HOSTILE, traceback=HOSTILE, plugin=HOSTILE, hint=HOSTILE)
        directory = run("a", status="failed", record=record, error=error, reason=HOSTILE)
        tell(
            directory,
            (0, STARTED),
            (10, Metrics(metrics={HOSTILE: 1.0, f"val/{HOSTILE}": 2.0, "": 3.0})),
            (10, Warning(code="x", message=HOSTILE)),
            (10, RunFailed(error=error)),
        )
        directory.rank_output(1, 0).write_bytes(HOSTILE.encode(errors="replace") + b"\xff\xfe")
        sample = directory.samples / "step-000010" / "0"
        sample.mkdir(parents=True)
        (sample / "text.txt").write_bytes(HOSTILE.replace("\0", "").encode(errors="replace"))

        page = page_of(directory)

        assert len(page.all("script")) == 2
        assert len(page.all("img")) == 0
        assert not any(key.startswith("on") for _, about in page.elements for key in about)
        text = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&␀␛[31m\ufffd?\u2028 ünï 🙂"
        for section in ("failure", "warnings", "plugins", "environment"):
            assert text in page.texts[section], section
        assert not set(page.source) & {"\0", "\x1b", "\u202e"}
        assert HOSTILE.replace("\ud800", "?") in [one["name"] for plot in page.data["plots"] for one in plot["curves"]]


class TestCurves:
    def test_are_what_the_log_says(self, run: Callable, tell: Callable) -> None:
        directory = run("a")
        values = {step: 1 / step for step in range(10, 510, 10)}
        tell(directory, (0, STARTED), *((step, Metrics(metrics={"train/loss": v})) for step, v in values.items()))
        page = page_of(directory)
        assert page.curve("train/loss") == {step: float(f"{value:.6g}") for step, value in values.items()}
        assert page.row("train/loss") == ["train/loss", "0.002", "500", "0.002", "500", "0.1", "10", "50", "-"]
        assert page.data["last_step"] == 500

    def test_of_a_metric_in_training_validation_and_test_are_in_one_plot(self, run: Callable, tell: Callable) -> None:
        directory = run("a")
        tell(
            directory,
            (0, STARTED),
            (10, Metrics(metrics={"lr": 0.1, "accuracy": 0.5, "train/loss": 2.0}, samples_per_second=100.0)),
            (10, Validation(metrics={"val/loss": 3.0, "val/accuracy": 0.4}, weight=1)),
            (10, OverallTest(metrics={"test/loss": 4.0}, weight=1)),
        )
        plots = {
            plot["title"]: [(one["name"], one["role"]) for one in plot["curves"]]
            for plot in page_of(directory).data["plots"]
        }
        assert list(plots) == ["loss", "accuracy", "lr", "samples per second"]
        assert plots["loss"] == [("train/loss", "train"), ("val/loss", "val"), ("test/loss", "test")]

    def test_of_a_long_run_show_every_spike_in_a_small_page(self, run: Callable) -> None:
        directory = run("a")
        spike, gap = {7_777: 50.0}, {5_003: None}
        write_metrics(
            directory, 20_000, lambda step: {"train/loss": spike.get(step, 1 / step), "x": gap.get(step, 0.5)}
        )
        page = page_of(directory)
        assert page.row("x")[-1] == "1"
        assert [one["nonfinite"] for plot in page.data["plots"] for one in plot["curves"]] == [[], [5_003]]
        curve = page.curve("train/loss")
        assert (curve[7_777], len(curve) <= 2000) == (50.0, True)
        assert page.row("train/loss")[5:8] == ["50", "7,777", "19,999"]
        assert len(page.source) < 500_000

    def test_of_500_metrics_are_all_drawn_in_a_page_below_3_megabytes(self, run: Callable) -> None:
        directory = run("a")
        spike = {333: 1e6}
        write_metrics(directory, 600, lambda step: {f"m{each}": spike.get(step, step * 1.2) for each in range(500)})
        page = page_of(directory)
        assert page.curve("m0")[333] == 1e6
        assert len(page.data["plots"]) == len(page.all("svg")) == 500
        assert len(page.source) < 3_000_000
        assert len(page.row("m499")) == 9

    def test_mark_what_is_not_finite(self, run: Callable, tell: Callable) -> None:
        directory = run("a")
        for step in (10, 20, 30):
            values = {"g": None if step == 20 else 1.0, "never": None}
            tell(directory, (step, Metrics(metrics=values, nonfinite=[name for name in values if not values[name]])))
        page = page_of(directory)
        assert page.curve("g") == {10: 1.0, 20: None, 30: 1.0}
        assert page.data["plots"][0]["curves"][0]["nonfinite"] == [20]
        assert (page.row("g")[-1], page.row("never")[1:3], page.row("never")[-1]) == ("1", ["not finite", "30"], "3")
        assert [one["class"] for one in page.all("path")].count("nonfinite") == 2

    def test_show_where_a_later_attempt_began_and_what_it_trained_again(self, run: Callable, tell: Callable) -> None:
        directory = run("a")
        first = [(step, Metrics(metrics={"train/loss": 1.0})) for step in (10, 20, 30)]
        tell(directory, (None, RunSubmitted(trainer="mine", max_steps=40)), (0, STARTED), *first, (30, RunPreempted()))
        claim_attempt(directory.attempts, 2, process=ProcessIdentity.current(), started_ms=5000)
        tell(
            directory,
            (20, RunResumed(path="checkpoints/step-000020")),
            (20, STARTED),
            (30, Metrics(metrics={"train/loss": 2.0})),
            attempt=2,
        )
        page = page_of(directory)
        assert page.curve("train/loss") == {10: 1.0, 20: 1.0, 30: 2.0}
        assert page.data["attempts"] == [[2, 20]]
        assert page.row("1", "preempted")[4:6] == ["0", "30"]
        assert page.row("2")[4:6] == ["20", "30"]


class TestTables:
    def test_tell_which_checkpoints_are_kept_and_what_for(self, run: Callable, tell: Callable) -> None:
        directory = run("a", status="succeeded", best={"metric": "val/loss", "value": 0.25, "step": 20})
        saved = [(10, {}), (20, {"val/loss": 0.25}), (30, {})]
        tell(
            directory,
            *((s, CheckpointSaved(path="x", bytes=5_000_000, final=s == 30, best=best)) for s, best in saved),
        )
        for step in (20, 30):
            commit(
                directory.checkpoints,
                step=step,
                epoch=0,
                final=step == 30,
                attempt=1,
                fill=lambda folder: (folder / "host.json").write_text("{}"),
            )
        page = page_of(directory)
        assert page.row("10", "1", "5 MB", "1")[5:] == ["removed", ""]
        assert page.row("20", "1", "2 B", "1")[5:] == ["kept", "best val/loss (0.25)"]
        assert page.row("30", "1", "2 B", "1")[5:] == ["kept", "final"]
        shown = [row[0] for row in page.rows if row[1:2] == ["1"] and row[0] in ("10", "20", "30")]
        assert shown == ["30", "20", "10"]  # the newest first

    def test_of_events_are_bounded_and_say_how_many_are_left_out(self, run: Callable, tell: Callable) -> None:
        directory = run("a")
        lost = [
            (5, UploadFailed(path=f"p{number}", uploader="s3", message="503", will_retry=True)) for number in range(900)
        ]
        tell(directory, (0, STARTED), *lost, (6, Warning(code="last", message="the last one")))
        page = page_of(directory)
        shown = [row for row in page.rows if "upload_failed" in row]
        assert len(shown) == 2 * (250 - 1)  # among the warnings and among all events
        assert "651 of “Warnings”" in page.texts["events"]
        assert "the last one" in page.texts["warnings"]
        assert "902 events: 1 run_started, 900 upload_failed, 1 warning" in page.texts["events"]

    def test_of_events_show_what_a_newer_hostcore_wrote_and_count_what_is_no_event(
        self, run: Callable, tell: Callable
    ) -> None:
        directory = run("a")
        tell(directory, (0, STARTED))
        line = orjson.loads(directory.events.read_bytes()) | {"event": "moon_landed", "seq": 2, "crater": "Tycho"}
        with directory.events.open("ab") as log:
            log.write(
                orjson.dumps(line)
                + b"\n"
                + b'{"event":"checkpoint_saved"}\n'
                + b'gibberish\n{"event":"warning",\n'
                + b'{"event":"met'
            )
        page = page_of(directory)
        (row,) = [row for row in page.rows if "moon_landed" in row]
        assert "Tycho" in row[-1]
        assert "3 lines of the log are no events" in page.texts["events"]

    def test_of_plugins_environment_and_job_are_complete_with_secrets_as_references(self, run: Callable) -> None:
        plugin = {"kind": "data_source", "name": "parquet", "value": "a:B", "distribution": "d", "version": "1.2"}
        reporters = [{"use": "mlflow", "token": {"$secret": "env:MLFLOW_TOKEN"}}]
        record = {
            "job": {"trainer": "mine", "reporters": reporters},
            "plugins": [plugin | {"sha256": "ab" * 32}] * 2,
            "environment": {"python": "3.12", "gpu": {"name": "H100"}},
        }
        page = page_of(run("a", record=record))
        assert page.row("parquet") == ["parquet", "data source", "d", "1.2", "a:B", "ab" * 32]
        assert (page.row("python")[1], page.row("gpu name")[1]) == ("3.12", "H100")
        text = page.texts["job"]
        assert json.loads(text[text.index("{") :])["reporters"] == reporters


class TestTheFailure:
    def test_has_type_message_plugin_rank_hint_traceback_and_the_last_words(self, run: Callable) -> None:
        error = RunError(
            type="ValueError",
            message="the loss\nhas exploded",
            traceback="Traceback (most recent call last):\n  here\n",
            plugin="mine (mine 1.0)",
            rank=1,
            hint="try less",
        )
        directory = run("a", status="failed", error=error)
        directory.rank_output(1, 1).write_text("x" * 100_000 + "the last words\n")
        page = page_of(directory)
        failure = page.texts["failure"]
        for told in ("ValueError", "the loss\nhas exploded", "mine (mine 1.0)", "try less", "  here", "the last words"):
            assert told in failure
        assert "What rank 1 printed last" in failure
        assert len(failure) < 10_000
        assert any(one.get("href") == "#failure" for one in page.all("a"))

    def test_of_a_run_that_can_go_on_comes_with_the_command(self, run: Callable, tmp_path: Path, monkeypatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("HOSTCORE_RUNS_DIR", raising=False)
        directory = run("a", status="preempted", reason="SIGTERM")
        commit(
            directory.checkpoints,
            step=20,
            epoch=0,
            final=False,
            attempt=1,
            fill=lambda folder: (folder / "host.json").write_text("{}"),
        )
        assert "hostcore resume a" in page_of(directory).source


class TestSamples:
    def test_are_shown_newest_first_with_what_was_asked_for(self, run: Callable) -> None:
        requests = [{"prompt": "a red house"}, {"prompt": "a dog"}]
        directory = run("a", record={"job": {"trainer": "mine", "samples": requests}})
        for step, number in ((5, 0), (1_000_000, 0), (1_000_000, 1)):
            folder = directory.samples / f"step-{step:06d}" / str(number)
            folder.mkdir(parents=True)
            (folder / "image.png").write_bytes(PNG)
            (folder / "text.txt").write_text(f"words {number} of step {step}")
        page = page_of(directory)
        text = page.texts["samples"]
        told = [text.index(f"words {words}") for words in ("0 of step 1000000", "1 of step 1000000", "0 of step 5")]
        assert told == sorted(told)
        assert (text.count("a red house"), text.count("a dog")) == (2, 1)
        images = page.all("img")
        assert images[0]["alt"] == "Step 1,000,000, sample 0: a red house"
        assert base64.b64decode(images[0]["src"].removeprefix("data:image/png;base64,")) == PNG

    def test_that_are_large_secret_or_unfinished_are_not_in_the_page(self, run: Callable, tmp_path: Path) -> None:
        directory = run("a")
        folder = directory.samples / "step-000005" / "0"
        folder.mkdir(parents=True)
        (tmp_path / "secret.txt").write_text("TOP SECRET")
        (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
        (directory.samples / "step-000006").symlink_to(tmp_path)
        hidden = directory.samples / "step-000005" / ".1.writing"
        hidden.mkdir()
        (hidden / "half.txt").write_text("HALF")
        (folder / "large.png").write_bytes(PNG + bytes(500_000))
        (folder / "long.txt").write_text("é" * 1_000_000)
        (folder / "weights.bin").write_bytes(bytes(100))
        page = page_of(directory)
        assert "TOP SECRET" not in page.source
        assert "HALF" not in page.source
        assert page.all("img") == []
        assert "large.png (500 kB, too large to be shown here)" in page.texts["samples"]
        assert "weights.bin (100 B, not shown here)" in page.texts["samples"]
        assert "(2 MB altogether)" in page.texts["samples"]
        assert len(page.source) < 200_000

    def test_of_which_there_are_very_many_are_bounded(self, run: Callable) -> None:
        directory = run("a")
        for step in range(60):
            folder = directory.samples / f"step-{step:06d}" / "0"
            folder.mkdir(parents=True)
            (folder / "image.png").write_bytes(PNG + bytes(100_000))
        page = page_of(directory)
        assert "36 older ones are left out" in page.texts["samples"]
        assert len(page.source) < 3_000_000


def write_metrics(directory: RunDirectory, steps: int, metrics: Callable[[int], dict[str, float | None]]) -> None:
    """A log of metrics at every step; by hand, because it is long."""
    envelope = {"schema": "hostcore.event/1", "run_id": directory.run_id, "attempt": 1, "src": None, "epoch": 0}
    with directory.events.open("wb") as log:
        for step in range(1, steps):
            about = {**envelope, "seq": step, "time_ms": step, "event": "metrics", "step": step}
            log.write(orjson.dumps({**about, "metrics": metrics(step), "nonfinite": []}) + b"\n")
