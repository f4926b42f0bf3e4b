"""Checks of planning: a launcher returns its plan, and does nothing yet."""

from contextlib import suppress
from pathlib import Path
from typing import Final

from hostcore_conformance.check import check
from hostcore_conformance.checks.launcher.stage import CheckedLauncher, Instructions, context, until
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.launcher import LaunchPlan

_VALUE: Final = "hostcore-check-7d1f0c2e"
#: How long the command, had it been started, would take to show.
_LOOK_SECONDS: Final = 0.2


@check("launcher.dry_run")
def dry_run(subject: Subject) -> None:
    """The plan describes the launch in one line, the same each time, and making it starts and writes nothing.

    Two instances are asked for the plan of the same launch. Each must answer with a LaunchPlan whose summary is one
    line; the answers must be equal, and afterwards the run directory must be as it was and the command must not have
    been started.

    People read the plan before they agree to it, in `hostcore validate` and in front of a launch. A random name or the
    time of day in it makes a plan that is not the one that is carried out: take names from ctx.job.run_id, or make
    them in launch().
    """
    folder, ctx = context(subject, Instructions(), env={"HOSTCORE_CHECK_A": "1"})
    before = _files(folder)
    plans = [CheckedLauncher(subject).plan(ctx) for _ in range(2)]
    for plan in plans:
        if not isinstance(plan, LaunchPlan) or not isinstance(plan.summary, str) or not isinstance(plan.document, str):
            raise ConformanceError(
                expected="plan to return a LaunchPlan with two strings, summary and document",
                got=repr(plan),
                fix="return LaunchPlan(summary=…, document=…), from hostcore_hookspecs.",
            )
        if len(plan.summary.splitlines()) != 1 or not plan.summary.strip():
            raise ConformanceError(
                expected="a summary of one line",
                got=repr(plan.summary),
                fix="Describe in a sentence where it will run; what is submitted belongs into document.",
            )
    if plans[0] != plans[1]:
        raise ConformanceError(
            expected="the same plan for the same launch",
            got=f"{plans[0]!r} and {plans[1]!r}",
            fix="Leave the time and random names out of it; ctx.job.run_id names the run.",
        )
    until((folder / "record.json").exists, _LOOK_SECONDS)
    changed = sorted(set(_files(folder).items()) ^ set(before.items()))
    if changed:
        raise ConformanceError(
            expected="plan to leave the run directory as it is",
            got=f"changed or new: {', '.join(dict.fromkeys(str(path.relative_to(folder)) for path, _ in changed))}",
            fix="Write and start in launch() alone.",
        )
    if dict(ctx.env) != {"HOSTCORE_CHECK_A": "1"}:
        raise ConformanceError(
            expected="ctx.env to be left as it is",
            got=f"ctx.env is {dict(ctx.env)!r} after plan()",
            fix="Work on a copy: {**os.environ, **ctx.env}.",
        )


def _files(folder: Path) -> dict[Path, tuple[int, int]]:
    """Every file and folder below, with size and time of change."""
    found: dict[Path, tuple[int, int]] = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # a plan that has started the command renames files meanwhile
            stat = path.stat()
            found[path] = stat.st_size, stat.st_mtime_ns
    return found


@check("launcher.plan_hides_values", level="should", requires=("launcher.dry_run",))
def plan_hides_values(subject: Subject) -> None:
    """The plan does not show the values of environment variables that have a secret's name.

    ctx.env holds an API key. Its value must not stand in the plan's summary or document, which are printed, logged and
    sent to the client that asked for the plan. Show the names of variables, and stars in place of values.
    """
    _, ctx = context(subject, Instructions(), env={"HOSTCORE_CHECK_API_KEY": _VALUE})
    plan = CheckedLauncher(subject).plan(ctx)
    for place, text in (("summary", plan.summary), ("document", plan.document)):
        if _VALUE in text:
            line = next(line for line in text.splitlines() if _VALUE in line)
            raise ConformanceError(
                expected="a plan without the value of HOSTCORE_CHECK_API_KEY",
                got=f"it stands in the {place}: {line.strip()!r}",
                fix="Write ******** in place of the values of ctx.env in what people read.",
            )
