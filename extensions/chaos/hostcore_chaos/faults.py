"""Faults as a job names them, ``ACTION@WHEN``: what is done, where, and by which rank.

::

    sigterm@step=37              kill@train_step=5             store-down@30s..60s
    kill@checkpoint=2,every      hang@step=10..200,rank=1
"""

import random
import re
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import attrs

from hostcore_hookspecs import KINDS, HostcoreError, InvalidSettings

T = TypeVar("T")

#: What the callback does to the run, with its documentation.
ACTIONS: Final = {
    "sigterm": "the worker is sent SIGTERM, as by a machine that is taken away",
    "sigint": "the worker is sent SIGINT, as by Ctrl-C",
    "sigusr1": "the worker is sent SIGUSR1, as by Slurm before a time limit",
    "kill": "the worker is killed (SIGKILL), as by the out-of-memory killer",
    "kill-supervisor": "the supervisor is killed; its workers see that, write a checkpoint and end",
    "kill-all": "the supervisor and the worker are killed, as when the machine goes down",
    "hang": "the worker's thread sleeps for ever",
    "disk-full": "the checkpoint cannot be committed: no space is left",
}
#: What the uploader does to the others.
STORE_DOWN: Final = "store-down"
#: Where something is done, beside the calls of the trainer's methods.
POINTS: Final = ("step", "checkpoint", "saved")
#: Those after the beginning of a run, which is the call of ``setup``.
METHODS: Final = tuple(hook for hook in KINDS["trainer"].hooks if hook != "data_sections")

_FORM: Final = re.compile(r"(?P<action>[^@,]+)@(?P<when>[^@,]+)(?P<options>(,[^@,]+)*)")
_PLACE: Final = re.compile(r"(?P<point>[a-z_]+)=(?P<first>[0-9]{1,15})(\.\.(?P<last>[0-9]{1,15}))?")
_SPAN: Final = re.compile(r"(?P<begin>[0-9]{1,9}(\.[0-9]+)?)s\.\.(?P<end>[0-9]{1,9}(\.[0-9]+)?)s")
_EXAMPLES: Final = "for example kill@step=37, sigterm@step=10..200, kill@checkpoint=2,every"


class _Wrong(ValueError):
    """Error in a fault; its second argument is a hint."""


@attrs.frozen(kw_only=True)
class Fault:
    """Something that is done to a run, at a place in it."""

    #: As the job has it.
    text: str
    action: str
    #: ``step``, ``checkpoint``, ``saved``, or a method of the trainer.
    point: str
    #: The first and the last number that it may have.
    first: int
    last: int
    rank: int = 0
    #: Whether it is done in each attempt that comes there, not once per run.
    every: bool = False

    def number(self, seed: int, position: int) -> int:
        """Draw the step, or the number of the checkpoint or call, of the fault.

        :param position: Its place in the job's list, so that equal faults are drawn apart.
        """
        return random.Random(f"{seed}/{position}/{self.text}").randint(self.first, self.last)  # noqa: S311 - a drill


@attrs.frozen(kw_only=True)
class Outage:
    """A time in which nothing can be uploaded."""

    #: As the job has it.
    text: str
    #: In seconds since the uploads of the attempt began.
    begin: float
    end: float
    every: bool = False


def faults_of(texts: Sequence[str]) -> list[Fault]:
    """The faults of the callback.

    :raises Errors: Everything that is wrong with them, with ``/faults/0`` as its place.
    """
    return _each(texts, _fault)


def outages_of(texts: Sequence[str]) -> list[Outage]:
    """The outages of the uploader; raises as :func:`faults_of`."""
    return _each(texts, _outage)


def check(texts: Sequence[str]) -> None:
    """See that texts are faults or outages; raises as :func:`faults_of`."""
    _each(texts, lambda text: _outage(text) if is_outage(text) else _fault(text))


def is_outage(text: str) -> bool:
    """Return whether a text, right or wrong, is a fault of the uploader."""
    return text.partition("@")[0] == STORE_DOWN


def _each(texts: Sequence[str], parse: Callable[[str], T]) -> list[T]:
    parsed: list[T] = []
    errors: list[HostcoreError] = []
    for position, text in enumerate(texts):
        try:
            parsed.append(parse(text))
        except _Wrong as wrong:
            message, hint = wrong.args
            errors.append(InvalidSettings(f"/faults/{position}", f"{text!r}: {message}", hint=hint))
    if not texts:
        errors.append(InvalidSettings("/faults", "there are no faults", hint=_EXAMPLES))
    if errors:
        from hostcore.errors import Errors

        raise Errors(errors)
    return parsed


def _split(text: str) -> tuple[str, str, dict[str, str]]:
    """Action, place, and the options by their names."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise _Wrong("a fault is ACTION@WHEN", _EXAMPLES)
    options = [option.partition("=") for option in found["options"].split(",")[1:]]
    named = {name: value for name, _, value in options}
    if len(named) < len(options):
        raise _Wrong("it has an option twice", "leave one out")
    return found["action"], found["when"], named


def _fault(text: str) -> Fault:
    action, when, options = _split(text)
    if action == STORE_DOWN:
        raise _Wrong("an outage belongs to the uploader", f'{{"use": "chaos", "faults": ["{text}"]}} in "uploaders"')
    if action not in ACTIONS:
        raise _Wrong(f"there is no fault {action!r}", f"there are {', '.join((*ACTIONS, STORE_DOWN))}")
    place = _PLACE.fullmatch(when)
    known = (*POINTS, *METHODS)
    if place is None or place["point"] not in known:
        raise _Wrong(f"{when!r} is no place in a run", f"it is NAME=N or NAME=N..M, of {', '.join(known)}")
    first, last = int(place["first"]), int(place["last"] or place["first"])
    if not 1 <= first <= last:
        raise _Wrong(f"{when!r} has no number", "numbers count from 1, and the first of a range is not above its last")
    if action == "disk-full" and place["point"] != "checkpoint":
        raise _Wrong("a disk is full for checkpoints", "for example disk-full@checkpoint=2")
    rank, every = options.pop("rank", "0"), options.pop("every", None)
    _refuse_rest(options, "rank=R, every")
    if not re.fullmatch("[0-9]{1,9}", rank):
        raise _Wrong(f"{rank!r} is no rank", "ranks count from 0: kill@step=37,rank=1")
    if place["point"] in ("checkpoint", "saved") and int(rank) != 0:
        raise _Wrong("checkpoints are committed by rank 0", "leave the rank out, or name a step")
    if every:
        raise _Wrong("every takes no value", "kill@step=37,every")
    return Fault(
        text=text, action=action, point=place["point"], first=first, last=last, rank=int(rank), every=every == ""
    )


def _outage(text: str) -> Outage:
    action, when, options = _split(text)
    if action != STORE_DOWN:
        raise _Wrong(f"the uploader has the fault {STORE_DOWN} alone", 'the others belong to "callbacks"')
    span = _SPAN.fullmatch(when)
    if span is None or not float(span["begin"]) < float(span["end"]):
        raise _Wrong(f"{when!r} is no time", f"it is BEGIN..END in seconds: {STORE_DOWN}@30s..60s")
    every = options.pop("every", None)
    _refuse_rest(options, "every")
    if every:
        raise _Wrong("every takes no value", f"{STORE_DOWN}@30s..60s,every")
    return Outage(text=text, begin=float(span["begin"]), end=float(span["end"]), every=every == "")


def _refuse_rest(options: dict[str, str], known: str) -> None:
    if options:
        raise _Wrong(f"there is no option {', '.join(map(repr, options))}", f"there are {known}")
