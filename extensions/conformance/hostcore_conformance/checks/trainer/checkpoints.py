"""The files that a trainer puts into checkpoints."""

import json
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any, Final

from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.find import committed, verify
from hostcore.checkpoints.names import record_name
from hostcore_conformance.check import check, has_hook
from hostcore_conformance.checks.trainer.attempts import (
    STEPS,
    attempt,
    copied,
    exact_job,
    first_departure,
    require_success,
    uninterrupted,
)
from hostcore_conformance.checks.trainer.stage import Stage, on_stage
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.subject import Subject

_MIDDLE: Final = 4


@check("trainer.checkpoint_info_is_json", capability=has_hook("save_checkpoint"))
def checkpoint_info_is_json(subject: Subject) -> None:
    """save_checkpoint returns plain JSON, or None.

    What it returns is kept with the checkpoint, for people and for programs that know nothing of Python: a dictionary
    with string keys, of strings, finite numbers, booleans, None, lists and dictionaries.

    A tensor or a Path is mostly meant: return float(loss) and path.name.
    """
    returned: list[Any] = []

    def scene(stage: Stage) -> None:
        list(stage.steps(1))
        folder = subject.folder()
        returned.append(stage.call("save_checkpoint", stage.state, 1, str(folder), False, stage.ctx))

    on_stage(subject, scene)
    (info,) = returned
    if info is None:
        return
    fix = "Return a dictionary of strings, finite numbers, booleans, None, lists and dictionaries, or None."
    if not isinstance(info, Mapping):
        raise ConformanceError(expected="a mapping or None from save_checkpoint", got=type(info).__name__, fix=fix)
    for key, value in info.items():
        try:
            plain = type(key) is str and json.loads(json.dumps(value, allow_nan=False)) == value
        except (TypeError, ValueError):
            plain = False
        if not plain:
            raise ConformanceError(
                expected="plain JSON from save_checkpoint",
                got=f"{value!r} ({type(value).__name__}) at {key!r}",
                fix=fix,
            )


@check("trainer.checkpoint_stays_in_its_folder", requires=("trainer.trains",), capability=has_hook("save_checkpoint"))
def checkpoint_stays_in_its_folder(subject: Subject) -> None:
    """save_checkpoint writes into output_dir, and nowhere else.

    The kit calls it for two steps, each with a folder of its own, and looks at all other files in the run directory
    and in the working directory (an empty one, for the time of the call).

    output_dir becomes a part of the checkpoint when all is written, or not at all: its files are listed with their
    sizes and checksums, mirrored with it, and pruned with it. A file beside it belongs to no checkpoint: it may be
    half-written, it is overwritten by the next step, and it stays behind when the checkpoint is moved.
    """
    written: list[str] = []

    def scene(stage: Stage) -> None:
        run_dir, elsewhere = Path(stage.ctx.run_dir), subject.folder()
        for step in (1, 2):
            list(stage.steps(1))
            own = run_dir / "checkpoints" / f".step-{step}" / "trainer"
            own.mkdir(parents=True)
            with chdir(elsewhere):
                before = _files(run_dir, elsewhere)
                stage.call("save_checkpoint", stage.state, step, str(own), step == 2, stage.ctx)
                after = _files(run_dir, elsewhere)
            changed = (path for path in after | before if after.get(path) != before.get(path))
            written.extend(
                str(path.relative_to(elsewhere if path.is_relative_to(elsewhere) else run_dir))
                for path in changed
                if not path.is_relative_to(own)
            )

    on_stage(subject, scene)
    if written:
        raise ConformanceError(
            expected="save_checkpoint to write below output_dir alone",
            got=f"{', '.join(dict.fromkeys(written))} written beside it",
            fix="Build every path from output_dir: Path(output_dir) / name. It is another folder at each checkpoint.",
        )


def _files(*folders: Path) -> dict[Path, tuple[int, int]]:
    """All files below some folders, with what changes when they do."""
    found = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return {path: (status.st_mtime_ns, status.st_size) for path in found for status in [path.stat()]}


@check("trainer.checkpoint_intact", requires=("trainer.trains",))
def checkpoint_intact(subject: Subject) -> None:
    """A checkpoint stays as it was committed.

    The kit runs seven steps with a checkpoint at each, keeps them all, and compares every file with the size and the
    checksum that it was committed with.

    A file that is still written after save_checkpoint has returned (by a thread, a process or an open handle), or that
    is a hard link to one that the next step changes, makes a checkpoint that no resume accepts. Finish and close all
    files before returning; copy in place of linking.
    """
    trace = uninterrupted(subject)
    for record in committed(trace.checkpoints):
        try:
            verify(trace.checkpoints, record)
        except CheckpointError as error:
            raise ConformanceError(
                expected=f"the checkpoint of step {record.step} to be what was committed, at the end of the run",
                got=error.message,
                fix="Finish, flush and close every file before save_checkpoint returns, and link to nothing.",
            ) from error


@check("trainer.checkpoint_moves", requires=("trainer.resume_exact",))
def checkpoint_moves(subject: Subject) -> None:
    """A checkpoint can be moved.

    The kit copies the checkpoint of step 4 into another folder, moves the run that wrote it away, and begins a new run
    from the copy (resume_from_checkpoint with a path). It must go on with the metrics of the run that wrote it.

    What breaks it is a path that was stored: in state_dict, or in what save_checkpoint writes. load_checkpoint gets
    the folder as checkpoint_dir; keep names relative to it. What belongs to the run and not to the checkpoint, a
    vocabulary in ctx.run_dir for instance, is not there in a new run: put it into the state.
    """
    origin = uninterrupted(subject)
    (record,) = (one for one in committed(origin.checkpoints) if one.step == _MIDDLE)
    place = subject.folder()
    shutil.copytree(origin.checkpoints / record.folder_name, place / record.folder_name)
    named = Path(shutil.copy2(origin.checkpoints / record_name(_MIDDLE), place))
    away = origin.directory.path.with_name("moved-away")
    origin.directory.path.rename(away)
    try:
        job = exact_job(subject, run_id="moved", resume_from_checkpoint=str(named))
        attempted = attempt(subject, job, runs=subject.folder())
    finally:
        away.rename(origin.directory.path)
    fix = "Store no absolute paths, and nothing that is in the run directory alone; read from checkpoint_dir."
    require_success(attempted, expected="a new run to begin from a checkpoint that was copied elsewhere", fix=fix)
    departure = first_departure(subject, attempted.trace, after=_MIDDLE)
    if departure is not None:
        raise ConformanceError(
            expected=f"{departure.metric} of step {departure.step} to be {departure.expected!r} again in a new run that"
            f" begins from a copy of the checkpoint of step {_MIDDLE}",
            got=f"{departure.got!r}",
            fix=fix,
        )


@check("trainer.final_checkpoint_resumes", requires=("trainer.resume_exact",))
def final_checkpoint_resumes(subject: Subject) -> None:
    """A finished run can be extended.

    The kit extends a run that has ended after seven steps by two more (a larger max_steps), so that it is resumed from
    its final checkpoint.

    What breaks it is a trainer that takes `final` for the end of training, and then stores less than it needs to
    continue (the weights without the optimizer, for instance), or another format than load_checkpoint reads. And a
    schedule of the learning rate that fails behind its planned end, as OneCycleLR does: what load_state_dict brings
    back includes the total_steps of the attempt before. Build the schedule for ctx.run_state.total_steps of this
    attempt, and hold the last rate behind the end.
    """
    runs = copied(subject, uninterrupted(subject))
    attempted = attempt(subject, exact_job(subject, max_steps=STEPS + 2), runs=runs)
    require_success(
        attempted,
        expected=f"the run to go on from its final checkpoint at step {STEPS} to step {STEPS + 2}",
        fix="Write the same with `final` as without, and more if you like; load what there is. If the error comes from"
        " a schedule, let it go on behind its planned end: OneCycleLR raises after total_steps.",
    )


_found_classes: list[str] = []
_watching: set[int] = set()


@check(
    "trainer.checkpoint_without_pickle",
    level="should",
    requires=("trainer.state_round_trips",),
    capability=has_hook("load_checkpoint"),
)
def checkpoint_without_pickle(subject: Subject) -> None:
    """Loading a checkpoint runs no code from it.

    The kit calls save_checkpoint, and load_checkpoint on what that has written, and notes whether Python's pickle
    looks up a class or a function meanwhile.

    The author of a pickle decides what the process that reads it does; checkpoints are passed on and downloaded.
    Use safetensors, torch.load(..., weights_only=True), numpy.load without allow_pickle, or JSON.
    """

    def scene(stage: Stage) -> None:
        list(stage.steps(1))
        folder = subject.folder()
        stage.call("save_checkpoint", stage.state, 1, str(folder), False, stage.ctx)
        payload = stage.call("state_dict", stage.state)
        with _classes_noted():
            stage.call("load_checkpoint", stage.state, str(folder), payload, stage.ctx)

    if subject.has("save_checkpoint"):
        on_stage(subject, scene)
        if _found_classes:
            raise ConformanceError(
                expected="load_checkpoint to read without pickle",
                got=f"a pickle that names {', '.join(dict.fromkeys(_found_classes))}",
                fix="Use torch.load(..., weights_only=True), safetensors or JSON.",
            )


@contextmanager
def _classes_noted() -> Iterator[None]:
    """Note in ``_found_classes`` what pickle looks up in this thread."""
    if not _hooked:
        _hooked.append(True)
        sys.addaudithook(_note_class)  # there is no way to remove one
    _found_classes.clear()
    _watching.add(threading.get_ident())
    try:
        yield
    finally:
        _watching.clear()


_hooked: list[bool] = []


def _note_class(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "pickle.find_class" and threading.get_ident() in _watching:
        _found_classes.append(".".join(map(str, arguments)))
