"""What a run does to its checkpoints, recorded; and what must be found after a power cut."""

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import attrs
import numpy as np
from disk_log import Call, Disturbance, Entry, Mark, RecordingOs, recording, undisturbed
from disk_replay import Cut, Disk, Promises, Tree, power_cuts, read_tree, write_tree

from hostcore.checkpoints.commit import Draft
from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.find import committed, newest, verify
from hostcore.checkpoints.leftovers import remove_uncommitted
from hostcore.checkpoints.prune import prune
from hostcore.checkpoints.snapshot import StateBuffer
from hostcore.checkpoints.state import read_state

#: Of somebody else: no path and no byte of it may change.
FOREIGN: Tree = {
    "notes.txt": b"of the run's owner",
    "checkpoints": None,
    "checkpoints/.mine": b"hidden, and not ours",
    "checkpoints/.step-000300.attempt-9.tmp": None,
    "checkpoints/step-000050": None,
    "checkpoints/step-000050/thesis.tex": b"a folder without a record",
}
#: A folder of somebody's where a checkpoint is to be.
SQUATTER: Tree = {"checkpoints/step-000200": None, "checkpoints/step-000200/thesis.tex": b"precious"}
_ASIDE = ("step-000200", "step-000200.set-aside-1")


class Refused(Exception):
    """Another attempt has taken over."""


def _refuse() -> None:
    raise Refused


@attrs.frozen
class Run:
    """A run's folder while something is recorded in it."""

    root: Path
    os: RecordingOs

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    def save(self, step: int, content: str, *, attempt: int = 1, final: bool = False, refused: bool = False) -> None:
        """Save a checkpoint as a worker does it: states, files of the trainer's own, commit."""
        self.os.mark("may be", step, content)
        draft = Draft.begin(self.checkpoints, step=step, attempt=attempt)
        try:
            state = {"content": content, "weights": np.full(300, float(step))}
            sealed = [*StateBuffer().snapshot(state).write(draft.folder, "state")]
            sealed += StateBuffer().snapshot({"step": step}).write(draft.folder, "host")
            self.os.mkdir(draft.folder / "trainer")
            self.os.put(draft.folder / "trainer" / "model.bin", content.encode() * 100)
        except BaseException:
            draft.discard()
            raise
        options = {"may_commit": _refuse} if refused else {}
        draft.commit(epoch=0, final=final, sealed=sealed, **options)
        self.os.mark("is", step, content)

    def prune(self, keep: int) -> None:
        """Prune, as a worker does after a commit."""
        for record in committed(self.checkpoints)[:-keep]:
            self.os.mark("may go", record.step)
        prune(self.checkpoints, keep=keep, protect=())

    def begin(self, attempt: int) -> None:
        """What an attempt does before it looks for checkpoints."""
        remove_uncommitted(self.checkpoints, attempt)

    def go_on(self, attempt: int) -> None:
        """An attempt that comes after a kill."""
        self.begin(attempt)
        self.save(300, "later", attempt=attempt)


@attrs.frozen(kw_only=True)
class Recording:
    """What was done, call by call."""

    before: Tree
    #: Those of what was there before.
    promises: Promises
    log: Sequence[Entry]
    #: What is somebody else's.
    foreign: Tree
    #: The attempt that finds what is left.
    next_attempt: int
    #: How many entries of the log come before the first power cut.
    since: int = 0
    #: What ended it; None: it came to its end.
    error: Exception | None = None

    def cuts(self, rng: random.Random) -> Iterator[Cut]:
        """Every disk that a power cut may leave."""
        return power_cuts(self.before, self.promises, self.log, rng, since=self.since)

    def without(self, number: int) -> "Recording":
        """The same without one entry of the log, and no power cut before it."""
        return attrs.evolve(self, log=[*self.log[:number], *self.log[number + 1 :]], since=number)

    def killed(self, root: Path, disturbance: Disturbance = undisturbed) -> Iterator["Recording"]:
        """The same, with the process killed after any call, and an attempt after it that goes on.

        :param disturbance: Of the calls of that attempt.
        """
        disk = Disk(self.before)
        for number, entry in enumerate(self.log, start=1):
            if isinstance(entry, Mark):
                continue
            disk.do(entry)
            write_tree(root, disk.as_seen())
            recorded, error = record(root, lambda run: run.go_on(self.next_attempt), disturbance)
            log = [*self.log[:number], *recorded]
            yield attrs.evolve(self, log=log, since=number, next_attempt=self.next_attempt + 1, error=error)


def record(
    root: Path, act: Callable[[Run], object], disturbance: Disturbance = undisturbed
) -> tuple[Sequence[Entry], Exception | None]:
    """Record what is done in a folder, and remove it.

    :return: What was done, and what ended it before its end, if anything did.
    """
    error: Exception | None = None
    with recording(root, disturbance) as recorder:
        try:
            act(Run(root, recorder))
        except (CheckpointError, OSError, Refused) as raised:
            error = raised
    shutil.rmtree(root)
    return recorder.log, error


def _begin(run: Run) -> None:
    run.os.mkdir(run.checkpoints)


@attrs.frozen
class Scenario:
    """What is recorded, and what comes before it."""

    act: Callable[[Run], object]
    prepare: Callable[[Run], object] = _begin
    foreign: Tree = FOREIGN
    next_attempt: int = 2

    def record(self, root: Path, disturbance: Disturbance = undisturbed) -> Recording:
        """Prepare a folder, record what is done in it then, and remove it."""
        root.mkdir()
        with recording(root) as recorder:
            self.prepare(Run(root, recorder))
        promises = Promises()
        for entry in recorder.log:
            promises = promises.after(entry) if isinstance(entry, Mark) else promises
        _add(root, self.foreign)
        before = read_tree(root)
        log, error = record(root, self.act, disturbance)
        return Recording(
            before=before, promises=promises, log=log, foreign=self.foreign, next_attempt=self.next_attempt, error=error
        )


def _add(root: Path, tree: Tree) -> None:
    for path, content in tree.items():
        if content is not None:
            (root / path).write_bytes(content)
        else:
            (root / path).mkdir(exist_ok=True)


def _one(run: Run) -> None:
    run.save(100, "older")


def _two(run: Run) -> None:
    run.save(100, "older")
    run.save(200, "old")


def _three(run: Run) -> None:
    _two(run)
    run.save(300, "newest")


def _two_attempts(run: Run) -> None:
    run.save(100, "a")
    run.save(200, "b")
    run.save(200, "final b", final=True)
    run.prune(1)
    run.begin(2)
    run.save(300, "c", attempt=2)
    run.prune(1)


AGAIN = "a step written again"
SCENARIOS = {
    "the first checkpoint": Scenario(lambda run: run.save(100, "new"), prepare=lambda run: None, foreign={}),
    "one more checkpoint": Scenario(lambda run: run.save(200, "new"), prepare=_one),
    AGAIN: Scenario(lambda run: run.save(200, "final", final=True), prepare=_two),
    "a step written again by the next attempt": Scenario(
        lambda run: run.save(200, "new", attempt=2), prepare=_two, next_attempt=3
    ),
    "one in the place of somebody's folder": Scenario(
        lambda run: run.save(200, "new"), prepare=_one, foreign={**FOREIGN, **SQUATTER}
    ),
    "a refused commit": Scenario(lambda run: run.save(200, "new", refused=True), prepare=_one),
    "a refused commit of a step written again": Scenario(lambda run: run.save(200, "new", refused=True), prepare=_two),
    "a prune": Scenario(lambda run: run.prune(1), prepare=_three),
    "two attempts": Scenario(_two_attempts, next_attempt=3),
}


class Violation(AssertionError):
    """A promise was broken."""


def require(condition: bool, message: str) -> None:
    if not condition:
        raise Violation(message)


def check(root: Path, cut: Cut, *, next_attempt: int, foreign: Tree) -> None:
    """Start the next attempt on what a power cut has left, and see what it finds.

    :raises Violation: When a promise was broken.
    """
    write_tree(root, cut.tree)
    directory = root / "checkpoints"
    remove_uncommitted(directory, next_attempt)
    search, records = newest(directory), committed(directory)
    for record in records:
        try:
            verify(directory, record)
            content = read_state(directory / record.folder_name, "state")["content"]
        except CheckpointError as error:
            raise Violation(f"step {record.step} is there, but {error.message}") from error
        require(content in cut.promises.contents.get(record.step, ()), f"step {record.step} holds {content!r}")
    steps = {record.step for record in records}
    require(cut.promises.kept <= steps, f"of the steps {sorted(cut.promises.kept)}, only {sorted(steps)} are there")
    found = search.found.record.step if search.found else 0
    require(found == max(steps, default=0), f"step {found} was found, not {max(steps, default=0)}")
    skipped = {f"checkpoints/{skip.path.name}" for skip in search.skipped}
    require(skipped <= foreign.keys(), f"passed over: {[skip.reason for skip in search.skipped]}")
    ours = {f"checkpoints/{record.folder_name}{ending}" for record in records for ending in ("", ".json")}
    _check_names(read_tree(root), ours, foreign)


def _check_names(after: Tree, ours: set[str], foreign: Tree) -> None:
    """See that somebody else's is all there, and nothing besides that and the checkpoints."""
    for path, content in foreign.items():
        places = {path, path.replace(*_ASIDE)}
        require(any(place in after and after[place] == content for place in places), f"{path} was touched")
    there = {path for path in after if path.count("/") == 1}
    known = ours | foreign.keys() | {path.replace(*_ASIDE) for path in foreign}
    require(there <= known, f"left behind: {sorted(there - known)}")


class Checker:
    """Checks many disks, each that is different once.

    :param folder: For one disk after the other.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._sound: set[tuple[int, int]] = set()

    @property
    def checked(self) -> int:
        """How many disks were sound."""
        return len(self._sound)

    def first_violation(self, recorded: Recording, rng: random.Random) -> str | None:
        """What goes wrong first, in words; None if nothing does."""
        for cut in recorded.cuts(rng):
            key = (cut.fingerprint, recorded.next_attempt)
            if key in self._sound:
                continue
            root = self.folder / "disk"
            try:
                check(root, cut, next_attempt=recorded.next_attempt, foreign=recorded.foreign)
            except Violation as violation:
                return f"{violation} (the power went after {cut.after})"
            finally:
                shutil.rmtree(root)
            self._sound.add(key)
        return None


def failing(kind: str, number: int, how: str) -> Disturbance:
    """Disturb one call: the so-and-so-many-th of a kind."""
    return lambda kind_, number_, path: how if (kind_, number_) == (kind, number) else None


def recorded_with_errors(scenario: Scenario, root: Path, kinds: Sequence[str]) -> Iterator[Recording]:
    """A scenario, with every call of these kinds failing once."""
    for kind in kinds:
        number = 1
        while (recorded := scenario.record(root, failing(kind, number, "fails"))).error is not None:
            yield recorded
            with suppress(OSError):
                yield scenario.record(root, failing(kind, number, "fails after"))
            number += 1


def calls(recorded: Recording, kind: str) -> list[tuple[int, Call]]:
    """The calls of a kind since the first power cut, each with its place in the log."""
    return [
        (place, entry)
        for place, entry in enumerate(recorded.log)
        if place >= recorded.since and isinstance(entry, Call) and entry.kind == kind
    ]
