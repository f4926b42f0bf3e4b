"""The files of a run are its own: no plugin's setting may name one of them."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

NOTES = """
from pathlib import Path
import attrs
from hostcore_hookspecs import hookimpl

class Notes:
    '''A callback that writes into a file.'''
    @attrs.frozen(kw_only=True)
    class Settings:
        to: list[Path]

    def __init__(self, *, settings):
        self._settings = settings

    @hookimpl
    def on_train_end(self, run_state, ctx):
        for path in self._settings.to:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("noted")
"""


@pytest.fixture
def place(own_project: Callable[..., Any]) -> Any:
    project = own_project()
    (project.path / "notes.py").write_text(NOTES)
    return project


def refused(place: Any, *arguments: str | Path) -> dict[str, Any]:
    said = place.command(*arguments, "--json")
    assert said.code == 2, said.err
    (error,) = said.json["errors"]
    return error


@pytest.mark.parametrize(
    "path",
    [
        *(f"runs/a/{name}" for name in ("logs/events.jsonl", "result.json", "lease.json", "mine.jsonl", "jsonl-2/x")),
        *("runs/b/../a/result.json", "link/a/attempts/1.json", "./runs/a/jsonl/../result.json"),
    ],
)
def test_a_reporter_may_write_into_none(run_here: Callable, here: Path, path: str) -> None:
    Path("link").unlink(missing_ok=True)
    Path("link").symlink_to("runs")
    said = run_here("a", "--json", max_steps=3, reporters=[{"use": "jsonl", "path": path}])
    (error,) = said.json["errors"]
    assert (said.code, error["code"], error["pointer"]) == (2, "plugin.run_files", "/reporters/0/path")
    assert "may not use the run directory" in error["message"]
    assert error["hint"].endswith(f"or below {os.path.realpath(here)}/a/jsonl")
    assert not here.exists(), "nothing was begun"


def test_nor_may_an_uploader_a_callback_or_the_command_line(place: Any) -> None:
    uploaders = [{"use": "fsspec", "uri": f"file://{place.path}/runs/a/checkpoints"}]
    callbacks = [{"use": "notes:Notes", "to": ["elsewhere/note", "runs/a/result.json"]}]
    of_both = {"/uploaders/0/uri": {"uploaders": uploaders}, "/callbacks/0/to/1": {"callbacks": callbacks}}
    of_both["/reporters/0/path"] = {"reporters": [{"use": "jsonl", "path": "runs/a/result.json"}]}
    for (pointer, keys), command in itertools.product(of_both.items(), ("run", "validate")):
        error = refused(place, command, place.job(max_steps=3, **keys))
        assert (error["code"], error["pointer"]) == ("plugin.run_files", pointer)
    error = refused(place, "run", place.job(max_steps=3), "--event-log", "runs/a/result.json")
    assert error["code"] == "plugin.run_files"


def test_nor_may_what_is_told_of_a_run_that_is_over(place: Any) -> None:
    assert place.command("run", place.job(max_steps=3)).code == 0
    before = place.run().tree()
    options = ("--reporter", "jsonl", "--set", "path=runs/a/logs/events.jsonl")
    assert refused(place, "replay", "a", *options)["code"] == "plugin.run_files"
    assert place.run().tree() == before


def test_the_folder_with_its_name_is_a_plugins_own_and_so_is_all_else(place: Any) -> None:
    callbacks = [{"use": "notes:Notes", "to": ["runs/a/Notes/deep/note", "runs/a-2/note", "elsewhere/note"]}]
    reporters = [{"use": "jsonl", "path": "runs/a/jsonl/events.jsonl", "config_path": "runs/a/config/run.json"}]
    said = place.command("run", place.job(max_steps=3, callbacks=callbacks, reporters=reporters))
    assert said.code == 0, said.err
    for path in ("runs/a/Notes/deep/note", "runs/a-2/note", "elsewhere/note", "runs/a/jsonl/events.jsonl"):
        assert (place.path / path).stat().st_size
    assert place.command("verify", "a").code == 0
