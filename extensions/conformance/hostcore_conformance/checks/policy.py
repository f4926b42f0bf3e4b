"""Checks of policies."""

import copy
import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import attrs

from hostcore_conformance.check import check
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.job import Job
from hostcore_hookspecs.plan import Plan, PluginRef
from hostcore_hookspecs.policy import Denial, PolicyContext, Principal

_TRAINER: Final = PluginRef(kind="trainer", name="mine", value="mine:Trainer", dist="mine", version="1.0.0")

#: Who may ask.
_PRINCIPALS: Final = (
    Principal(name="ada"),
    Principal(name="ada", groups=("research", "admins")),
    Principal(name=""),
    Principal(name="系統/../root '; --", groups=("",)),
)


def _plain_plan() -> Plan:
    return Plan(job=Job(run_id="conformance", trainer="mine", max_steps=10), plugins=[_TRAINER])


def _odd_plans() -> dict[str, Plan]:
    """Plans that are valid and unusual."""
    job = _plain_plan().job
    import_path = PluginRef(kind="callback", name="here:Callback", value="here:Callback")
    unknown = PluginRef(kind="summoner", name="later", value="later:Summoner", dist="later", version="2.0.0rc1")
    many = [attrs.evolve(_TRAINER, kind="callback", name=f"callback-{number}") for number in range(1_000)]
    return {
        "no plugins": Plan(job=Job(), plugins=[]),
        "an import path, without distribution and version": Plan(job=job, plugins=[_TRAINER, import_path]),
        "a kind of plugin that came later": Plan(job=job, plugins=[_TRAINER, unknown]),
        "a thousand callbacks": Plan(job=job, plugins=[_TRAINER, *many]),
        "no limits, no owner, no data": Plan(
            job=attrs.evolve(job, max_steps=0, epochs=None, owner=None, dataset=None), plugins=[_TRAINER]
        ),
        "keys and labels of other programs": Plan(
            job=attrs.evolve(
                job,
                hyperparams={"later": {"deep": [None, 1e308, "模型"]}},
                dataset={"source": "later", "unknown": []},
                labels={"team/größe": ""},
                owner="unknown@example.org",
            ),
            plugins=(_TRAINER,),
        ),
    }


_Ask = Callable[[Plan, Principal, bool], Any]


def _asking(subject: Subject) -> _Ask:
    """Ask a new instance as the host does: plan, principal, over_http."""
    authorize = subject.calls()["authorize_job"]
    return lambda plan, principal, http: authorize(plan, principal, PolicyContext(plan=plan, over_http=http))


def _questions() -> Iterator[tuple[Principal, bool]]:
    return itertools.product(_PRINCIPALS, (False, True))


def _require_answer(answer: object, asked: str) -> None:
    if answer is None:
        return
    fix = "return None to let the job pass, else Denial(reason=…, hint=…), from hostcore_hookspecs."
    if not isinstance(answer, Denial):
        raise ConformanceError(expected=f"a Denial or None for {asked}", got=repr(answer), fix=fix)
    reason, hint = answer.reason, answer.hint
    if not isinstance(reason, str) or len(reason.splitlines()) != 1 or not reason.strip():
        raise ConformanceError(
            expected=f"a reason of one line, for {asked}",
            got=repr(reason),
            fix="Give the reason in a sentence; what the user can do about it is the hint.",
        )
    if not (hint is None or isinstance(hint, str)):
        raise ConformanceError(expected="a hint that is a text, or None", got=repr(hint), fix=fix)


@check("policy.answers")
def answers(subject: Subject) -> None:
    """Every job gets a Denial with a reason of one line, or None.

    An ordinary job is asked about for people with and without groups, from a shell and over HTTP. False, True or a text
    is no answer: who returns True means that it is allowed, and who returns a text that it is not.
    """
    ask = _asking(subject)
    for principal, http in _questions():
        asked = f"{principal} {'over HTTP' if http else 'from a shell'}"
        _require_answer(ask(_plain_plan(), principal, http), asked)


@check("policy.odd_jobs", requires=("policy.answers",))
def odd_jobs(subject: Subject) -> None:
    """Unusual jobs get an answer, and no exception.

    It is asked about jobs without plugins, with an import path (whose distribution and version are None), with a kind
    of plugin that came after it, with a thousand callbacks, without limits, owner and data, and with unknown keys.

    An exception denies the job, and shows its owner nothing but a line of the policy's code. A policy that means to
    deny what it does not know returns a reason: Denial(reason=…).
    """
    ask = _asking(subject)
    for what, plan in _odd_plans().items():
        for principal, http in _questions():
            asked = f"a job with {what}, {principal} {'over HTTP' if http else 'from a shell'}"
            try:
                answer = ask(plan, principal, http)
            except HostcoreError:
                continue
            except Exception as error:
                raise ConformanceError(
                    expected=f"an answer to {asked}",
                    got=f"{type(error).__name__}: {error}",
                    fix="Take every field of Job, PluginRef and Principal by its type: many are None or empty.",
                ) from error
            _require_answer(answer, asked)


@check("policy.leaves_plan", requires=("policy.answers",))
def leaves_plan(subject: Subject) -> None:
    """The plan is as it was after the policy has looked at it.

    The job's settings are plain mappings, shared with all policies and with the run itself. One that sets a default or
    removes a key in them changes what is run, behind the back of those that were asked before.
    """
    ask = _asking(subject)
    for what, plan in {"nothing special": _plain_plan(), **_odd_plans()}.items():
        before = copy.deepcopy(plan)
        with suppress(HostcoreError):
            ask(plan, _PRINCIPALS[0], True)
        if plan != before:
            raise ConformanceError(
                expected=f"the plan of a job with {what} to be left as it is",
                got=_difference(before, plan),
                fix="Read it; copy what you need to change for your own use.",
            )


def _difference(before: Plan, after: Plan) -> str:
    if before.job == after.job:
        return f"plugins has {len(after.plugins)} entries, and had {len(before.plugins)}"
    names = [field.name for field in attrs.fields(Job)]
    name = next(name for name in names if getattr(before.job, name) != getattr(after.job, name))
    return f"job.{name} is {getattr(after.job, name)!r}, and was {getattr(before.job, name)!r}"[:600]


@check("policy.same_answer", level="should", requires=("policy.answers",))
def same_answer(subject: Subject) -> None:
    """The same question has the same answer, from another instance too.

    Asked twice in a row, and then a new instance: the first question may not use up what the second asks for. A job is
    authorized when it is validated, submitted and resumed. A policy that counts jobs declares this as a known failure.
    """
    first, second = _asking(subject), _asking(subject)
    for principal, http in _questions():
        plan = _plain_plan()
        found = [ask(plan, principal, http) for ask in (first, first, second)]
        if not found[0] == found[1] == found[2]:
            raise ConformanceError(
                expected=f"one answer for {principal} {'over HTTP' if http else 'from a shell'}",
                got=", then ".join(map(repr, found)),
                fix="Decide by the plan, the principal and the settings; change nothing when asked.",
            )


@check("policy.decides", requires=("policy.answers",))
def decides(subject: Subject) -> None:
    """The policy denies the plan that its author marks as denied, and allows the plan marked as allowed.

    The harness has two plans, `denied` and `allowed`, and may have the `principal` that asks. Over HTTP, the first must
    be denied with a reason, and the second allowed. The other checks cannot know which job a policy is about, and see
    nothing of one that never denies.
    """
    plans: dict[str, Any] = {name: getattr(subject.harness, name, None) for name in ("denied", "allowed")}
    if not all(isinstance(plan, Plan) for plan in plans.values()):
        raise NotApplicable(
            "what it denies is not known: give a harness with two plans, denied and allowed", wants_example=True
        )
    principal = getattr(subject.harness, "principal", _PRINCIPALS[0])
    ask = _asking(subject)
    for name, plan in plans.items():
        answer = ask(plan, principal, True)
        _require_answer(answer, f"the plan `{name}` of the harness")
        if (answer is None) != (name == "allowed"):
            raise ConformanceError(
                expected=f"the plan `{name}` of the harness to be {name}, asked by {principal}",
                got=repr(answer) if answer is not None else "None, which lets it pass",
                fix="Mend the policy, or the harness if it is no example of it any more.",
            )
