"""Attribution of an exception to a component, and the part of its traceback that the component's author can change."""

import inspect
import sys
import traceback as tracebacks
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Final

from hostcore.events.bounds import MOST_TRACEBACK, bounded
from hostcore.secrets.scrub import scrub

if TYPE_CHECKING:
    from hostcore.plugins.load import Component

#: Code in these packages is never the plugin's own, though a component's class may come from there.
_HOSTS = frozenset({"builtins", "hostcore", "hostcore_hookspecs", "hostcore_toolkit"})


#: Of a traceback's beginning, and of its end: a recursion may have a hundred thousand.
_MOST_FRAMES: Final = 100


def attribute(error: BaseException, components: "Sequence[Component]") -> "Component | None":
    """Return the component that an exception came from; None if no frame of its traceback is a component's.

    From the innermost frame outwards: a method of the component itself, then code of its module, then code of its
    top-level package. Where several components fit, frames further out decide between them.
    """
    candidates = list(components)
    first: Component | None = None
    for frame, _ in reversed(list(_frames(error.__traceback__))):
        fitting = _fitting(frame, candidates)
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            candidates, first = fitting, first or fitting[0]
    return first


def calling(components: "Sequence[Component]") -> "Component | None":
    """Return the component whose method is running right now, the innermost; None if none is."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        for component in components:
            if _is_method(frame, component):
                return component
        frame = frame.f_back
    return None


def author_of(frame: FrameType, components: "Sequence[Component]") -> "Component | None":
    """Return the component whose code a frame runs, or has run; None if it is of none, or of several."""
    fitting = _fitting(frame, components)
    return fitting[0] if len(fitting) == 1 else None


def _fitting(frame: FrameType, components: "Sequence[Component]") -> "list[Component]":
    """Return the components that a frame belongs to most closely."""
    for belongs in (_is_method, _is_in_module, _is_in_package):
        if fitting := [component for component in components if belongs(frame, component)]:
            return fitting
    return []


def plugin_traceback(error: BaseException, component: "Component") -> str:
    """Return the traceback as text, without the host's frames in front of the component's first one."""
    package = _top_level(component)
    return traceback_from(error, lambda frame: _is_method(frame, component) or _module(frame)[0] == package)


def plugin_place(error: BaseException, component: "Component") -> str | None:
    """Return file and line of the component's innermost frame, ``trainer.py:30``; None if there is none."""
    found = place(error, in_package(_top_level(component)))
    return f"{found[0]}:{found[1]}" if found else None


def defined_at(component: "Component", method: str) -> str | None:
    """Return file and line of a component's method, ``trainer.py:30``; None if it is no function written in Python."""
    found = getattr(component.instance, method, None)
    code = getattr(inspect.unwrap(getattr(found, "__func__", found)), "__code__", None) if callable(found) else None
    return f"{code.co_filename}:{code.co_firstlineno}" if isinstance(code, CodeType) else None


def traceback_from(error: BaseException, belongs: Callable[[FrameType], bool]) -> str:
    """Return the traceback as text, from the first frame that belongs on; all of it if none does."""
    start = error.__traceback__
    for frame, traceback in _frames(error.__traceback__):
        if belongs(frame):
            start = traceback
            break
    return _formatted(error, start)


def whole_traceback(error: BaseException) -> str:
    """Return the traceback as text, with the host's frames."""
    return _formatted(error, error.__traceback__)


def _formatted(error: BaseException, start: TracebackType | None) -> str:
    """Format a traceback as Python does; of very many frames, and of very long messages, head and tail."""
    whole = tracebacks.TracebackException(type(error), error, start, lookup_lines=False, compact=True)
    waiting, seen = [whole], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        left_out = len(one.stack) - 2 * _MOST_FRAMES
        if left_out > 0:
            words = tracebacks.FrameSummary(f"[… {left_out:,} frames left out …]", 0, "…", lookup_line=False, line="")
            one.stack[_MOST_FRAMES:-_MOST_FRAMES] = [words]
        waiting += [other for other in (one.__cause__, one.__context__, *(one.exceptions or ())) if other is not None]
    # Piece by piece: one of them is the message.
    return bounded(scrub("".join(bounded(piece) for piece in whole.format())), MOST_TRACEBACK)


def place(error: BaseException, belongs: Callable[[FrameType], bool]) -> tuple[str, int] | None:
    """Return file and line of the innermost frame that belongs; those of a syntax error itself."""
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno or 1
    for frame, traceback in reversed(list(_frames(error.__traceback__))):
        if belongs(frame):
            return frame.f_code.co_filename, traceback.tb_lineno
    return None


def in_package(package: str) -> Callable[[FrameType], bool]:
    """Return a test for frames that run code of a top-level package or module."""
    return lambda frame: _module(frame)[0] == package


def _frames(traceback: TracebackType | None) -> Iterator[tuple[FrameType, TracebackType]]:
    while traceback is not None:
        yield traceback.tb_frame, traceback
        traceback = traceback.tb_next


def _module(frame: FrameType) -> tuple[str, str]:
    """Return the top-level package of a frame's code, and its module."""
    module = frame.f_globals.get("__name__")
    name = module if isinstance(module, str) else ""
    return name.partition(".")[0], name


def _top_level(component: "Component") -> str:
    return type(component.instance).__module__.partition(".")[0]


def _is_method(frame: FrameType, component: "Component") -> bool:
    code = frame.f_code
    return code.co_argcount > 0 and frame.f_locals.get(code.co_varnames[0]) is component.instance


def _is_in_module(frame: FrameType, component: "Component") -> bool:
    return _module(frame)[1] == type(component.instance).__module__


def _is_in_package(frame: FrameType, component: "Component") -> bool:
    package = _top_level(component)
    return package not in _HOSTS and _module(frame)[0] == package
