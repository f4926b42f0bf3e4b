"""What ends attempts of a run in the middle: told from outside, so that the job of all attempts is the same."""

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

from hostcore_hookspecs import hookimpl
from hostcore_hookspecs.kinds import KINDS

CALLBACK: Final = "hostcore_conformance.checks.trainer.interruption:Interruption"
#: ``kill train_step 5``: in the fifth call of the method. ``stop 3``: after the third step, as if the machine were
#: taken away. Empty: not at all.
VARIABLE: Final = "HOSTCORE_CONFORMANCE_INTERRUPTION"


class Interruption:
    """A callback around all methods of the trainer, that may stop or kill the process."""

    def __init__(self) -> None:
        self._wish = os.environ.get(VARIABLE, "").split()
        self._calls = Counter[str]()

    def on_batch_end(self, run_state: Any) -> None:
        """Ask the run to stop, as a machine does that is taken away."""
        if self._wish == ["stop", str(run_state.step)]:
            os.kill(os.getpid(), signal.SIGTERM)

    def around(self, method: str) -> Generator[None, Any, Any]:
        """A call of a method of the trainer."""
        self._calls[method] += 1
        if self._wish != ["kill", method, str(self._calls[method])]:
            return (yield)
        _kill_at_first_file()
        yield
        _kill()


def _wrapper(method: str) -> Any:
    def wrap(self: Interruption) -> Generator[None, Any, Any]:
        return (yield from self.around(method))

    wrap.__name__ = method
    return hookimpl(wrapper=True)(wrap)


for _method in KINDS["trainer"].hooks:
    setattr(Interruption, _method, _wrapper(_method))


def _kill_at_first_file() -> None:
    """Kill the process as soon as this thread has created or emptied a file, and before anything is written into it."""
    here = threading.get_ident()
    opening: list[str] = []

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and threading.get_ident() == here and _is_to_write(*arguments):
            opening.append(event)

    def look(_frame: Any, event: str, _argument: Any) -> None:
        if opening and event == "c_return":
            _kill()

    sys.addaudithook(note)
    sys.setprofile(look)


def _is_to_write(path: Any, mode: str | None, flags: int) -> bool:
    if not isinstance(path, str | bytes | os.PathLike):
        return False  # a descriptor
    parts = Path(os.fsdecode(path)).parts
    writes = bool(set(mode) & set("wax+")) if mode else bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    return writes and "__pycache__" not in parts and parts[:2] != ("/", "dev")


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
