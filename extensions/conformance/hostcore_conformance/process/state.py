"""State that all code of a process shares, and its changes."""

import logging
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

#: A part of the state (a variant of the checks), and what in it: ``("environment", "PATH")``.
Key = tuple[str, str]
State = Mapping[Key, Any]

_ASKED_OF_TORCH: Final = (
    "get_num_threads",
    "get_num_interop_threads",
    "get_default_dtype",
    "get_default_device",
    "is_grad_enabled",
    "is_anomaly_enabled",
    "are_deterministic_algorithms_enabled",
)
_CUDNN_FLAGS: Final = ("benchmark", "deterministic")
_LONGEST_OUTPUT: Final = 120
_FEWEST_THREADS: Final = 2

#: Torch, if it was there before the plugin: one that is just being imported cannot be asked.
_watched: list[Any] = []
_initialised_cuda: list[bool] = []


def load_what_is_watched(*, torch: bool) -> None:
    """Import what has a state to watch, if it is installed, so that the import itself changes nothing any more.

    :param torch: Whether that is one of them.
    """
    tempfile.gettempdir()  # looks, the first time, where it can write
    for name in ("numpy", *(["torch"] if torch else [])):
        try:
            __import__(name)
        except ImportError:
            continue
    if torch and "torch" in sys.modules:
        # A fork server has one, and a plugin that sets one is to be seen.
        sys.modules["torch"].set_num_threads(max(_FEWEST_THREADS, os.cpu_count() or 1))
        _watch_cuda(sys.modules["torch"])


def _watch_cuda(torch: Any) -> None:
    _watched.append(torch)
    original: Callable[[], None] = torch.cuda._lazy_init

    def noted() -> None:
        # Also where there is no CUDA, and the attempt fails: the plugin is checked for machines that have it.
        _initialised_cuda.append(True)
        original()

    torch.cuda._lazy_init = noted  # called by name, from C++ as well


def snapshot(out: int) -> State:
    """The state of this process, as values that can be compared.

    :param out: The descriptor of the file that standard output and standard error go to.
    """
    state: dict[Key, Any] = {("environment", name): value for name, value in os.environ.items()}
    state |= {("signals", number.name): signal.getsignal(number) for number in signal.Signals}
    state |= {("random", name): value for name, value in _generators()}
    state |= {("torch", name): value for name, value in _torch_settings()}
    state |= {("logging", name): value for name, value in _logging()}
    state["cuda", "CUDA"] = bool(_initialised_cuda)
    state["working_directory", "the working directory"] = os.getcwd()  # noqa: PTH109 - called twice for each module
    state["processes", "the start method of multiprocessing"] = multiprocessing.get_start_method(allow_none=True)
    state["module_path", "sys.path"] = tuple(sys.path)
    state["warnings", "warnings.filters"] = tuple(warnings.filters)
    state["output", ""] = _written(out)
    return state


def changed(before: State, after: State) -> Iterator[Key]:
    """Yield the keys in which two states differ."""
    for key in {**before, **after}:
        if key in before and key in after:
            if before[key] != after[key]:
                yield key
        elif key[0] == "environment":
            # What else is new has come in with its module: the generator of numpy.
            yield key


def told(key: Key, before: State, after: State, out: int) -> str:
    """A change as a sentence without its subject; without values of the environment, one of which may be a secret."""
    part, name = key
    then: Any = before.get(key)
    now: Any = after.get(key)
    if part == "output":
        return f"printed {_read(out, then, now)!r}"
    if part == "random":
        return f"seeded or drew from the global generator of {name}"
    if part == "environment":
        return f"{'removed' if now is None else 'set' if then is None else 'changed'} the variable {name}"
    if part == "signals":
        return f"installed a handler of {name}"
    if part == "cuda":
        return "initialised CUDA"
    if isinstance(now, tuple) and (added := [one for one in now if one not in then]):
        return f"added {', '.join(map(repr, added))} to {name}"
    return f"changed {name}" + ("" if isinstance(now, tuple) else f" from {then!r} to {now!r}")


def _generators() -> Iterator[tuple[str, Any]]:
    yield "random", random.getstate()
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        state = numpy.random.get_state()
        yield "numpy.random", (state[1].tobytes(), *state[2:])
    for torch in _watched:
        yield "torch", torch.get_rng_state().numpy().tobytes()


def _torch_settings() -> Iterator[tuple[str, Any]]:
    for torch in _watched:
        for name in _ASKED_OF_TORCH:
            if hasattr(torch, name):
                yield f"torch.{name}()", getattr(torch, name)()
        for name in _CUDNN_FLAGS:
            yield f"torch.backends.cudnn.{name}", getattr(torch.backends.cudnn, name)


def _logging() -> Iterator[tuple[str, Any]]:
    root = logging.getLogger()
    yield "the level of the root logger", logging.getLevelName(root.level)
    yield "the handlers of the root logger", tuple(type(handler).__name__ for handler in root.handlers)
    yield "logging.disable", logging.root.manager.disable
    yield "the class of loggers", logging.getLoggerClass().__qualname__


def _written(out: int) -> int:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    return os.fstat(out).st_size


def _read(out: int, start: int, end: int) -> str:
    return os.pread(out, min(end - start, _LONGEST_OUTPUT), start).decode(errors="replace").strip()
