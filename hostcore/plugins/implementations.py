"""The hooks that a component implements or wraps, and methods that look like hooks but would never be called.

A contract method of the component's own kind needs no marker. A wrapper does: ``@hookimpl(wrapper=True)``; it wraps
every use of the hook in its room. Under the name of a method of its own contract a component cannot wrap: there it *is*
the implementation; ``@hookimpl(wrapper=True, specname="train_step")`` on a method of another name can. Only callbacks
may wrap their own kind by name, since there are many of them and none is required. A trainer or data source may listen
to a lifecycle hook with a plain ``@hookimpl``.
"""

import difflib
import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any

import attrs

from hostcore.errors import Errors
from hostcore.plugins.errors import PluginError, named, one_line
from hostcore.plugins.signatures import Implementation, SignatureError, read_method
from hostcore_hookspecs.deprecated import Deprecation, removed_arguments, removed_hook
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.kinds import KINDS, Kind
from hostcore_hookspecs.markers import NOT_A_HOOK, PROJECT_NAME, WHEN_RECORDED
from hostcore_hookspecs.plan import PluginRef

#: Methods that the host calls on a callback itself.
_OWN_METHOD_ARGUMENTS: Mapping[str, tuple[str, ...]] = {"callback_state": (), "load_callback_state": ("payload",)}
#: What a static, class or instance method is looked up on when there is no instance yet.
_NOBODY = object()


@attrs.frozen(kw_only=True, eq=False)
class _Reader:
    """One reading of one component; collects all errors."""

    owner: type
    ref: PluginRef
    #: None to read the class alone: then methods that ``__init__`` assigns are not seen.
    instance: object | None
    pointer: str | None
    found: list[Implementation] = attrs.field(factory=list)
    #: Hooks of its own contract that it means to implement, be they right or wrong.
    attempted: set[str] = attrs.field(factory=set)
    errors: list[HostcoreError] = attrs.field(factory=list)

    @property
    def kind(self) -> Kind:
        return KINDS[self.ref.kind]

    def refuse(self, code: str, message: str, hint: str | None = None) -> None:
        self.errors.append(
            PluginError(
                f"{named(self.ref)}: {message}",
                code=code,
                hint=hint,
                pointer=self.pointer,
                plugin=self.ref.provenance,
                file=_file(self.owner),
            )
        )


def implementations(
    owner: type, ref: PluginRef, *, instance: object | None = None, pointer: str | None = None
) -> tuple[Implementation, ...]:
    """Return the hooks of a component, in the order of its class; its own methods (``callback_state``) among them.

    The contract's defaults for methods that it lacks come last.

    :param owner: The component's class.
    :param instance: The component; None to read the class before there is one.
    :param pointer: Where the job names it.
    :raises Errors: Everything that is wrong with it: missing methods, arguments, near misses, misplaced hooks.
    """
    reader = _Reader(owner=owner, ref=ref, instance=instance, pointer=pointer)
    declared = _declared(owner, instance)
    for name, attribute in declared.items():
        marks = _marks(attribute)
        if marks.get(NOT_A_HOOK):
            continue
        options = marks.get(f"{PROJECT_NAME}_impl")
        if isinstance(options, dict):
            _read_marked(reader, name, attribute, options)
        elif name in hooks_of(reader.kind.name) or name in reader.kind.own_methods:
            _read(reader, name, attribute, hook=name, kind=reader.kind)
        elif not name.startswith("_") and _is_method_of_module(owner, name, attribute):
            meant = _check_unmarked(name, reader.kind, declared, reader.refuse)
            reader.attempted.update([meant] if meant else [])
        if marks.get(WHEN_RECORDED):
            _read_when_recorded(reader, name)
    _check_once(reader)
    _check_required(reader)
    if reader.errors:
        raise Errors(reader.errors)
    return (*reader.found, *_defaults(reader))


def _declared(owner: type, instance: object | None) -> dict[str, Any]:
    """All attributes as they are written, without calling any ``__getattr__``, property or descriptor."""
    declared: dict[str, Any] = {}
    for layer in reversed(owner.__mro__[:-1]):
        declared.update(vars(layer))
    try:
        # Methods that the constructor assigned: self.train_step = torch.compile(self._step)
        assigned = object.__getattribute__(instance, "__dict__") if instance is not None else {}
    except AttributeError:  # __slots__
        assigned = {}
    declared.update((name, value) for name, value in assigned.items() if callable(value) or name not in declared)
    return {name: value for name, value in declared.items() if not (name.startswith("__") and name.endswith("__"))}


def _marks(attribute: object) -> Mapping[str, Any]:
    """Return the attributes of markers on a method, whichever of ``@staticmethod`` and ``@hookimpl`` is outermost."""
    if not isinstance(attribute, FunctionType | MethodType | staticmethod | classmethod | functools.partial):
        return {}
    inner = getattr(attribute, "__func__", None)
    return {**getattr(inner, "__dict__", {}), **getattr(attribute, "__dict__", {})}


def _is_method_of_module(owner: type, name: str, attribute: object) -> bool:
    """Return whether a method is written in the module of the component, not inherited from a library."""
    if not isinstance(attribute, FunctionType | staticmethod | classmethod):
        return False
    return any(name in vars(layer) and layer.__module__ == owner.__module__ for layer in owner.__mro__)


def _read_marked(reader: _Reader, name: str, attribute: object, options: Mapping[str, Any]) -> None:
    hook = options.get("specname") or name
    wrapper = bool(options.get("wrapper"))
    if options.get("hookwrapper"):
        reader.refuse(
            "plugin.old_wrapper",
            f"{name} is an old-style wrapper (hookwrapper=True)",
            "Write @hookimpl(wrapper=True); then `result = yield` gives the result itself, and is to be returned.",
        )
        return
    if options.get("tryfirst") or options.get("trylast"):
        reader.refuse(
            "plugin.order",
            f"{name} asks for tryfirst or trylast, but the order of calls is that of the job's list",
            "Remove it, and tell users where in the list the plugin belongs.",
        )
        return
    kinds = [kind for kind in KINDS.values() if hook in hooks_of(kind.name)]
    kind = next((kind for kind in kinds if kind in _manager_of(reader.kind)), None)
    if kind is None:
        if not options.get("optionalhook"):
            reader.refuse(*_unknown_hook(name, hook, reader.kind, kinds, _manager_of(reader.kind)))
        return
    if kind == reader.kind and not (wrapper and name != hook):
        reader.attempted.add(hook)
    if wrapper and kind == reader.kind and name == hook and kind.name != "callback":
        reader.refuse(
            "plugin.wraps_itself",
            f"{name} is marked as a wrapper, but is the {kind.label}'s own contract method",
            "Remove the marker. To wrap it as well, add a method of another name with"
            f' @hookimpl(wrapper=True, specname="{hook}").',
        )
        return
    if not wrapper and kind != reader.kind and kind.name != "callback":
        reader.refuse(
            "plugin.not_selected",
            f"{name} implements {hook}, which only the {kind.label} that the job selected does",
            f"Wrap it with @hookimpl(wrapper=True), or write a {kind.label}.",
        )
        return
    _read(reader, name, attribute, hook=hook, kind=kind, wrapper=wrapper)


def _read_when_recorded(reader: _Reader, name: str) -> None:
    for place, found in enumerate(reader.found):
        if found.attribute == name and found.wrapper and found.hook == "train_step":
            reader.found[place] = attrs.evolve(found, when_recorded=True)
            return
    if not any(name in error.message for error in reader.errors):
        reader.refuse(
            "plugin.when_recorded",
            f"{name} is marked @when_recorded, but is no wrapper around train_step",
            "Remove the marker: only train_step is called at steps whose metrics are recorded and at others.",
        )


def _manager_of(kind: Kind) -> tuple[Kind, ...]:
    """The kinds that share a manager with a kind: all of the worker's; in the supervisor each has its own."""
    return tuple(other for other in KINDS.values() if other.room == "worker") if kind.room == "worker" else (kind,)


def _read(reader: _Reader, name: str, attribute: Any, *, hook: str, kind: Kind, wrapper: bool = False) -> None:
    try:
        function = _bound(reader, name, attribute)
        if function is None:  # `save_checkpoint = None` takes an inherited optional method away
            return
        if kind == reader.kind and not wrapper:
            reader.attempted.add(hook)
        if reader.instance is None and not callable(function):  # a property or a slot: only an instance has its value
            return
        documented = _OWN_METHOD_ARGUMENTS[hook] if hook in kind.own_methods else kind.arguments(hook)
        removed = removed_arguments(kind.name, hook)
        reader.found.append(
            read_method(function, hook=hook, attribute=name, documented=documented, removed=removed, wrapper=wrapper)
        )
    except SignatureError as error:
        reader.attempted.add(hook)
        reader.refuse(error.code, str(error), error.hint)


def _bound(reader: _Reader, name: str, attribute: Any) -> Any:
    if reader.instance is None:
        binds = isinstance(attribute, FunctionType | staticmethod | classmethod | functools.partialmethod)
        return attribute.__get__(_NOBODY, reader.owner) if binds else attribute
    try:
        return getattr(reader.instance, name)
    except Exception as error:
        raise SignatureError(f"reading the attribute {name} raises {one_line(error)}") from error


def _check_once(reader: _Reader) -> None:
    plain: dict[str, str] = {}
    for implementation in reader.found:
        if implementation.wrapper:
            continue
        first = plain.setdefault(implementation.hook, implementation.attribute)
        if first != implementation.attribute:
            reader.refuse(
                "plugin.twice", f"{first} and {implementation.attribute} both implement {implementation.hook}"
            )


def _check_required(reader: _Reader) -> None:
    if reader.kind.name == "uploader" and reader.found and all(one.wrapper for one in reader.found):
        return  # it is around the other uploaders of the job, and nothing is copied to it
    # What is there but wrong has its own error already.
    begun = [hook for group in reader.kind.defaulted if reader.attempted.intersection(group) for hook in group]
    missing = [hook for hook in (*reader.kind.required, *begun) if hook not in reader.attempted]
    if not missing:
        return
    dynamic = "__getattr__" in {name for layer in reader.owner.__mro__ for name in vars(layer)}
    reader.refuse(
        "plugin.missing_methods",
        f"{reader.owner.__qualname__} lacks the required method{'s' * (len(missing) > 1)} {', '.join(missing)}",
        "Methods that only __getattr__ provides do not count: write them in the class, or assign them in __init__."
        if dynamic
        else f"A {reader.kind.label} has the methods {', '.join(dict.fromkeys((*reader.kind.required, *begun)))}.",
    )


def _defaults(reader: _Reader) -> Iterator[Implementation]:
    kind = reader.kind
    for hook in (hook for group in kind.defaulted for hook in group if hook not in reader.attempted):
        default = getattr(kind.specification, hook)
        found = read_method(default, hook=hook, attribute=hook, documented=kind.arguments(hook))
        yield attrs.evolve(found, by_default=True)


def _file(owner: type) -> str | None:
    try:
        return inspect.getsourcefile(owner)
    except (TypeError, OSError):
        return None


_CLOSE = 0.8
_SILENCE = "Rename it, or mark it @not_a_hook if it is meant to be called that."


@functools.cache
def hooks_of(kind: str) -> tuple[str, ...]:
    """The hooks of a kind, by its name; remembered, since the specifications do not change."""
    return KINDS[kind].hooks


def _check_unmarked(name: str, kind: Kind, declared: Collection[str], refuse: Callable[..., None]) -> str | None:
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


def _unknown_hook(
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
