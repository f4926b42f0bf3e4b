"""Methods that look like hooks and would never be called: refused, since the mistake is hard to find otherwise."""

import difflib
import functools
from collections.abc import Callable, Collection, Sequence

from hostcore_hookspecs.deprecated import Deprecation, removed_hook
from hostcore_hookspecs.kinds import KINDS, Kind

_CLOSE = 0.8
_SILENCE = "Rename it, or mark it @not_a_hook if it is meant to be called that."


@functools.cache
def hooks_of(kind: str) -> tuple[str, ...]:
    """The hooks of a kind, by its name; remembered, since the specifications do not change."""
    return KINDS[kind].hooks


def check_unmarked(name: str, kind: Kind, declared: Collection[str], refuse: Callable[..., None]) -> str | None:
    """Look at a public method without a marker that is not of the component's own contract.

    :param declared: The names of all attributes of the component.
    :param refuse: Called with code, message and hint when the method looks like a hook.
    :return: The hook of the component's own kind that was meant, if one was.
    """
    gone = removed_hook(kind.name, name)
    if gone is not None:
        refuse(*_removed(name, name, kind, gone))
        return None
    others = [other for other in KINDS.values() if kind.room == other.room == "worker" and name in hooks_of(other.name)]
    if others:
        other = others[0]
        marker = "@hookimpl" if other.name == "callback" else "@hookimpl(wrapper=True)"
        refuse(
            "plugin.unmarked",
            f"{name} is a hook of {other.label}s; in a {kind.label} it is not called without a marker",
            f"Mark it {marker}, or @not_a_hook if it only happens to have that name.",
        )
        return None
    lacks = [hook for hook in (*hooks_of(kind.name), *kind.own_methods) if hook not in declared]
    near = difflib.get_close_matches(name, lacks, n=1, cutoff=_CLOSE)
    if near:
        refuse("plugin.near_miss", f"{name} is not a hook and is never called; did you mean {near[0]!r}?", _SILENCE)
        return near[0]
    if kind.name == "callback" and name.startswith("on_"):
        closest = difflib.get_close_matches(name, hooks_of(kind.name), n=1, cutoff=0.0)[0]
        refuse(
            "plugin.near_miss",
            f"{name} is not a lifecycle hook and is never called; the closest is {closest!r}",
            _SILENCE,
        )
    return None


def unknown_hook(
    attribute: str, hook: str, kind: Kind, kinds: Sequence[Kind], reachable: Sequence[Kind]
) -> tuple[str, str, str]:
    """Code, message and hint for a method marked as a hook that is never called.

    :param kinds: The kinds that do have such a hook; they run elsewhere.
    :param reachable: The kinds whose hooks the component could implement or wrap.
    """
    if kinds:
        owner = " and ".join(f"{other.label}s" for other in kinds)
        where = f"in the {kinds[0].room}" if kinds[0].room != kind.room else "and is called on them alone"
        return (
            "plugin.wrong_room",
            f"{attribute} is marked as the hook {hook}, which belongs to {owner} {where}; a {kind.label} runs in the"
            f" {kind.room}",
            f"Write a {' or '.join(other.label for other in kinds)} for it ({kinds[0].group}).",
        )
    for other in reachable:
        gone = removed_hook(other.name, hook)
        if gone is not None:
            return _removed(attribute, hook, other, gone)
    known = [name for other in reachable for name in hooks_of(other.name)]
    near = difflib.get_close_matches(hook, known, n=1, cutoff=0.6)
    return (
        "plugin.unknown_hook",
        f"{attribute} is marked as the hook {hook}, which does not exist"
        + (f"; did you mean {near[0]!r}?" if near else ""),
        f"Hooks that a {kind.label} can implement or wrap: {', '.join(known)}.",
    )


def _removed(attribute: str, hook: str, kind: Kind, gone: Deprecation) -> tuple[str, str, str]:
    what = f"the {kind.label} hook {hook}" if attribute == hook else f"{attribute} is marked as the hook {hook}, which"
    return (
        "plugin.removed",
        f"{what} {gone.history}",
        f"{_sentence(gone.instead)} A plugin that is to run on older contracts, too, marks its method"
        " @hookimpl(optionalhook=True).",
    )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
