"""Checkpoints of small real files."""

from pathlib import Path

import attrs
import pytest

from hostcore.checkpoints.commit import commit


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

    def names(self):
        return sorted(path.name for path in self.path.iterdir())


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "checkpoints")
