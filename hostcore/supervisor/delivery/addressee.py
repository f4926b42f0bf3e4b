"""Who is told: the reporters of a job, each with what the host needs to know of it."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final
from weakref import WeakKeyDictionary

import attrs

from hostcore.job.sections import ComponentUse, DeliveryUse
from hostcore.plugins.component import Component
from hostcore.plugins.hooks import Hooks
from hostcore_hookspecs.events import Event
from hostcore_hookspecs.reporter import ReporterContext


def _nothing(*_: object) -> None:
    """Stands for ``open`` and ``close`` of a reporter that has none."""


@attrs.frozen(kw_only=True, eq=False)
class Addressee:
    """One use of a reporter."""

    #: How messages name it, with distribution and version.
    label: str
    #: Unique in the job; names its cursor: ``mlflow``, the second one ``mlflow.2``.
    name: str
    #: What it is, whatever its version: a cursor of something else is not its own.
    identity: str
    #: Whether the run fails at its end if it has not taken everything.
    required: bool = False
    #: Whether it is told nothing of what earlier attempts have left untold.
    live_only: bool = False
    report_event: Callable[[Event], object]
    open: Callable[[ReporterContext], object] = _nothing
    close: Callable[[], object] = _nothing
    #: Held by the thread that serves it. A thread of an earlier attempt may still hang in one of its methods.
    turn: threading.Lock = attrs.field(factory=threading.Lock)


_turns: Final[WeakKeyDictionary[Component, threading.Lock]] = WeakKeyDictionary()


def addressees_of(reporters: Sequence[Component], uses: Sequence[ComponentUse]) -> list[Addressee]:
    """The reporters of a job as addressees.

    :param reporters: Loaded, in the order of the job.
    :param uses: Their uses, in the same order.
    """
    hooks = Hooks(reporters, kinds=("reporter",))
    names = unique_names([one.ref.name for one in reporters])
    return [
        Addressee(
            label=one.ref.provenance,
            name=name,
            identity=f"{one.ref.dist}/{one.ref.name}",
            required=isinstance(use, DeliveryUse) and use.required,
            live_only=getattr(one.instance, "LIVE_ONLY", False) is True,
            report_event=hooks.bind("report_event", of=one) or _nothing,
            open=hooks.bind("open", of=one) or _nothing,
            close=hooks.bind("close", of=one) or _nothing,
            turn=_turns.setdefault(one, threading.Lock()),
        )
        for one, name, use in zip(reporters, names, uses, strict=True)
    ]


def unique_names(names: Sequence[str]) -> list[str]:
    """Names that are all different: a second ``mlflow`` becomes ``mlflow.2``."""
    given: list[str] = []
    for name in names:
        given.append(next(one for one in _variants(name) if one not in given))
    return given


def _variants(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}.{number}" for number in range(2, 1_000_000))
