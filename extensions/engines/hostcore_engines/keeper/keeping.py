"""Life of a keeper: it starts its command, shows that it lives, stops the command on request, and records its end."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import BinaryIO, Final

from hostcore_builtin_plugins.processes import children, identity, kill_all, send
from hostcore_engines.keeper.agent import Agent
from hostcore_engines.keeper.folder import LaunchFolder
from hostcore_engines.keeper.launch_spec import LaunchSpec
from hostcore_engines.keeper.rank import FOLDER_VARIABLE

#: The address at which other machines reach this one, if the process that starts the keeper knows it.
ADDRESS_VARIABLE: Final = "HOSTCORE_LAUNCH_ADDRESS"
#: As shells have it.
_NOT_FOUND: Final = 127
_NOTHING_BEGUN: Final = 1
_TICK_SECONDS: Final = 0.1
_SHOW_LIFE_SECONDS: Final = 5.0
#: How long it may take until every node has its keeper.
_MEET_SECONDS: Final = 300.0
#: How long an agent whose ranks have stopped may take to end.
_AGENT_SECONDS: Final = 10.0
#: Ports that systems do not give to connections by themselves: one of those may be gone before the agent listens.
_PORTS: Final = range(20_000, 30_000)


class Keeper:
    """The keeper of a node.

    :param parent: The process of an engine that has started it. It sends its signals to all below it, and what is kept
        ends with it. None: the command survives the process that started the keeper, and gets a SIGTERM that
        the keeper gets.
    :param popen: Starts a process; takes what :class:`subprocess.Popen` takes.
    """

    def __init__(
        self,
        folder: LaunchFolder,
        node: int,
        *,
        parent: int | None = None,
        popen: "Callable[..., subprocess.Popen[bytes]]" = subprocess.Popen,
    ) -> None:
        self._folder = folder
        self._node = node
        self._parent = parent
        self._popen = popen
        self._shown = float("-inf")
        #: The grace of the newest cancellation, in seconds, and by when all is to be over; monotonic.
        self._grace: float | None = None
        self._over = float("inf")

    def claim(self) -> bool:
        """Take the node; whether no keeper has before."""
        self._show_life()  # before the claim: without it, another machine takes the keeper for dead
        return self._folder.claim(self._node, identity(os.getpid()))

    def keep(self, *, output: BinaryIO | None = None) -> int:
        """Run what is to be run, to its end.

        :param output: Where its output goes; None: where the keeper's does.
        :return: Its exit code; below zero: it died of that signal.
        """
        # Who started this process may ignore or block them, and so would all that is started here.
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)  # a handler ends with exec, SIG_IGN would not
        launch_spec = self._folder.launch_spec()
        command = list(launch_spec.command)
        if launch_spec.agent is not None:
            meeting = self._meeting(launch_spec.agent)
            if meeting is None:
                return self._give_up()
            command = self._agent(launch_spec.agent, meeting)
        code = self._run(launch_spec, command, output)
        self._folder.end(self._node, code)
        return code

    def _run(self, launch_spec: LaunchSpec, command: list[str], output: BinaryIO | None) -> int:
        try:
            process = self._popen(
                command,
                env=self._environment(launch_spec),
                cwd=launch_spec.cwd if os.access(launch_spec.cwd, os.X_OK) else None,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
            )
        except OSError as error:
            _say(f"cannot start {command[0]}: {error.strerror}")
            return _NOT_FOUND
        if self._parent is None:
            signal.signal(signal.SIGTERM, lambda *_: send(process.pid, signal.SIGTERM))
        self._watch(process, launch_spec)
        return process.returncode

    def _watch(self, process: "subprocess.Popen[bytes]", launch_spec: LaunchSpec) -> None:
        """Wait for the end of a process, and bring it about if asked."""
        ranks: list[int] = []
        while process.poll() is None:
            listed = children(process.pid) if launch_spec.agent else [process.pid]
            if process.poll() is not None:  # the ranks of an agent that died meanwhile have another parent now
                break
            ranks = listed
            if self._folder.cancelled() is not None:
                self._stop(process, ranks, signal.SIGINT, due=self._due)
            elif self._parent not in (None, os.getppid()):
                over = time.monotonic() + launch_spec.grace_seconds
                self._stop(process, ranks, signal.SIGTERM, due=partial(float, over))
            self._wait(process)
        if launch_spec.agent and process.returncode < 0:  # its ranks would go on without an agent
            for pid in ranks:
                kill_all(pid)

    def _environment(self, launch_spec: LaunchSpec) -> dict[str, str]:
        around = {name: value for name, value in os.environ.items() if name != ADDRESS_VARIABLE}
        environment = {**around, **launch_spec.env}
        if launch_spec.agent is not None:
            environment[FOLDER_VARIABLE] = str(self._folder.path)
            # torchrun gives every rank one processor unless this is set.
            share = max(1, (os.cpu_count() or 1) // launch_spec.agent.ranks_per_node)
            environment.setdefault("OMP_NUM_THREADS", str(share))
            environment.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(round(launch_spec.grace_seconds)))
        return environment

    def _agent(self, agent: Agent, meeting: tuple[str, int]) -> list[str]:
        address = agent.address(self._node) or os.environ.get(ADDRESS_VARIABLE)
        rank = [sys.executable, "-P", "-m", "hostcore_engines.keeper.rank"]
        return agent.command(self._node, host=meeting[0], port=meeting[1], address=address, rank=rank)

    def _meeting(self, agent: Agent) -> tuple[str, int] | None:
        """Return the agents' meeting point, which node 0 writes once every node has its keeper; None at a timeout."""
        due = time.monotonic() + _MEET_SECONDS
        while (meeting := self._folder.meeting()) is None:
            if time.monotonic() > due or self._folder.cancelled() is not None:
                return None
            if self._node == 0 and all(self._folder.claimed(node) is not None for node in range(agent.nodes)):
                host = agent.host or os.environ.get(ADDRESS_VARIABLE) or socket.gethostname()
                self._folder.meet(host, agent.port or _free_port())
                continue
            self._show_life()
            time.sleep(_TICK_SECONDS)
        return meeting

    def _give_up(self) -> int:
        """Nothing has begun; unless it was cancelled, another try may start this node again."""
        if self._folder.cancelled() is None:
            _say("not every node has its keeper: nothing has begun")
            self._folder.leave(self._node)
        else:
            self._folder.end(self._node, _NOTHING_BEGUN)
        return _NOTHING_BEGUN

    def _due(self) -> float:
        """By when what was cancelled is to be over; a later request can only shorten that."""
        grace = self._folder.cancelled() or 0.0  # none any more: the run was removed
        if grace != self._grace:
            self._grace = grace
            self._over = min(self._over, time.monotonic() + grace)
        return self._over

    def _stop(
        self,
        process: "subprocess.Popen[bytes]",
        ranks: list[int],
        number: signal.Signals,
        *,
        due: Callable[[], float],
    ) -> None:
        """Have the ranks stop, and end what is left when the time is over."""
        for pid in ranks:
            send(pid, number)
        while process.poll() is None and time.monotonic() < due():
            if process.pid not in ranks and not set(ranks) & set(children(process.pid)):
                # The agent alone is left, and may want to start them again.
                send(process.pid, signal.SIGTERM)
                last = time.monotonic() + _AGENT_SECONDS
                while process.poll() is None and time.monotonic() < last:
                    self._wait(process)
                break
            self._wait(process)
        if process.poll() is None:
            kill_all(process.pid)
            process.wait()

    def _wait(self, process: "subprocess.Popen[bytes]") -> None:
        self._show_life()
        try:
            process.wait(_TICK_SECONDS)
        except subprocess.TimeoutExpired:
            return

    def _show_life(self) -> None:
        if time.monotonic() - self._shown > _SHOW_LIFE_SECONDS:
            self._shown = time.monotonic()
            self._folder.show_life(self._node)


def _free_port() -> int:
    """A port that no process listens at.

    :raises OSError: None of so many.
    """
    for port in random.SystemRandom().sample(_PORTS, 50):
        with suppress(OSError), socket.create_server(("", port)):
            return port
    raise OSError("no port to meet at is free")


def _say(line: str) -> None:
    print(f"hostcore keeper: {line}", file=sys.stderr, flush=True)
