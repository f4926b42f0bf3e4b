"""The hooks that a component implements or wraps, and methods that look like hooks but would never be called.

A contract method of the component's own kind needs no marker. A wrapper does: ``@hookimpl(wrapper=True)``; it wraps
every use of the hook in its room. Under the name of a method of its own contract a component cannot wrap: there it *is*
the implementation; ``@hookimpl(wrapper=True, specname="train_step")`` on a method of another name can. Only callbacks
may wrap their own kind by name, since there are many of them and none is required. A trainer or data source may listen
to a lifecycle hook with a plain ``@hookimpl``.

Names of the contract that will go, and their texts, are the contract's own. pluggy could warn about arguments
(``warn_on_impl_args``): as a Python warning, which a run does not show, without the distribution, and about no other
names.
"""

import difflib
import functools
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any, Final

import attrs

from hostcore.errors import Errors
from hostcore.plugins.errors import PluginError, named, one_line
from hostcore.plugins.installed import package_of
from hostcore.plugins.signatures import Implementation, SignatureError, read_method
from hostcore_hookspecs import deprecated
from hostcore_hookspecs.deprecated import Deprecation, removed_arguments, removed_hook
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.kinds import KINDS, Kind
from hostcore_hookspecs.markers import NOT_A_HOOK, PROJECT_NAME, WHEN_RECORDED
from hostcore_hookspecs.plan import PluginRef

#: Methods that the host calls on a callback itself.
_OWN_METHOD_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "callback_state": (),
    "load_callback_state": ("payload",),
}
#: What a static, class or instance method is looked up on when there is no instance yet.
_NO_INSTANCE: Final = object()
_CLOSE: Final = 0.8
_SILENCE: Final = "Rename it, or mark it @not_a_hook if it is meant to be called that."


def implementations(owner: type, ref: PluginRef, *, instance: object | None = None) -> tuple[Implementation, ...]:
    """Return the hooks of a component, in the order of its class; its own methods (``callback_state``) among them.

    The contract's defaults for methods that it lacks come last.

    :param owner: The component's class.
    :param instance: The component; None to read the class before there is one.
    :raises Errors: Everything that is wrong with it: missing methods, arguments, near misses, misplaced hooks.
    """
    reader = _MethodReader(owner=owner, ref=ref, instance=instance)
    for name, attribute in reader.declared.items():
        reader.read(name, attribute)
    reader.check_once()
    reader.check_required()
    if reader.errors:
        raise Errors(reader.errors)
    return (*reader.found, *reader.defaults())


def deprecated_uses(ref: PluginRef, implementations: Sequence[Implementation]) -> Mapping[str, Deprecation]:
    """Return the deprecated names that a plugin uses: hooks, their arguments, and imports from the contract.

    :param ref: The plugin; it has been imported in this process.
    :param implementations: What it implements and wraps, as ``Component.implementations`` has it.
    :return: By the name as a part of a sentence: ``the argument 'requested_by' of the hook on_stop_requested``.
    """
    own, package = KINDS[ref.kind], package_of(ref.value)
    used: dict[str, Deprecation | None] = {}
    for found in implementations:
        # The own kind comes first: reporters and uploaders both have ``open``.
        kind = next((one for one in (own, *_reachable(own)) if found.hook in hooks_of(one.name)), own)
        used[f"the {kind.label} hook {found.hook}"] = deprecated.HOOKS.get((kind.name, found.hook))
        for argument in found.arguments:
            what = f"the argument {argument!r} of the hook {found.hook}"
            used[what] = deprecated.ARGUMENTS.get((kind.name, found.hook, argument))
    for name, deprecation in deprecated.NAMES.items():
        if any(package_of(module) == package for module in deprecated.importers(name)):
            used[f"hostcore_hookspecs.{name}"] = deprecation
    return {what: deprecation for what, deprecation in used.items() if deprecation is not None}


def deprecation_warnings(plugins: Iterable[tuple[PluginRef, Sequence[Implementation]]]) -> tuple[str, ...]:
    """Return a sentence for each use of a deprecated name, however often a job names the plugin.

    :param plugins: As :func:`deprecated_uses` takes each.
    """
    sentences = (
        f"{named(ref)} uses {what}, which {deprecation.history}: {deprecation.instead}"
        for ref, found in plugins
        for what, deprecation in deprecated_uses(ref, found).items()
    )
    return tuple(dict.fromkeys(sentences))


@functools.cache
def hooks_of(kind: str) -> tuple[str, ...]:
    """Return the hooks of a kind, by its name; remembered, since the specifications do not change."""
    return KINDS[kind].hooks


def _reachable(kind: Kind) -> tuple[Kind, ...]:
    """Return the kinds that share a manager with a kind: all of the worker; in the supervisor each has its own."""
    return tuple(other for other in KINDS.values() if other.room == "worker") if kind.room == "worker" else (kind,)


@attrs.frozen(kw_only=True, eq=False)
class _MethodReader:
    """One reading of one component; collects all errors."""

    owner: type
    ref: PluginRef
    #: None to read the class alone: then methods that ``__init__`` assigns are not seen.
    instance: object | None
    found: list[Implementation] = attrs.field(factory=list)
    #: Hooks of its own contract that it means to implement, be they right or wrong.
    attempted: set[str] = attrs.field(factory=set)
    errors: list[HostcoreError] = attrs.field(factory=list)

    @property
    def kind(self) -> Kind:
        return KINDS[self.ref.kind]

    @functools.cached_property
    def declared(self) -> Mapping[str, Any]:
        """Return all attributes as they are written, without calling any ``__getattr__``, property or descriptor."""
        declared: dict[str, Any] = {}
        for layer in reversed(self.owner.__mro__[:-1]):
            declared.update(vars(layer))
        try:
            # Methods that the constructor assigned: self.train_step = torch.compile(self._step)
            assigned = object.__getattribute__(self.instance, "__dict__") if self.instance is not None else {}
        except AttributeError:  # __slots__
            assigned = {}
        declared.update((name, value) for name, value in assigned.items() if callable(value) or name not in declared)
        return {name: value for name, value in declared.items() if not (name.startswith("__") and name.endswith("__"))}

    def refuse(self, code: str, message: str, hint: str | None = None) -> None:
        try:
            file = inspect.getsourcefile(self.owner)
        except (TypeError, OSError):
            file = None
        self.errors.append(
            PluginError(f"{named(self.ref)}: {message}", code=code, hint=hint, file=file, about=self.ref)
        )

    def read(self, name: str, attribute: object) -> None:
        marks = _marks(attribute)
        if marks.get(NOT_A_HOOK):
            return
        options = marks.get(f"{PROJECT_NAME}_impl")
        if isinstance(options, dict):
            self._read_marked(name, attribute, options)
        elif name in hooks_of(self.kind.name) or name in self.kind.own_methods:
            self._add(name, attribute, hook=name, kind=self.kind)
        elif not name.startswith("_") and self._is_method_of_module(name, attribute):
            self._check_unmarked(name)
        if marks.get(WHEN_RECORDED):
            self._mark_when_recorded(name)

    def _read_marked(self, name: str, attribute: object, options: Mapping[str, Any]) -> None:
        hook, wrapper = options.get("specname") or name, bool(options.get("wrapper"))
        kinds = [kind for kind in KINDS.values() if hook in hooks_of(kind.name)]
        kind = next((kind for kind in kinds if kind in _reachable(self.kind)), None)
        if options.get("hookwrapper"):
            self.refuse(
                "plugin.old_wrapper",
                f"{name} is an old-style wrapper (hookwrapper=True)",
                "Write @hookimpl(wrapper=True); then `result = yield` gives the result itself, and is to be returned.",
            )
        elif options.get("tryfirst") or options.get("trylast"):
            self.refuse(
                "plugin.order",
                f"{name} asks for tryfirst or trylast, but the order of calls is that of the job's list",
                "Remove it, and tell users where in the list the plugin belongs.",
            )
        elif kind is None:
            if not options.get("optionalhook"):
                self.refuse(*self._unknown_hook(name, hook, kinds))
        elif wrapper and kind == self.kind and name == hook and kind.name != "callback":
            self.attempted.add(hook)
            self.refuse(
                "plugin.wraps_itself",
                f"{name} is marked as a wrapper, but is the {kind.label}'s own contract method",
                "Remove the marker. To wrap it as well, add a method of another name with"
                f' @hookimpl(wrapper=True, specname="{hook}").',
            )
        elif not wrapper and kind != self.kind and kind.name != "callback":
            self.refuse(
                "plugin.not_selected",
                f"{name} implements {hook}, which only the {kind.label} that the job selected does",
                f"Wrap it with @hookimpl(wrapper=True), or write a {kind.label}.",
            )
        else:
            if kind == self.kind and not (wrapper and name != hook):
                self.attempted.add(hook)
            self._add(name, attribute, hook=hook, kind=kind, wrapper=wrapper)

    def _add(self, name: str, attribute: Any, *, hook: str, kind: Kind, wrapper: bool = False) -> None:
        try:
            function = self._bound(name, attribute)
            if function is None:  # `save_checkpoint = None` takes an inherited optional method away
                return
            if kind == self.kind and not wrapper:
                self.attempted.add(hook)
            if self.instance is None and not callable(function):  # a property or a slot: only an instance has its value
                return
            documented = _OWN_METHOD_ARGUMENTS[hook] if hook in kind.own_methods else kind.arguments(hook)
            removed = removed_arguments(kind.name, hook)
            self.found.append(
                read_method(
                    function, hook=hook, attribute=name, documented=documented, removed=removed, wrapper=wrapper
                )
            )
        except SignatureError as error:
            self.attempted.add(hook)
            self.refuse(error.code, str(error), error.hint)

    def _bound(self, name: str, attribute: Any) -> Any:
        if self.instance is None:
            binds = isinstance(attribute, FunctionType | staticmethod | classmethod | functools.partialmethod)
            return attribute.__get__(_NO_INSTANCE, self.owner) if binds else attribute
        try:
            return getattr(self.instance, name)
        except Exception as error:
            raise SignatureError(f"reading the attribute {name} raises {one_line(error)}") from error

    def _mark_when_recorded(self, name: str) -> None:
        for place, found in enumerate(self.found):
            if found.attribute == name and found.wrapper and found.hook == "train_step":
                self.found[place] = attrs.evolve(found, when_recorded=True)
                return
        if not any(name in error.message for error in self.errors):
            self.refuse(
                "plugin.when_recorded",
                f"{name} is marked @when_recorded, but is no wrapper around train_step",
                "Remove the marker: only train_step is called at steps whose metrics are recorded and at others.",
            )

    def _is_method_of_module(self, name: str, attribute: object) -> bool:
        """Return whether a method is written in the module of the component, not inherited from a library."""
        return isinstance(attribute, FunctionType | staticmethod | classmethod) and any(
            name in vars(layer) and layer.__module__ == self.owner.__module__ for layer in self.owner.__mro__
        )

    def _check_unmarked(self, name: str) -> None:
        """Refuse a public method without a marker that looks like a hook that the component lacks."""
        kind = self.kind
        gone = removed_hook(kind.name, name)
        if gone is not None:
            self.refuse(*_removed(name, name, kind, gone))
            return
        others = [one for one in _reachable(kind) if one is not kind and name in hooks_of(one.name)]
        if others:
            marker = "@hookimpl" if others[0].name == "callback" else "@hookimpl(wrapper=True)"
            self.refuse(
                "plugin.unmarked",
                f"{name} is a hook of {others[0].label}s; in a {kind.label} it is not called without a marker",
                f"Mark it {marker}, or @not_a_hook if it only happens to have that name.",
            )
            return
        lacks = [hook for hook in (*hooks_of(kind.name), *kind.own_methods) if hook not in self.declared]
        near = difflib.get_close_matches(name, lacks, n=1, cutoff=_CLOSE)
        if near:
            self.attempted.add(near[0])
            message = f"{name} is not a hook and is never called; did you mean {near[0]!r}?"
            self.refuse("plugin.near_miss", message, _SILENCE)
        elif kind.name == "callback" and name.startswith("on_"):
            closest = difflib.get_close_matches(name, hooks_of(kind.name), n=1, cutoff=0.0)[0]
            message = f"{name} is not a lifecycle hook and is never called; the closest is {closest!r}"
            self.refuse("plugin.near_miss", message, _SILENCE)

    def _unknown_hook(self, attribute: str, hook: str, kinds: Sequence[Kind]) -> tuple[str, str, str]:
        """Return code, message and hint for a method marked as a hook that is never called.

        :param kinds: The kinds that do have such a hook; they run elsewhere.
        """
        kind, reachable = self.kind, _reachable(self.kind)
        if kinds:
            owner = " and ".join(f"{other.label}s" for other in kinds)
            where = f"in the {kinds[0].room}" if kinds[0].room != kind.room else "and is called on them alone"
            return (
                "plugin.wrong_room",
                f"{attribute} is marked as the hook {hook}, which belongs to {owner} {where}; a {kind.label} runs in"
                f" the {kind.room}",
                f"Write a {' or '.join(other.label for other in kinds)} for it ({kinds[0].group}).",
            )
        for other in reachable:
            gone = removed_hook(other.name, hook)
            if gone is not None:
                return _removed(attribute, hook, other, gone)
        known = [name for other in reachable for name in hooks_of(other.name)]
        near = difflib.get_close_matches(hook, known, n=1, cutoff=0.6)
        message = f"{attribute} is marked as the hook {hook}, which does not exist"
        message += f"; did you mean {near[0]!r}?" if near else ""
        return "plugin.unknown_hook", message, f"Hooks that a {kind.label} can implement or wrap: {', '.join(known)}."

    def check_once(self) -> None:
        plain: dict[str, str] = {}
        for one in (one for one in self.found if not one.wrapper):
            first = plain.setdefault(one.hook, one.attribute)
            if first != one.attribute:
                self.refuse("plugin.twice", f"{first} and {one.attribute} both implement {one.hook}")

    def check_required(self) -> None:
        kind = self.kind
        if kind.name == "uploader" and self.found and all(one.wrapper for one in self.found):
            return  # it is around the other uploaders of the job, and nothing is copied to it
        # What is there but wrong has its own error already.
        begun = [hook for group in kind.defaulted if self.attempted.intersection(group) for hook in group]
        required = tuple(dict.fromkeys((*kind.required, *begun)))
        missing = [hook for hook in required if hook not in self.attempted]
        if missing:
            dynamic = any("__getattr__" in vars(layer) for layer in self.owner.__mro__)
            methods = f"method{'s' * (len(missing) > 1)} {', '.join(missing)}"
            self.refuse(
                "plugin.missing_methods",
                f"{self.owner.__qualname__} lacks the required {methods}",
                "Methods that only __getattr__ provides do not count: write them in the class, or assign them in"
                " __init__."
                if dynamic
                else f"A {kind.label} has the methods {', '.join(required)}.",
            )

    def defaults(self) -> Iterator[Implementation]:
        for hook in (hook for group in self.kind.defaulted for hook in group if hook not in self.attempted):
            default = getattr(self.kind.specification, hook)
            found = read_method(default, hook=hook, attribute=hook, documented=self.kind.arguments(hook))
            yield attrs.evolve(found, by_default=True)


def _marks(attribute: object) -> Mapping[str, Any]:
    """Return the attributes of markers on a method, whichever of ``@staticmethod`` and ``@hookimpl`` is outermost."""
    if not isinstance(attribute, FunctionType | MethodType | staticmethod | classmethod | functools.partial):
        return {}
    inner = getattr(attribute, "__func__", None)
    return {**getattr(inner, "__dict__", {}), **getattr(attribute, "__dict__", {})}


def _removed(attribute: str, hook: str, kind: Kind, gone: Deprecation) -> tuple[str, str, str]:
    what = f"the {kind.label} hook {hook}" if attribute == hook else f"{attribute} is marked as the hook {hook}, which"
    return (
        "plugin.removed",
        f"{what} {gone.history}",
        f"{gone.instead[0].upper()}{gone.instead[1:]}. A plugin that is to run on older contracts, too, marks its"
        " method @hookimpl(optionalhook=True).",
    )
