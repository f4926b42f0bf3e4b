"""What there is to upload in a run directory, whether or not anybody has told of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from hostcore.checkpoints.find import committed
from hostcore.checkpoints.names import step_of_folder
from hostcore.runs.directory import RunDirectory
from hostcore.supervisor.uploads.sources import Place, Vanished, committed_unit, document_unit, sample_unit
from hostcore.supervisor.uploads.unit import Turn, Unit

CHECKPOINTS: Final = "checkpoints"
SAMPLES: Final = "samples"


@attrs.frozen(kw_only=True)
class Inventory:
    """Where the things of a run lie.

    Its lease, its requests, its cursors and what belongs to the uploads themselves are not for anybody else.
    """

    directory: RunDirectory
    checkpoints: Place
    samples: Place
    #: What was there and could not be read, by its name.
    unreadable: dict[str, OSError] = attrs.field(factory=dict)

    @classmethod
    def of(
        cls, directory: RunDirectory, *, checkpoints: Path | None = None, samples: Path | None = None
    ) -> "Inventory":
        """Of a run directory, and where else its checkpoints and samples may lie."""
        return cls(
            directory=directory,
            checkpoints=Place(folder=checkpoints or directory.checkpoints, name=CHECKPOINTS),
            samples=Place(folder=samples or directory.samples, name=SAMPLES),
        )

    def committed(self) -> Iterator[Unit]:
        """All committed checkpoints, oldest first. Those that are removed meanwhile are passed over."""
        found = []
        for record in committed(self.checkpoints.folder):
            try:
                found.append(committed_unit(self.checkpoints, record.step))
            except Vanished:
                continue
        yield from sorted(found, key=lambda unit: unit.saved_ns)

    def generated(self) -> Iterator[Unit]:
        """All generated samples, in the order of steps, hashed. Those that are removed meanwhile are passed over."""
        steps = sorted(self.samples.folder.iterdir()) if self.samples.folder.is_dir() else []
        for step in steps:
            if step_of_folder(step.name) is None or not step.is_dir():
                continue
            for sample in sorted(step.iterdir()):
                if sample.is_dir() and not sample.name.startswith("."):
                    try:
                        yield sample_unit(self.samples, f"{step.name}/{sample.name}").hashed()
                    except (Vanished, OSError):
                        continue

    def beginning(self, attempt: int) -> Iterator[Unit]:
        """That an attempt has begun, and with what job."""
        yield from self._documents(self.directory.attempts, f"{attempt}.json", kind="config", turn=Turn.FIRST)
        yield from self._documents(
            self.directory.record.parent, self.directory.record.name, kind="config", turn=Turn.FIRST
        )

    def growing_logs(self) -> Iterator[Unit]:
        """What happened so far: the event log, and what the ranks printed."""
        yield from self.event_log()
        yield from self._documents(self.directory.logs, "rank-*.log", kind="log")

    def event_log(self) -> Iterator[Unit]:
        """What happened so far."""
        yield from self._documents(self.directory.logs, self.directory.events.name, kind="log")

    def event_log_bytes(self) -> int:
        """How much it holds now; 0 before it is there."""
        try:
            return self.directory.events.stat().st_size
        except FileNotFoundError:
            return 0

    def log_bytes(self) -> int:
        """How much they hold now, all together."""
        return sum(path.stat().st_size for path in self._paths(self.directory.logs, "*"))

    def plots(self) -> Iterator[Unit]:
        """The pictures."""
        yield from self._documents(self.directory.loss_plot.parent, "*", kind="plot")

    def ending(self) -> Iterator[Unit]:
        """All documents of a run that has ended; how it has ended comes last."""
        yield from self._documents(self.directory.attempts, "*.json", kind="config")
        yield from self._documents(self.directory.record.parent, "*.json", kind="config")
        yield from self.plots()
        yield from self._documents(self.directory.logs, "*", kind="log")
        yield from self._documents(self.directory.path, self.directory.result.name, kind="result", turn=Turn.LAST)

    def _documents(self, folder: Path, pattern: str, *, kind: str, turn: Turn = Turn.USUAL) -> Iterator[Unit]:
        for path in self._paths(folder, pattern):
            relative = path.relative_to(self.directory.path).as_posix()
            try:
                yield document_unit(path, relative, kind=kind, turn=turn, is_log=kind == "log")
            except FileNotFoundError:
                continue
            except OSError as error:
                self.unreadable[relative] = error

    def _paths(self, folder: Path, pattern: str) -> list[Path]:
        return [path for path in sorted(folder.glob(pattern)) if not path.name.startswith(".") and path.is_file()]
