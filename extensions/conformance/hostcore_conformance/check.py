"""Checks, and the table of all of them."""

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import attrs

if TYPE_CHECKING:
    from hostcore_conformance.subject import Subject

Level = Literal["must", "should"]

#: The first part of the ids of the checks that are for plugins of every kind.
EVERY_KIND: Final = "plugin"
_WHAT_A_KIND_NEEDS: Final = ("plugin.constructs",)

_F = TypeVar("_F", bound=Callable[..., None])


@attrs.frozen(kw_only=True, eq=False)
class Check:
    """One question to a plugin. Called with a subject, it returns if the answer is right, and raises if not."""

    #: Stable: ``trainer.resume_exact``; of a variant, ``trainer.killed[train_step]``.
    id: str
    #: ``must`` is the contract; ``should`` is what its users expect.
    level: Level
    #: The version of the contract from which on it is asked.
    since: str
    #: The ids of the checks that must have passed before.
    requires: tuple[str, ...]
    #: What the check is about, why, and how to come to pass it.
    doc: str
    #: Why a plugin is not asked; None if it is.
    capability: Callable[["Subject"], str | None] | None
    function: Callable[["Subject"], None]
    #: Id of a check that this one includes; empty if there is none.
    alias: str = ""

    @property
    def ids(self) -> tuple[str, ...]:
        """Its id, and its alias if it has one."""
        return (self.id, self.alias) if self.alias else (self.id,)

    @property
    def kind(self) -> str:
        """``trainer``, ``data_source``, …; ``plugin`` for every kind."""
        return self.id.partition(".")[0]

    @property
    def family(self) -> str:
        """The id without its variant: the heading in the documentation."""
        return self.id.partition("[")[0]

    @property
    def title(self) -> str:
        """The first sentence of its documentation."""
        return " ".join(self.doc.partition("\n\n")[0].split())

    def is_for(self, kind: str) -> bool:
        """Return whether the check is for plugins of a kind."""
        return self.kind in (EVERY_KIND, kind)

    def __call__(self, subject: "Subject") -> None:
        """Ask a plugin.

        :raises ConformanceError: The answer is wrong.
        :raises NotApplicable: There is nothing to ask.
        """
        self.function(subject)


def has_hook(name: str) -> Callable[["Subject"], str | None]:
    """Return the capability of plugins that implement a hook."""

    def reason(subject: "Subject") -> str | None:
        return None if subject.has(name) else f"it has no {name}"

    return reason


_table: dict[str, Check] = {}


def check(
    id: str,
    *,
    level: Level = "must",
    since: str = "1.0.0",
    requires: Sequence[str] | None = None,
    capability: Callable[["Subject"], str | None] | None = None,
    variants: Sequence[str] = (),
    aliases: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[_F], _F]:
    """Put a function into the table of checks.

    The function takes the subject and raises :class:`~hostcore_conformance.errors.ConformanceError`; what else it lets
    through counts against the plugin as well. Its docstring is the documentation.

    :param id: ``kind.name``, or ``plugin.name`` for every kind.
    :param requires: The checks that must have passed before, each without variants; for a kind's own checks, unless
        given, that the plugin can be constructed.
    :param capability: Asked first: why this plugin is not asked, or None.
    :param variants: Each becomes a check of its own, and the function takes its name as a second argument.
    :param aliases: Ids of checks that this one includes, by its own id.
    """
    if requires is None:
        requires = () if id.startswith(f"{EVERY_KIND}.") else _WHAT_A_KIND_NEEDS

    def register(function: _F) -> _F:
        made: Mapping[str, Callable[..., None]] = (
            {f"{id}[{variant}]": partial(_call_variant, function, variant) for variant in variants}
            if variants
            else {id: function}
        )
        for name, call in made.items():
            if name in _table:
                raise ValueError(f"two checks are called {name}")
            _table[name] = Check(
                id=name,
                level=level,
                since=since,
                requires=tuple(requires),
                doc=inspect.cleandoc(function.__doc__ or ""),
                capability=capability,
                function=call,
                alias=aliases.get(name, ""),
            )
        return function

    return register


def _call_variant(function: Callable[[Any, str], None], variant: str, subject: "Subject") -> None:
    function(subject, variant)


@functools.cache
def table() -> Mapping[str, Check]:
    """All checks by id, as they are made: those for every kind first, and each after what it requires."""
    import hostcore_conformance.checks  # noqa: F401 - which fills it

    ordered = with_required(sorted(_table.values(), key=lambda one: one.kind != EVERY_KIND), _table.values())
    return MappingProxyType({one.id: one for one in ordered})


def with_required(wanted: Iterable[Check], known: Collection[Check]) -> tuple[Check, ...]:
    """Some checks with all that they require, each after what it requires.

    :param known: The checks that there are.
    """
    ordered: dict[str, Check] = {}

    def add(one: Check) -> None:
        if one.id not in ordered:
            for required in required_by(one, known):
                add(required)
            ordered[one.id] = one

    for one in wanted:
        add(one)
    return tuple(ordered.values())


def required_by(check: Check, known: Collection[Check]) -> Iterator[Check]:
    """Yield the checks that must have passed before a check, with all variants."""
    return (one for family in check.requires for one in known if one.family == family)


def checks_for(kind: str) -> tuple[Check, ...]:
    """The checks for plugins of a kind, in the order of the table.

    :param kind: A key of :data:`hostcore_hookspecs.kinds.KINDS`.
    """
    return tuple(one for one in table().values() if one.is_for(kind))
