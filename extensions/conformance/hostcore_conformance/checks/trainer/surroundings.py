"""Checks of a trainer's effects on the process and the machine around it."""

import contextlib
import signal
from collections import Counter
from pathlib import Path
from typing import Any, Final

from hostcore_conformance.check import check
from hostcore_conformance.checks.trainer.running import baseline, run_alone
from hostcore_conformance.checks.trainer.stage import Stage, on_stage
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.process.resources import held
from hostcore_conformance.process.settings import process_kept
from hostcore_conformance.subject import Subject

_GENERATORS: Final = {"python": "random", "numpy": "numpy.random", "torch": "torch"}
_SIGNALS: Final = "Leave signals to the host: ctx.is_canceled() is true in a long step if the run is to stop."
_REMEDIES: Final = {"the handler of SIGINT": _SIGNALS, "the handler of SIGTERM": _SIGNALS}
#: Folders that Python and its tools make, which are not output of the trainer.
_NO_OUTPUT: Final = {"__pycache__"}
_ONE: Final = {"threads": "thread", "child processes": "child process", "files": "open file"}


@check("trainer.keeps_random_generators", requires=("trainer.trains",))
def keeps_random_generators(subject: Subject) -> None:
    """The host alone seeds the global random generators.

    The trainer is set up under two seeds of the job, and a step is made twice, under two random states. If the
    generators of Python, NumPy or torch are in one and the same state afterwards, the trainer has seeded them itself.

    torch.manual_seed(42) in configure makes every run begin with the same weights, whatever its seed, so that five
    runs with five seeds prove nothing. In train_step it makes dropout drop the same values at every step, and undoes
    what a resumed run has restored. The host seeds everything with the job's `seed` before setup. For a generator of
    one's own, ctx.job.seed is there; for a while under another seed, torch.random.fork_rng().
    """

    def scene(stage: Stage) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        from hostcore.worker import randomness
        from hostcore_toolkit import seed_everything

        after_setup = randomness.capture()
        after_steps = []
        for seed in (11, 12):
            seed_everything(seed)
            next(stage.steps(1), None)
            after_steps.append(randomness.capture())
        return after_setup, after_steps

    own = subject.job.get("seed", 0)
    (setup, (one_step, other_step)), (other_setup, _) = (on_stage(subject, scene, seed=seed) for seed in (own, own + 1))
    for where, one, other in (
        ("setup or configure", setup, other_setup),
        ("prepare_batch or train_step", one_step, other_step),
    ):
        seeded = [label for name, label in _GENERATORS.items() if _same(one[name], other[name])]
        if seeded:
            raise ConformanceError(
                expected="other random states after another seed",
                got=f"the same state of {' and '.join(seeded)} after {where}, whatever it was before: it is seeded"
                " there",
                fix="Remove manual_seed(), random.seed() and np.random.seed(): the host has seeded all with the job's"
                " seed.",
            )


def _same(one: Any, other: Any) -> bool:
    if hasattr(one, "equal"):
        return bool(one.equal(other))
    return all(
        (a == b).all() if hasattr(a, "all") and hasattr(a, "shape") else a == b for a, b in zip(one, other, strict=True)
    )


@check("trainer.leaves_process_alone", requires=("trainer.trains",))
def leaves_process_alone(subject: Subject) -> None:
    """The settings of the process stay as they were.

    The example is trained for two steps, and the kit compares torch's default dtype and device, whether gradients are
    on, anomaly detection, the handlers of SIGINT and SIGTERM, and the working directory.

    The process is the host's: callbacks, the other checks and, in a notebook, the user's own code go on with what is
    left behind. A signal handler of the trainer's own takes `hostcore cancel` and every preemption away from the host.
    Use the settings as context managers, or pass them along: torch.zeros(..., dtype=..., device=ctx.device).
    """

    def scene(stage: Stage) -> dict[str, Any]:
        for _ in stage.steps(2):
            pass
        return _settings()

    with process_kept(), contextlib.chdir(subject.folder()):
        _begin_anew()
        before = _settings()
        after = on_stage(subject, scene)
    for name, value in before.items():
        if after[name] != value:
            raise ConformanceError(
                expected=f"{name} as it was, {value}",
                got=f"{after[name]}",
                fix=_REMEDIES.get(
                    name, "Set it for a block with a context manager, or pass it to the call that needs it."
                ),
            )


def _begin_anew() -> None:
    """Have torch as it is when it has been imported: a run before this one has left what is to be found."""
    import torch

    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_grad_enabled(True)
    torch.autograd.set_detect_anomaly(False)


def _settings() -> dict[str, Any]:
    import torch

    return {
        "torch's default dtype": torch.get_default_dtype(),
        "torch's default device": torch.get_default_device(),
        "the gradient mode": "on" if torch.is_grad_enabled() else "off",
        "anomaly detection": "on" if torch.is_anomaly_enabled() else "off",
        "the handler of SIGINT": repr(signal.getsignal(signal.SIGINT)),
        "the handler of SIGTERM": repr(signal.getsignal(signal.SIGTERM)),
        "the working directory": str(Path.cwd()),
    }


@check("trainer.runs_anywhere", requires=("trainer.trains",))
def runs_anywhere(subject: Subject) -> None:
    """It trains in whatever working directory, and leaves nothing there.

    The example is set up, trained for two steps and torn down in a new empty folder, which must stay empty.

    A run's working directory is where its user stood; on a cluster it is often read-only. Files that belong to the
    package are found with importlib.resources, those of the user come through the job as absolute paths, and what a
    trainer writes goes into output_dir of save_checkpoint and generate_sample.
    """
    folder = subject.folder()

    def found() -> set[str]:
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.name not in _NO_OUTPUT}

    def scene(stage: Stage) -> set[str]:
        for _ in stage.steps(2):
            pass
        return found()

    try:
        with contextlib.chdir(folder):
            left = on_stage(subject, scene) | found()
    except OSError as error:
        raise ConformanceError(
            expected="to train in an empty working directory",
            got=subject.in_words(error),
            fix="Find the package's own files with importlib.resources, and the user's through hyperparams or inputs.",
        ) from error
    if left:
        raise ConformanceError(
            expected="nothing in the working directory",
            got=", ".join(sorted(left)[:5]),
            fix="Write into output_dir of save_checkpoint or generate_sample, or not at all.",
        )


@check("trainer.leaves_nothing_running", requires=("trainer.trains",))
def leaves_nothing_running(subject: Subject) -> None:
    """A run leaves no thread, process or open file behind.

    After the example has been run, the kit counts Python's threads, child processes and open files, runs it again, and
    counts again. What is started once and kept for all runs does not matter; what comes with every run does.

    Close in teardown what setup or configure have opened: files, pools, clients, writers of logs. A thread or a
    process that is left behind keeps a worker from ending, and its GPU from being used by anybody else.
    """
    baseline(subject)
    before, grown, unchanged = held(), list[tuple[str, Counter[str]]](), 0
    # Two of three: what other code in this process begins or ends meanwhile neither makes nor hides a leak.
    while len(grown) < 2:
        run_alone(subject).require_success("another run of the example")
        after = held()
        more = after.beyond(before).items()
        come = [(what, names) for what, names in more if after.counts[what].total() > before.counts[what].total()]
        before = after
        grown += come[:1]
        unchanged += not come
        if unchanged == 2:
            return
    what, names = grown[-1]
    raise ConformanceError(
        expected=f"no {_ONE[what]} beyond those of the run before",
        got=f"one more after two of the runs: {', '.join(list(names)[:3])}",
        fix="Close it in teardown, which the host calls however the run ends.",
    )
