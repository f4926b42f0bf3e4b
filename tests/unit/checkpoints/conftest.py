"""Checkpoints of small real files, and a disk that fails when it is told to."""

import errno
import itertools
import os
from contextlib import suppress
from pathlib import Path

import attrs
import numpy as np
import pytest

from hostcore.checkpoints import durable
from hostcore.checkpoints.commit import Draft, commit


@attrs.frozen
class Folder:
    """A run's ``checkpoints`` folder."""

    path: Path

    def commit(self, step, content="x", *, attempt=1, final=False, **options):
        def fill(folder):
            (folder / "host.json").write_text(content)
            (folder / "trainer" / "weights").mkdir(parents=True)
            (folder / "trainer" / "weights" / "w.bin").write_bytes(content.encode() * 1000)

        options.setdefault("fill", fill)
        return commit(self.path, step=step, epoch=0, final=final, attempt=attempt, **options)

    def save(self, step, content="x", *, attempt=1):
        """The same as a worker does it: the states are sealed when they are written, the trainer's files later."""
        from hostcore.checkpoints.snapshot import write_state

        draft = Draft.begin(self.path, step=step, attempt=attempt)
        try:
            sealed = write_state(draft.folder, "state", {"weights": np.arange(300.0), "content": content})
            (draft.folder / "host.json").write_text(content)
            (draft.folder / "trainer").mkdir()
            (draft.folder / "trainer" / "w.bin").write_bytes(content.encode() * 1000)
        except BaseException:
            draft.discard()
            raise
        return draft.commit(epoch=0, final=False, sealed=sealed)

    def content(self, step):
        """What the checkpoint of a step holds; None without one."""
        file = self.path / f"step-{step:06d}" / "host.json"
        return file.read_text() if file.exists() else None

    def tree(self):
        """All paths below, sorted, with the content of the files."""
        return {
            str(path.relative_to(self.path)): path.read_bytes() if path.is_file() else None
            for path in sorted(self.path.rglob("*"))
        }

    def visible(self):
        """The same without what is hidden."""
        return {path: content for path, content in self.tree().items() if not path.startswith(".")}

    def names(self):
        return sorted(path.name for path in self.path.iterdir())

    def starting_points(self, *, again):
        """Numbered fresh folders with a checkpoint of step 100 and, if it is to be written again, one of step 200."""
        for number in itertools.count(1):
            fresh = Folder(self.path / str(number))
            fresh.commit(100, "older")
            if again:
                fresh.commit(200, "old")
            yield number, fresh


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "checkpoints")


#: The calls that the protocol consists of.
CALLS = ("open", "write", "fsync", "rename", "unlink", "mkdir", "rmdir")


class Disk:
    """Stands in for ``os`` in ``durable``: numbers the calls, and disturbs some of them.

    A disk that fails at a chosen call cannot be had otherwise.

    :param fate: Is told number (from 1), name and arguments of a call, and returns what becomes of it: ``None`` (it is
        done), ``"fails"``, or ``"fails after"`` (it is done, and raises all the same).
    """

    def __init__(self, fate, error=errno.EIO):
        self.calls = 0
        self._fate = fate
        self._error = error

    def __getattr__(self, name):
        call = getattr(os, name)
        return self._disturbed(name, call) if name in CALLS else call

    def _disturbed(self, name, call):
        def disturbed(*arguments):
            self.calls += 1
            fate = self._fate(self.calls, name, *arguments)
            result = None if fate == "fails" else call(*arguments)
            if fate:
                raise OSError(self._error, os.strerror(self._error))
            return result

        return disturbed


@pytest.fixture
def disk(monkeypatch):
    """``with disk(fate) as disk:`` runs what is inside on a :class:`Disk`."""

    class Inserted:
        def __init__(self, fate, error=errno.EIO):
            self._disk = Disk(fate, error)
            self._patch = monkeypatch.context()

        def __enter__(self):
            self._patch.__enter__().setattr(durable, "os", self._disk)
            return self._disk

        def __exit__(self, *exc_info):
            self._patch.__exit__(*exc_info)

    return Inserted


class Died(BaseException):
    """Nothing reaches the disk any more."""


@pytest.fixture
def dies_at_call(disk):
    """``dies_at_call(3, action)``: act until the third call; neither that one nor a later one is done.

    To the disk this is a process that was killed then. Whether it got that far.
    """

    def dies_at_call(number, action):
        def fate(count, *call):
            if count >= number:
                raise Died

        with disk(fate) as until_death, suppress(Died):
            action()
        return until_death.calls >= number

    return dies_at_call
