"""``--trace-hooks``: every call of a hook or a trainer's method, written down as it begins and as it ends.

Done where components are put in place, so that a run without it pays nothing. No tensor is read: of its arguments a
call shows types, shapes, data types and devices. ::

     seconds   step  call
      0.0021      0  setup  trainer:digits (digits 1.0)  0.4 ms
      0.8120      0  train_step  callback:0:clip (clips 2.1), wrapper  (prepared_batch=Tensor[32, 64] float32 cpu)
      0.8122      0    train_step  trainer:digits (digits 1.0)  (prepared_batch=…)  3.1 ms -> StepResult(…)
      0.8153      0  train_step  3.4 ms -> StepResult(metrics={loss: Tensor[] float32 cpu})

A call that has not come back stands at the end of the file, without a time.
"""

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore.plugins.errors import one_line
from hostcore.plugins.load import Component
from hostcore.plugins.signatures import Implementation
from hostcore.secrets.scrub import scrub, scrub_bytes
from hostcore_hookspecs.run_state import RunState

_HEAD: Final = "   seconds    step  call\n"
#: The packages whose values have a shape.
_ARRAYS: Final = frozenset({"torch", "numpy", "pyarrow"})
#: Always the same, or of any size: not shown.
_NOT_SHOWN: Final = frozenset({"ctx", "run_state", "state"})
_MOST_SHOWN: Final = 4
_DEEPEST: Final = 3
_LONGEST_TEXT: Final = 40


class Trace:
    """The calls of one worker, in their order and nested as they were made.

    :param clock: Seconds, from anywhere.
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = clock()
        self._depth = 0
        #: The call whose line is not ended yet.
        self._unfinished: _TracedCall | None = None
        #: What there is no file for yet.
        self._waiting: list[str] = [_HEAD]
        self._file: int | None = None
        self._run_state = RunState()

    def follow(self, run_state: RunState) -> None:
        """Show the steps of a run from now on."""
        self._run_state = run_state

    def open(self, path: Path) -> None:
        """Write what was called up to now, and from now on each call at once.

        :raises OSError: When the file cannot be written.
        """
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        os.write(self._file, scrub_bytes("".join(self._waiting).encode()))
        self._waiting.clear()

    def close(self) -> None:
        """Write nothing more."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def of(self, component: Component) -> Component:
        """Return a component whose calls are recorded."""
        traced = (self._traced(component, one) for one in component.implementations)
        return attrs.evolve(component, implementations=tuple(traced))

    def _traced(self, component: Component, found: Implementation) -> Implementation:
        ref = component.ref
        who = f"{component.use} ({ref.dist} {ref.version})" if ref.dist else component.use

        def call(*values: Any, **named: Any) -> Any:
            given = dict(zip(found.arguments, values, strict=False)) | named
            with self._call(found.hook, who, given) as this:
                result = found.function(*values, **named)
                this.outcome = "" if result is None else f"-> {summary(result)}"
            return result

        def wrap(**named: Any) -> Generator[Any, Any, Any]:
            with self._call(found.hook, f"{who}, wrapper", named) as this:
                result = yield from found.function(**named)
                this.outcome = "" if result is None else f"-> {summary(result)}"
            return result

        # Not plain: pluggy would read the arguments off these functions.
        return attrs.evolve(found, function=wrap if found.wrapper else call, plain=False)

    @contextmanager
    def _call(self, hook: str, who: str, given: Mapping[str, Any]) -> "Iterator[_TracedCall]":
        shown = ", ".join(f"{name}={summary(value)}" for name, value in given.items() if name not in _NOT_SHOWN)
        call, began = _TracedCall(), self._clock()
        self._write(f"{self._place()}{hook}  {who}{f'  ({shown})' if shown else ''}", begins=call)
        self._depth += 1
        try:
            yield call
        except BaseException as error:
            call.outcome = f"raised {one_line(error)}"
            raise
        finally:
            self._depth -= 1
            took = f"  {(self._clock() - began) * 1000:.3g} ms{f' {call.outcome}' if call.outcome else ''}\n"
            self._write(took if self._unfinished is call else f"{self._place()}{hook}{took}", ends=call)

    def _place(self) -> str:
        return f"{self._clock() - self._began:10.4f} {self._run_state.step:>7}  {'  ' * self._depth}"

    def _write(self, text: str, *, begins: "_TracedCall | None" = None, ends: "_TracedCall | None" = None) -> None:
        if self._unfinished is not None and self._unfinished is not ends:
            text = f"\n{text}"
        self._unfinished = begins
        if self._file is None:
            self._waiting.append(text)
        else:
            os.write(self._file, scrub_bytes(text.encode()))


@attrs.define(eq=False)
class _TracedCall:
    """A call that has begun."""

    outcome: str = ""


def summary(value: object, depth: int = 0) -> str:
    """Summarize a value in a few words. Of a tensor only shape, data type and device are read."""
    kind = type(value).__name__
    if value is None or isinstance(value, bool | int):
        return repr(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str):
        value = scrub(value)  # before it is cut
        return repr(value if len(value) <= _LONGEST_TEXT else f"{value[: _LONGEST_TEXT - 1]}…")
    if any(cls.__module__.partition(".")[0] in _ARRAYS for cls in type(value).__mro__):
        return _of_array(value, kind)
    if depth >= _DEEPEST:
        return kind
    if isinstance(value, Mapping):
        return f"{{{_listed(value.items(), len(value), depth)}}}"
    if isinstance(value, list | tuple):
        inner = _listed(((None, one) for one in value), len(value), depth)
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    cls: Any = type(value)
    if not attrs.has(cls):
        return kind
    fields = {one.name: getattr(value, one.name, None) for one in attrs.fields(cls)}
    given = {
        name: one for name, one in fields.items() if one is not None and not (isinstance(one, Mapping) and not one)
    }
    return f"{kind}({_listed(given.items(), len(given), depth, '=')})"


def _of_array(value: Any, kind: str) -> str:
    """Return ``Tensor[32, 64] float32 cuda:0``, ``ndarray[3] int64``, ``RecordBatch[32, 5]``; else the type alone."""
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple):
        return kind
    dtype = str(getattr(value, "dtype", ""))
    of_torch = dtype.startswith("torch.")
    more = [dtype.removeprefix("torch."), str(value.device) if of_torch else ""]
    return " ".join([f"{kind}[{', '.join(map(str, shape))}]", *filter(None, more)])


def _listed(items: Iterable[tuple[Any, Any]], count: int, depth: int, between: str = ": ") -> str:
    shown = [
        summary(one, depth + 1) if name is None else f"{name}{between}{summary(one, depth + 1)}"
        for name, one in islice(items, _MOST_SHOWN)
    ]
    return ", ".join([*shown, "…"] if count > _MOST_SHOWN else shown)
