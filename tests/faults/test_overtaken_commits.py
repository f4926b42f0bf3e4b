"""A process that is stopped in the middle of a commit, and goes on when another attempt has long taken over.

It may have looked for a newer attempt right before it was stopped; then it still does the rename that it was about to
do. That can cost the other attempt the checkpoint of that step, which is passed over then, and never its newest one.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from hostcore.checkpoints import durable
from hostcore.checkpoints.commit import commit
from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.find import committed, newest, verify
from hostcore.checkpoints.leftovers import remove_uncommitted

CALLS = ("open", "write", "fsync", "rename", "unlink", "mkdir", "rmdir")


class StoppedAt:
    """Stands in for ``os`` in ``durable``: right before one call, something else happens."""

    def __init__(self, number: int, meanwhile: Callable[[], None]) -> None:
        self.calls = 0
        self._number = number
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        if name not in CALLS:
            return getattr(os, name)

        def call(*arguments: Any) -> Any:
            self.calls += 1
            if self.calls == self._number:
                with patch.object(durable, "os", os):
                    self._meanwhile()
            return getattr(os, name)(*arguments)

        return call


def save(directory: Path, step: int, content: str, *, attempt: int, **options: Any) -> None:
    def fill(folder: Path) -> None:
        (folder / "host.json").write_text(content)
        (folder / "trainer").mkdir()
        (folder / "trainer" / "model.bin").write_text(content * 10)

    commit(directory, step=step, epoch=0, final=False, attempt=attempt, fill=fill, **options)


def contents(directory: Path) -> dict[int, str]:
    """What the checkpoints hold that are there and verify."""
    found = {}
    for record in committed(directory):
        with suppress(CheckpointError):
            verify(directory, record)
            found[record.step] = (directory / record.folder_name / "host.json").read_text()
    return found


class Overtaken(Exception):
    """A newer attempt runs."""


@pytest.mark.parametrize("before", [[100], [100, 200]], ids=["a new step", "a step written again"])
def test_the_newest_checkpoint_of_the_newer_attempt_stays_whatever_the_older_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: list[int]
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    number, lost = 0, []
    while True:
        number += 1
        directory = tmp_path / str(number)
        for step in before:
            save(directory, step, "before", attempt=1)
        promised: dict[int, str] = {}

        def take_over(directory: Path = directory, promised: dict[int, str] = promised) -> None:
            """What the next attempt does, to its end: it goes on from what it finds."""
            remove_uncommitted(directory, 3)
            search = newest(directory)
            assert search.found is not None
            promised |= contents(directory)
            for step in (200, 300):
                if step > search.found.record.step:
                    save(directory, step, "newer", attempt=3)
                    promised[step] = "newer"

        def may_commit(promised: dict[int, str] = promised) -> None:
            if promised:
                raise Overtaken

        stopped = StoppedAt(number, take_over)
        with patch.object(durable, "os", stopped), suppress(CheckpointError, Overtaken):
            save(directory, 200, "older", attempt=2, may_commit=may_commit)
        if stopped.calls < number:
            break
        after = contents(directory)
        wrong = {step for step, content in after.items() if promised and content not in ("older", promised.get(step))}
        if promised and (after.get(300) != "newer" or wrong):
            lost.append(f"stopped before call {number}: {promised} became {after}")
    assert number > 15
    assert lost == []
