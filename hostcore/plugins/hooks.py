"""The hooks of one run in one room: a fresh pluggy manager, and direct calls of hooks without wrappers.

pluggy never sees a component, only holders that carry its hooks. Registered itself, a component with keyword-only
parameters would be called without them, an attrs class with ``eq`` cannot be hashed, and two data sources would answer
for each other.

Small compiled functions adapt how the host calls a method to how the method is written. The host passes all documented
arguments by position; a method may take a subset, in another order, or by keyword only. They are compiled from source,
as ``collections.namedtuple`` and attrs do it, since some are called every step, and a generic ``def call(*values)``
costs several times as much. The names come from the hook specifications alone.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import pluggy

from hostcore.plugins.load import Component
from hostcore.plugins.signatures import Implementation
from hostcore_hookspecs.kinds import KINDS, Kind
from hostcore_hookspecs.markers import PROJECT_NAME

#: The kinds whose hooks one manager of the worker has. In the supervisor each kind has a manager of its own: reporters
#: and uploaders both have ``open`` and ``close``.
WORKER_KINDS: Final = tuple(kind.name for kind in KINDS.values() if kind.room == "worker")
Call = Callable[..., Any]


def by_keyword(
    target: Callable[..., Any],
    takes: Sequence[str],
    passes: Sequence[str],
    defaults: Mapping[str, Any] = MappingProxyType({}),
) -> Callable[..., Any]:
    """Return a function of the arguments ``takes`` that calls the target with those of ``passes``, as keywords.

    :param defaults: Of those of ``takes`` that need not be given; they are the last.
    """
    parameters = ", ".join(f"{name}=_defaults[{name!r}]" if name in defaults else name for name in takes)
    return _compiled(f"lambda {parameters}: _target({_keywords(passes)})", target, defaults)


def generator_by_keyword(target: Callable[..., Any], takes: Sequence[str], passes: Sequence[str]) -> Callable[..., Any]:
    """Return the same for a target that returns a generator: a generator function, as pluggy demands."""
    return _compiled(f"lambda {', '.join(takes)}: (yield from _target({_keywords(passes)}))", target)


def _keywords(names: Sequence[str]) -> str:
    return ", ".join(f"{name}={name}" for name in names)


def _compiled(
    source: str, target: Callable[..., Any], defaults: Mapping[str, Any] = MappingProxyType({})
) -> Callable[..., Any]:
    code = compile(source, "<hostcore hook adapter>", "eval")
    function: Callable[..., Any] = eval(code, {"_target": target, "_defaults": defaults})  # noqa: S307 - our own names
    return function


class _HookHolder:
    """Carrier of the methods of one component into pluggy. Compared and hashed by identity."""

    def __init__(self) -> None:
        self.options: dict[str, pluggy.HookimplOpts] = {}

    def add(self, name: str, function: Call, *, hook: str, wrapper: bool) -> None:
        setattr(self, name, function)
        self.options[name] = {
            "wrapper": wrapper,
            "hookwrapper": False,
            "optionalhook": False,
            "tryfirst": False,
            "trylast": False,
            "specname": hook,
        }


class _Manager(pluggy.PluginManager):
    """Manager of holders, without markers; all but callbacks are called alone, so their hooks have one result."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        return plugin.options.get(name) if isinstance(plugin, _HookHolder) else None

    def parse_hookspec_opts(self, module_or_class: Any, name: str) -> pluggy.HookspecOpts | None:
        options = super().parse_hookspec_opts(module_or_class, name)
        if options is not None and module_or_class is not KINDS["callback"].specification:
            # A wrapper around a component that is called alone gets its result, not a list of one.
            return {**options, "firstresult": True}
        return options


class Hooks:
    """The components of one run in one room, ready to be called.

    The order of the components is the order of calls; the first wrapper is the outermost. What :meth:`bind` returns
    takes all documented arguments, by position; those that a later contract added with a default may be left out. Bind
    before a loop, not in it.

    :param components: In the order of the job.
    :param kinds: Whose hooks there are; those of the worker if not given.
    :raises ValueError: When two of the kinds have a hook of the same name, or a component is of another kind.
    """

    def __init__(self, components: Sequence[Component], *, kinds: Sequence[str] = WORKER_KINDS) -> None:
        self._components = tuple(components)
        self._kind_of: dict[str, Kind] = {}
        self._manager = _Manager(PROJECT_NAME)
        for kind in (KINDS[name] for name in kinds):
            for hook in kind.hooks:
                if self._kind_of.setdefault(hook, kind) is not kind:
                    raise ValueError(f"{kind.name} and {self._kind_of[hook].name} both have a hook {hook}")
            self._manager.add_hookspecs(kind.specification)
        self._arguments = {hook: kind.arguments(hook) for hook, kind in self._kind_of.items()}
        self._defaults = {hook: kind.defaults(hook) for hook, kind in self._kind_of.items()}
        #: Hooks with wrappers; and those of them that are wrapped also where no metrics are recorded.
        self._wrapped: set[str] = set()
        self._wrapped_always: set[str] = set()
        #: The wrappers that are marked ``@when_recorded``.
        self._when_recorded: list[_HookHolder] = []
        #: By the identity of a component: its plain implementations.
        self._holders: dict[int, _HookHolder] = {}
        # pluggy calls the last registered first.
        for component in reversed(self._components):
            self._register(component)

    def _register(self, component: Component) -> None:
        if component.kind not in self._kind_of.values():
            raise ValueError(f"{component.use} is a {component.kind.label}, whose hooks are not here")
        plain, wrappers, when_recorded = _HookHolder(), _HookHolder(), _HookHolder()
        for found in component.implementations:
            if found.hook not in self._kind_of:
                continue  # callback_state: called on the component itself
            if found.wrapper:
                self._wrapped.add(found.hook)
                if not found.when_recorded:
                    self._wrapped_always.add(found.hook)
                holder = when_recorded if found.when_recorded else wrappers
                holder.add(found.attribute, _for_pluggy(found), hook=found.hook, wrapper=True)
            else:
                plain.add(found.hook, _for_pluggy(found), hook=found.hook, wrapper=False)
        self._manager.register(plain, name=f"{component.use} ({id(component)})")
        self._manager.register(wrappers, name=f"{component.use} ({id(component)}), wrappers")
        if when_recorded.options:
            self._manager.register(when_recorded, name=f"{component.use} ({id(component)}), when recorded")
            self._when_recorded.append(when_recorded)
        self._holders[id(component)] = plain

    def is_wrapped_when_recorded(self, hook: str) -> bool:
        """Return whether some of its wrappers are marked ``@when_recorded``."""
        return any(hook in holder.options for holder in self._when_recorded)

    def bind(self, hook: str, of: Component | None = None, *, recorded: bool = True) -> Call | None:
        """Return a callable that takes all documented arguments of a hook by position; None without anything to call.

        Without a wrapper: one method is called directly (the bound method itself if it takes the documented arguments
        in order), several in a plain loop. Wrapped: through pluggy.

        :param of: Call the implementation of this component alone, inside all wrappers, and return what it returns;
            None for a component that lacks the method. Without it, call all components; the result counts for hooks
            that stop at the first (``select_device``) only.
        :param recorded: False: without the wrappers that are marked ``@when_recorded``. With ``of`` only.
        :raises KeyError: There is no such hook in this room.
        """
        if of is not None:
            return self._bind_one(hook, of, recorded=recorded)
        arguments = self._arguments[hook]
        if hook in self._wrapped:
            return by_keyword(getattr(self._manager.hook, hook), arguments, arguments, self._defaults[hook])
        plain = [implementation for one in self._components if (implementation := _implementation(one, hook))]
        calls = tuple(_direct(implementation, arguments, self._defaults[hook]) for implementation in plain)
        if len(calls) < 2:
            return calls[0] if calls else None
        return _first_result(calls) if self._stops_at_first(hook) else _all(calls)

    def _bind_one(self, hook: str, component: Component, *, recorded: bool) -> Call | None:
        implementation = _implementation(component, hook)
        if hook in component.kind.own_methods:
            return _direct(implementation, implementation.arguments, {}) if implementation else None
        arguments, defaults = self._arguments[hook], self._defaults[hook]
        if implementation is None:
            return None
        if hook not in (self._wrapped if recorded else self._wrapped_always):
            return _direct(implementation, arguments, defaults)
        mine = self._holders[id(component)]
        others = [holder for holder in self._holders.values() if holder is not mine and hook in holder.options]
        others += [] if recorded else [holder for holder in self._when_recorded if hook in holder.options]
        return by_keyword(self._manager.subset_hook_caller(hook, others), arguments, arguments, defaults)

    def _stops_at_first(self, hook: str) -> bool:
        options = self._manager.parse_hookspec_opts(self._kind_of[hook].specification, hook)
        return bool(options and options["firstresult"])


def _implementation(component: Component, hook: str) -> Implementation | None:
    return next((one for one in component.implementations if one.hook == hook and not one.wrapper), None)


def _direct(implementation: Implementation, documented: Sequence[str], defaults: Mapping[str, Any]) -> Call:
    if implementation.exact and not defaults:
        return implementation.function
    return by_keyword(implementation.function, documented, implementation.arguments, defaults)


def _for_pluggy(implementation: Implementation) -> Call:
    if implementation.plain:
        return implementation.function
    adapter = generator_by_keyword if implementation.wrapper else by_keyword
    return adapter(implementation.function, implementation.arguments, implementation.arguments)


def _all(calls: Sequence[Call]) -> Call:
    def call_all(*values: Any) -> None:
        for call in calls:
            call(*values)

    return call_all


def _first_result(calls: Sequence[Call]) -> Call:
    def call_until_result(*values: Any) -> Any:
        for call in calls:
            result = call(*values)
            if result is not None:
                return result
        return None

    return call_until_result
