"""Effects of importing and constructing a plugin, in a child of the fork server that has imported little.

Everything that the host or the checks load is loaded before, so that only the plugin is seen. Calls (a file opened, a
thread started) come from an audit hook, the state of the process (random generators, logging, …) is compared whenever a
module begins or ends. So each effect has the module whose code was running.
"""

import importlib
import importlib.machinery
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final

from hostcore_conformance.process.state import Key, State, changed, load_what_is_watched, snapshot, told

#: Calls with an audit event of their own, and what they are called in an answer.
_CALLS: Final = {
    "subprocess.Popen": "processes",
    "os.system": "processes",
    "os.exec": "processes",
    "os.posix_spawn": "processes",
    "os.spawn": "processes",
    "os.fork": "processes",
    "os.forkpty": "processes",
    "socket.connect": "network",
    "socket.getaddrinfo": "network",
    "socket.gethostbyname": "network",
    "socket.sendto": "network",
    "open": "files",
    "os.mkdir": "files",
    "os.remove": "files",
    "os.rename": "files",
    "os.rmdir": "files",
    "os.symlink": "files",
    "os.link": "files",
    "os.truncate": "files",
    "os.chmod": "files",
}
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
_LOADERS: Final[tuple[Any, ...]] = (
    importlib.machinery.SourceFileLoader,
    importlib.machinery.SourcelessFileLoader,
    importlib.machinery.ExtensionFileLoader,
)
_LONGEST: Final = 200


class Watch:
    """Notes what happens in this process, and which module's code was running.

    :param out: The file that standard output and standard error go to.
    """

    def __init__(self, out: int) -> None:
        #: Calls in the order in which they were made, and changes that have lasted.
        self.effects: list[dict[str, Any]] = []
        #: The time that each module took, without those that it imported, in seconds.
        self.seconds: dict[str, float] = {}
        self._out = out
        self._modules: list[str] = []
        self._began: State = {}
        self._state: State = {}
        self._changes: list[tuple[Key, dict[str, Any]]] = []
        self._since = 0.0
        self._on = False
        self._thread = threading.get_ident()
        self._is_noting = False
        for loader in _LOADERS:
            loader.exec_module = self._watched(loader.exec_module)
        sys.addaudithook(self._audit)
        threads: Any = threading.Thread
        threads.start = self._started(threads.start)

    def start(self, name: str) -> None:
        """Begin to note.

        :param name: What is going on, where no module is running.
        """
        self._modules, self._changes, self.effects = [name], [], []
        self._began = self._state = snapshot(self._out)
        self._on, self._since = True, time.perf_counter()

    def stop(self) -> None:
        """Note nothing more."""
        self._boundary()
        self._on = False
        # A filter of warnings for the time of an import, a generator whose state was put back: these do not count.
        lasting = set(changed(self._began, self._state))
        self.effects += [effect for key, effect in self._changes if key in lasting]

    def _watched(self, original: Callable[[Any, ModuleType], None]) -> Callable[[Any, ModuleType], None]:
        def exec_module(loader: Any, module: ModuleType) -> None:
            if not self._on or threading.get_ident() != self._thread:
                original(loader, module)
                return
            self._boundary()
            self._modules.append(module.__name__)
            try:
                original(loader, module)
            finally:
                self._boundary()
                self._modules.pop()

        return exec_module

    def _started(self, original: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
        # Python 3.11 has no audit event for threads.
        def start(thread: threading.Thread) -> None:
            if self._on:
                self.effects.append(self._effect("threads", f"started the thread {thread.name!r}"))
            original(thread)

        return start

    def _boundary(self) -> None:
        """A module begins or ends: what has changed is the doing of the one that was running."""
        running = self._modules[-1]
        self.seconds[running] = self.seconds.get(running, 0.0) + time.perf_counter() - self._since
        state = snapshot(self._out)
        for key in changed(self._state, state):
            self._changes.append((key, self._effect(key[0], told(key, self._state, state, self._out))))
        self._state, self._since = state, time.perf_counter()

    def _effect(self, effect: str, what: str) -> dict[str, Any]:
        running = self._modules[-1]
        line = _line_of(running, sys._getframe(1))
        return {"effect": effect, "module": running, "line": line, "what": what[:_LONGEST]}

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._on or self._is_noting or event not in _CALLS:
            return
        self._is_noting = True
        try:
            what = _call(event, arguments)
            if what is not None:
                self.effects.append(self._effect(_CALLS[event], what))
        finally:
            self._is_noting = False


def _line_of(module: str, frame: FrameType | None) -> int | None:
    """The line that the code of a module has come to; None if it is not running."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == module:
            return frame.f_lineno
        frame = frame.f_back
    return None


def _call(event: str, arguments: tuple[Any, ...]) -> str | None:
    """A call in words; None if it changes nothing."""
    if event == "open":
        path, _, flags = arguments
        return f"opened {path} for writing" if flags & _WRITING and _is_somebodys(path) else None
    if _CALLS[event] == "files":
        path = arguments[0]
        in_vain = (
            event == "os.mkdir" and isinstance(path, str | bytes | os.PathLike) and Path(os.fsdecode(path)).exists()
        )
        return f"{event}({path!r})" if _is_somebodys(path) and not in_vain else None
    if event == "subprocess.Popen":
        command = arguments[1] if not isinstance(arguments[1], str) else [arguments[1]]
        return f"started {' '.join(map(str, command or [arguments[0]]))}"
    if event.startswith("socket."):
        address = arguments[1:3] if event in ("socket.connect", "socket.sendto") else arguments[:2]
        return f"{event}({', '.join(map(repr, address))})"
    return f"{event}({', '.join(map(repr, arguments[:2]))})"


def _is_somebodys(path: Any) -> bool:
    """Return whether writing there leaves something: not Python's own bytecode, nor a device."""
    if not isinstance(path, str | bytes | os.PathLike):
        return False  # the number of a descriptor, whose opening was recorded already
    text = os.fsdecode(path)
    is_bytecode = "__pycache__" in text or ".pyc" in Path(text).name
    is_device = text.startswith(("/dev/", "/proc/")) and not text.startswith("/dev/shm/")  # noqa: S108 - not ours
    return not is_bytecode and not is_device


def probe(request: dict[str, Any], watch: Watch) -> dict[str, Any]:
    """Import a plugin, and construct it if there are settings.

    :param request: See :func:`hostcore_conformance.process.probing.ask`.
    """
    module, _, symbol = request["value"].partition("[")[0].strip().partition(":")
    found: dict[str, Any] = {"error": None, "heavy": [], "construction": [], "not_constructed": None}
    began = time.perf_counter()
    watch.start(module)
    try:
        value: Any = importlib.import_module(module)
        for part in symbol.split(".") if symbol else ():
            value = getattr(value, part)
    except BaseException as error:  # noqa: BLE001 - also SystemExit: that is an answer, too
        found["error"] = _in_words(error)
    watch.stop()
    found["total_seconds"] = time.perf_counter() - began
    found["seconds"] = dict(watch.seconds)
    found["host_names"] = list(_host_names(module.partition(".")[0]))
    found["heavy"] = [name for name in request["heavy"] if name in sys.modules]
    found["effects"] = watch.effects
    if found["error"] is None:
        try:
            found["construction"] = _constructed(request, watch)
        except BaseException as error:  # noqa: BLE001 - as above
            found["not_constructed"] = _in_words(error)
    return found


def _host_names(package: str) -> Iterator[dict[str, str]]:
    """The names in the modules of a package that are defined in a module of the host."""
    for module in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        for name, value in list(getattr(sys.modules[module], "__dict__", {}).items()):
            source = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if isinstance(source, str) and source.startswith("hostcore."):
                yield {"module": module, "name": name, "source": source}


def _in_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _constructed(request: dict[str, Any], watch: Watch) -> list[dict[str, Any]]:
    from hostcore.plugins.load import load_component
    from hostcore.plugins.resolve import Selected
    from hostcore_hookspecs.plan import PluginRef

    ref = PluginRef(**request["ref"])
    selected = Selected(ref=ref, settings=request["settings"])
    # what the host imports for it, and the plugin, once
    load_component(selected, job_dir=Path(request["job_dir"]), import_paths=True)
    watch.start("")
    load_component(selected, job_dir=Path(request["job_dir"]), import_paths=True)
    watch.stop()
    return watch.effects


def examine(request: str) -> dict[str, Any]:
    """Run :func:`probe` in a child. The plugin's output, from C as well, goes to a file.

    :param request: JSON.
    """
    asked = json.loads(request)
    sys.path[:] = asked["sys_path"]
    errors = os.dup(2)
    with tempfile.TemporaryFile(prefix="hostcore-probe-") as file:
        out = os.dup(file.fileno())
    os.dup2(out, 1)
    os.dup2(out, 2)
    try:
        load_what_is_watched(torch=asked["torch"])
        return probe(asked, Watch(out))
    except BaseException:
        os.dup2(errors, 2)
        raise
