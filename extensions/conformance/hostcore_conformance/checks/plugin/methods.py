"""That the host can call the methods of a plugin, and calls all that look as if it did."""

from typing import Final

from hostcore.errors import all_errors
from hostcore.plugins.contract import deprecated_uses, implementations
from hostcore_conformance.check import check
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.errors import HostcoreError

_SIGNATURES: Final = frozenset({"plugin.signature", "plugin.removed"})
_NEAR_MISSES: Final = frozenset({"plugin.near_miss", "plugin.unmarked", "plugin.unknown_hook", "plugin.wrong_room"})


@check("plugin.methods", requires=("plugin.resolves",))
def methods(subject: Subject) -> None:
    """The class has the required methods of its kind, and implements each hook once.

    The methods must be in the class or be assigned in its constructor; what only __getattr__ provides does not count. A
    marker (@hookimpl) is for wrappers and for hooks of other kinds; a wrapper of a method of the plugin's own kind has
    another name (specname=). The reference of the hooks lists the methods of a kind.
    """
    _require_none(subject, [one for one in _wrong(subject) if one.code not in _SIGNATURES | _NEAR_MISSES])


@check("plugin.signatures", requires=("plugin.resolves",))
def signatures(subject: Subject) -> None:
    """The methods take only documented arguments, by name, and are plain functions.

    The names of the arguments are the interface: a method takes those that it needs, in any order, keyword-only ones
    too. An argument that the hook does not have, *args, **kwargs, one that can be passed by position only, and async
    are refused by the host when the plugin is loaded. Usual causes: batch for raw_batch, a decorator without
    functools.wraps, and a forgotten self.
    """
    _require_none(subject, [one for one in _wrong(subject) if one.code in _SIGNATURES])


@check("plugin.near_misses", requires=("plugin.resolves",))
def near_misses(subject: Subject) -> None:
    """No public method looks like a hook without being one.

    A method train_stpe, or on_step_end where the hook is called on_batch_end, would never be called, without any
    message. The host refuses such names; @not_a_hook, imported from hostcore_hookspecs, or an underscore in front,
    keeps a method that is meant to be called that. The same for a method marked as a hook that does not exist, or that
    is never called in the process that the plugin runs in.
    """
    _require_none(subject, [one for one in _wrong(subject) if one.code in _NEAR_MISSES])


@check("plugin.deprecated", level="should", requires=("plugin.constructs",))
def deprecated(subject: Subject) -> None:
    """The plugin uses no name of the contract that will go.

    A hook, an argument or a public name of hostcore_hookspecs is deprecated in one minor version and removed two minors
    later. Until then it works, and users see a warning in every run. The message names the replacement.
    """
    found = deprecated_uses(subject.ref, subject.component().implementations)
    if found:
        raise ConformanceError(
            expected="no deprecated name of the contract",
            got="; ".join(f"{what}, which {deprecation.history}" for what, deprecation in found.items()),
            fix=" ".join(f"For {what}: {deprecation.instead}." for what, deprecation in found.items()),
        )


def _wrong(subject: Subject) -> tuple[HostcoreError, ...]:
    return subject.shared("plugin.methods", lambda: tuple(_read(subject)))


def _read(subject: Subject) -> list[HostcoreError]:
    """Return the host's errors about the methods of the class, and of an instance where one can be made."""
    try:
        subject.component()
    except HostcoreError as error:
        found = [one for one in all_errors(error) if one.code in _OF_METHODS]
        if found:
            return found
    else:
        return []
    try:
        implementations(subject.owner, subject.ref)
    except HostcoreError as error:
        # The constructor, which could not be called, may assign what the class lacks.
        return [one for one in all_errors(error) if one.code != "plugin.missing_methods"]
    return []


_OF_METHODS: Final = frozenset(
    {
        *_SIGNATURES,
        *_NEAR_MISSES,
        *("plugin.missing_methods", "plugin.twice", "plugin.wraps_itself", "plugin.not_selected"),
        *("plugin.old_wrapper", "plugin.order"),
    }
)


def _require_none(subject: Subject, found: list[HostcoreError]) -> None:
    if found:
        expected = {True: "arguments that the hooks have", False: "methods that the host calls"}
        raise ConformanceError(
            expected=expected[found[0].code in _SIGNATURES] + f" of a {subject.kind.label}",
            got="; ".join(one.message.partition("): ")[2] or one.message for one in found),
            fix=" ".join(dict.fromkeys(one.hint for one in found if one.hint)),
        )
