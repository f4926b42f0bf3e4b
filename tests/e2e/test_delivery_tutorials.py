"""The tutorials of reporters and uploaders, typed in as they stand; the example packages they lead to, installed."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from command_line import Said
from tutorial_reader import PIP, files_of
from tutorial_reader import Reader as TutorialReader

TUTORIALS = ROOT / "docs/tutorials"
EXAMPLES = ROOT / "example_plugins"
INCLUDED = re.compile(r"```\{literalinclude\} (\S+)\n:language: python\n:caption: (\S+)\n```")


class Reader(TutorialReader):
    """Somebody who follows one of these tutorials."""

    @classmethod
    def of(cls, tutorial: str, folder: Path) -> "Reader":
        """Somebody who has made the files of the first part, and installed them."""
        text = (TUTORIALS / f"{tutorial}.md").read_text(encoding="utf-8")
        reader = cls(text, folder / "typed", folder / "site")
        reader.type_in()
        reader.install()
        return reader

    def take_the_whole_of_it(self) -> None:
        """Put the plugin of the second part in the place of the ten lines."""
        ((source, name),) = INCLUDED.findall(self.text)
        shutil.copy(TUTORIALS / source, self.folder / name)
        self.install()

    def run(self, run_id: str, **keys: Any) -> Said:
        """``hostcore run job.json``; the command that the tutorial shows."""
        options = [f"--set={name}={json.dumps(value)}" for name, value in keys.items()]
        assert f"$ hostcore run job.json --set run_id={run_id}" in self.text
        return self.hostcore("run", "job.json", "--set", f"run_id={run_id}", *options)

    def events(self, run_id: str) -> list[dict[str, Any]]:
        lines = (self.folder / "runs" / run_id / "logs/events.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def rows(self) -> list[Any]:
        with closing(sqlite3.connect(self.folder / "runs.db")) as database:
            return database.execute("SELECT * FROM metrics").fetchall()


@pytest.fixture(scope="module")
def beginner(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Has run the job of the reporters' tutorial with the ten lines."""
    reader = Reader.of("write-a-reporter", tmp_path_factory.mktemp("beginner"))
    answer = reader.run("first")
    assert answer.code == 0, answer.err
    return reader


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Has gone on to the whole reporter."""
    reader = Reader.of("write-a-reporter", tmp_path_factory.mktemp("reporter"))
    reader.take_the_whole_of_it()
    return reader


def test_ten_lines_of_a_reporter_write_the_rows_that_the_tutorial_shows(beginner: Reader) -> None:
    code = re.search(r'\$ python -c "(.*)"\n\(', beginner.text)
    assert code
    answer = subprocess.run(
        [sys.executable, "-c", code[1]], cwd=beginner.folder, capture_output=True, text=True, check=True
    )
    assert answer.stdout.startswith(beginner.shown("rows"))


def test_the_ten_lines_write_a_replayed_run_twice_and_the_whole_reporter_once(beginner: Reader, reader: Reader) -> None:
    assert "$ hostcore replay first --reporter sqlite\n" in reader.text
    assert beginner.hostcore("replay", "first", "--reporter", "sqlite").code == 0
    assert len(beginner.rows()) == 8

    assert reader.run("first").code == 0
    for _ in range(2):
        answer = reader.hostcore("replay", "first", "--reporter", "sqlite")
        assert answer.code == 0, answer.err
    assert [(name, step, value) for _, _, name, step, value in reader.rows()] == [
        (name, step, value) for _, step, name, value in beginner.rows()[:4]
    ]


def test_the_wrong_setting_of_the_tutorial_is_refused_as_it_says(reader: Reader) -> None:
    answer = reader.run("second", reporters=[{"use": "sqlite", "lock_seconds": 0}])
    assert answer.code == 2
    # The reader of the tutorial writes it into the job file.
    said = (answer.out + answer.err).replace("from: --set reporters\n", "file: job.json\n")
    assert said == reader.shown("wrong-setting")


def test_a_locked_file_is_told_once_and_caught_up_with(reader: Reader) -> None:
    path = reader.folder / "locked.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as somebody:
        somebody.execute("BEGIN EXCLUSIVE")
        log = reader.folder / "runs/locked/logs/events.jsonl"

        def let_go_when_it_was_told() -> None:
            while not ended.wait(0.05):
                if log.exists() and b"reporter_failed" in log.read_bytes():
                    somebody.execute("ROLLBACK")
                    return

        ended = threading.Event()
        holder = threading.Thread(target=let_go_when_it_was_told)
        holder.start()
        locked = {"use": "sqlite", "path": "locked.db", "lock_seconds": 0.1, "required": True}  # the run waits for it
        answer = reader.run("locked", reporters=[locked])
        ended.set()
        holder.join()
    assert answer.code == 0, answer.err
    (failure,) = [event for event in reader.events("locked") if event["event"] == "reporter_failed"]
    assert "database is locked" in failure["message"]
    assert len([event for event in reader.events("locked") if event.get("code") == "reporter.recovered"]) == 1
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM metrics").fetchone() == (4,)
        assert database.execute("SELECT state FROM runs").fetchone() == ("succeeded",)


def test_a_file_that_is_no_database_does_not_hurt_the_run_unless_the_reporter_is_required(reader: Reader) -> None:
    hopeless = {"use": "sqlite", "path": "halving.py"}
    answer = reader.run("hopeless", reporters=[hopeless])
    assert answer.code == 0, answer.err
    (failure,) = [event for event in reader.events("hopeless") if event["event"] == "reporter_failed"]
    assert "file is not a database" in failure["message"]
    assert "Traceback" not in answer.err

    options = [f"--set=reporters={json.dumps([{**hopeless, 'required': True}])}", "--set=run_id=strict"]
    answer = reader.hostcore("run", "job.json", *options)
    assert answer.code == 1
    assert "sqlite" in answer.err
    result = json.loads((reader.folder / "runs/strict/result.json").read_text())
    assert (result["status"], result["step"]) == ("failed", 4)


@pytest.fixture(scope="module")
def uploading(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Follows the uploaders' tutorial, and has run its job with the ten lines."""
    reader = Reader.of("write-an-uploader", tmp_path_factory.mktemp("uploader"))
    answer = reader.run("first")
    assert answer.code == 0, answer.err
    return reader


def assert_equal_copies(run: Path, copy: Path, *parts: str) -> None:
    for part in parts:
        found = run / part
        files = [path for path in found.rglob("*") if path.is_file()] if found.is_dir() else [found]
        assert files
        for path in files:
            assert (copy / path.relative_to(run)).read_bytes() == path.read_bytes()


def test_ten_lines_of_an_uploader_copy_the_run_as_the_tutorial_shows(uploading: Reader) -> None:
    copy = uploading.folder / "vault/runs/first/framework=halving-Halving"
    listed = re.search(r"\$ ls vault/runs/(\S+)\n(.*)\n", uploading.text)
    assert listed
    assert uploading.folder / "vault/runs" / listed[1] == copy
    assert sorted(path.name for path in copy.iterdir() if path.name != "attempts") == sorted(listed[2].split())
    assert_equal_copies(uploading.folder / "runs/first", copy, "checkpoints", "config/run.json", "result.json")


def test_the_whole_uploader_keeps_equal_content_once_and_brings_later_what_could_not_be_written(
    uploading: Reader,
) -> None:
    uploading.take_the_whole_of_it()
    vault = uploading.folder / "mounted"
    vault.mkdir()
    uploaders = [{"use": "vault", "path": str(vault)}]
    answer = uploading.run("second", uploaders=uploaders)
    assert answer.code == 0, answer.err
    copies = list(vault.glob("runs/second/**/frozen.bin"))
    assert len(copies) == 2
    assert len({path.stat().st_ino for path in copies}) == 1

    away = vault.rename(vault.with_name("away"))
    options = ["--set=grace_seconds=1", f"--set=uploaders={json.dumps(uploaders)}"]
    process = uploading.start("run", "job.json", "--set", "run_id=third", *options)
    result = uploading.folder / "runs/third/result.json"
    while process.poll() is None and not result.exists():
        time.sleep(0.05)
    process.terminate()  # it would wait for the vault for a minute
    _, printed = process.communicate()
    assert process.returncode == 0, printed
    assert json.loads(result.read_text())["status"] == "succeeded"
    away.rename(vault)
    assert "$ hostcore upload third\n" in uploading.text
    answer = uploading.hostcore("upload", "third")
    assert answer.code == 0, answer.err
    copy = vault / "runs/third/framework=halving-Halving"
    assert_equal_copies(uploading.folder / "runs/third", copy, "checkpoints", "config/run.json", "result.json")


@pytest.mark.parametrize("name", ["sqlite_reporter", "vault_uploader"])
def test_an_example_package_passes_its_own_tests_as_an_installed_distribution(name: str, tmp_path: Path) -> None:
    subprocess.run([*PIP, "--target", str(tmp_path / "site"), str(EXAMPLES / name)], check=True)
    shutil.copytree(EXAMPLES / name / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--import-mode=importlib", "-p", "no:cacheprovider", "tests"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout


@pytest.mark.parametrize(
    ("name", "tutorial"), [("sqlite_reporter", "write-a-reporter"), ("vault_uploader", "write-an-uploader")]
)
def test_an_example_package_needs_no_more_than_its_tutorial_says(name: str, tutorial: str) -> None:
    example = tomllib.loads((EXAMPLES / name / "pyproject.toml").read_text())["project"]
    files = dict(files_of((TUTORIALS / f"{tutorial}.md").read_text(encoding="utf-8")))
    typed = tomllib.loads(files["pyproject.toml"])["project"]

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[<>=]", requirement)[0] for requirement in requirements}

    assert names(example["dependencies"]) == names(typed["dependencies"])
    assert "hostcore-hookspecs>=1,<2" in example["dependencies"]
    assert [list(group) for group in example["entry-points"].values()] == [
        list(group) for group in typed["entry-points"].values()
    ]
