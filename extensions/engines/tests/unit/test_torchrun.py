"""The launcher ``torchrun`` and its keepers, with a program in place of torchrun that starts one rank, and of ssh."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from engine_runs import OVER, launch_context
from waiting import wait_until

from hostcore_builtin_plugins.processes import descendants, look, runs_here
from hostcore_engines.keeper.agent import Agent
from hostcore_engines.keeper.folder import LaunchFolder
from hostcore_engines.keeper.launch_spec import LaunchSpec
from hostcore_engines.torchrun.launcher import TorchrunLauncher
from hostcore_engines.torchrun.settings import TorchrunSettings
from hostcore_hookspecs import FatalError, LaunchContext, LaunchHandle, TransientError

#: What an agent is asked for here: to note its arguments, to start a rank, and to start it again while it may.
AGENT = """\
import json, os, subprocess, sys
from pathlib import Path
arguments = sys.argv[1:]
cut = arguments.index("--no-python")
given = dict(one.split("=", 1) for one in arguments[:cut])
node = "0" if "is_host=1" in given["--rdzv-conf"] else "1"
Path(os.environ["NOTES"], f"agent-{node}.json").write_text(json.dumps(given))
code = 1
for _ in range(int(given["--max-restarts"]) + 1):
    code = subprocess.call(arguments[cut + 1:], start_new_session=True, env={**os.environ, "NODE": node})
    if code == 0:
        break
sys.exit(1 if code else 0)
"""
RANK = """\
import json, os, sys, time
from pathlib import Path
notes, node = Path(os.environ["NOTES"]), os.environ["NODE"]
with (notes / f"rank-{node}.txt").open("a") as file:
    given = [os.environ.get(name) for name in ("GREETING", "HOSTCORE_RUNS_DIR")]
    file.write(json.dumps([sys.argv[1:], os.getcwd(), *given]) + "\\n")
print(f"rank of node {node}")
while not (notes / "go").exists():
    time.sleep(0.02)
result = Path(sys.argv[1], "result.json")
result.write_text(json.dumps({"status": "succeeded", "exit_code": 0}))
"""
SSH = """\
#!/bin/sh
printf '%s\\n' "$@" >>"$NOTES/ssh.txt"
for line; do :; done
case "$*" in *unreachable*) echo "ssh: connect to host unreachable port 22: No route to host" >&2; exit 255;;
  *bare*) echo "sh: 1: python: not found" >&2; exit 127;; esac
cd / && exec sh -c "$line"
"""


@attrs.frozen
class Place:
    """A folder with programs, and what they have noted."""

    path: Path
    handles: list[LaunchHandle] = attrs.field(factory=list)

    @property
    def notes(self) -> Path:
        return self.path / "notes"

    @property
    def run_dir(self) -> Path:
        return self.path / "runs $HOME" / "it's (a run)"

    def context(self, **changes: Any) -> LaunchContext:
        command = [sys.executable, str(self.path / "rank.py"), str(self.run_dir), "$(exit 3) $$", "--help", "--", ""]
        own = {"job_path": str(self.run_dir / "run.json"), "env": {"GREETING": "it's me; $HOME\n$$"}}
        return launch_context(self.run_dir, command, **own, **changes)

    def launcher(self, **settings: Any) -> TorchrunLauncher:
        return TorchrunLauncher(settings=TorchrunSettings(torchrun=str(self.path / "agent"), **settings))

    def launch(self, launcher: TorchrunLauncher, ctx: LaunchContext) -> LaunchHandle:
        self.handles.append(launcher.launch(ctx))
        return self.handles[-1]

    def ranks(self, node: int) -> list[Any]:
        file = self.notes / f"rank-{node}.txt"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def agent(self, node: int) -> Mapping[str, str]:
        return json.loads((self.notes / f"agent-{node}.json").read_text())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Place(tmp_path)
    for folder in (made.notes, made.run_dir, tmp_path / "bin"):
        folder.mkdir(parents=True)
    (tmp_path / "rank.py").write_text(RANK)
    (tmp_path / "agent").write_text(f"#!{sys.executable} -IS\n{AGENT}")
    (tmp_path / "bin" / "ssh").write_text(SSH)
    for program in (tmp_path / "agent", tmp_path / "bin" / "ssh"):
        program.chmod(0o755)
    monkeypatch.setenv("NOTES", str(made.notes))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    yield made
    for handle in made.handles:
        made.launcher().cancel(handle, 0.0)


def ended(launcher: TorchrunLauncher, handle: LaunchHandle) -> Any:
    return wait_until(lambda: (status := launcher.poll(handle)).status in OVER and status, "the end")


class TestALaunch:
    def test_starts_an_agent_for_each_node_which_meet_on_the_first(self, place: Place) -> None:
        launcher = place.launcher(min_nodes=1, rendezvous={"last_call_timeout": "5"})
        handle = place.launch(launcher, place.context(resources={"num_nodes": 2, "gpus_per_node": 4}))
        wait_until(lambda: place.ranks(0) and place.ranks(1), "both ranks")
        assert launcher.poll(handle).status == "running"
        first, second = place.agent(0), place.agent(1)
        assert (first["--nnodes"], first["--nproc-per-node"], first["--rdzv-id"]) == ("1:2", "4", "run.1")
        assert first["--rdzv-conf"] == "is_host=1,last_call_timeout=5"
        assert second == {**first, "--rdzv-conf": "is_host=0,last_call_timeout=5"}
        host, _, port = first["--rdzv-endpoint"].rpartition(":")
        assert (host, int(port) > 0, first["--local-addr"], first["--max-restarts"]) == ("127.0.0.1", True, host, "3")
        (place.notes / "go").touch()
        status = ended(launcher, handle)
        assert (status.status, status.exit_code) == ("succeeded", 0)
        whole = launcher.read_logs(handle, "")
        assert whole.text == "rank of node 0\nrank of node 1\n"
        with (place.run_dir / "logs" / "torchrun.1.log").open("a") as log:
            log.write("a whole line\nhalf a")
        added = launcher.read_logs(handle, whole.next)
        assert added.text == "a whole line\n"
        assert launcher.read_logs(handle, added.next).text == "half a", "the last line may have no end"
        with pytest.raises(FatalError, match="no place in 2 logs"):
            launcher.read_logs(handle, "17")

    def test_that_is_tried_again_starts_nothing_and_keeps_its_variables_to_this_user(self, place: Place) -> None:
        launcher, ctx = place.launcher(), place.context(resources={"num_nodes": 2})
        first = place.launch(launcher, ctx)
        launch_spec = LaunchFolder.of(first.details["run_dir"], first.id).path / "errand.json"
        assert launch_spec.stat().st_mode & 0o777 == 0o600, "it has variables"
        (place.notes / "go").touch()
        ended(launcher, first)
        assert place.launcher().launch(ctx) == first
        assert launcher.poll(first).status == "succeeded"
        assert [len(place.ranks(node)) for node in range(2)] == [1, 1]

    def test_whose_keeper_was_killed_with_all_below_it_is_lost(self, place: Place) -> None:
        launcher = place.launcher()
        handle = place.launch(launcher, place.context())
        wait_until(lambda: place.ranks(0), "the rank")
        folder = LaunchFolder.of(handle.details["run_dir"], handle.id)
        pid = folder.claimed(0)["pid"]
        for one in [pid, *descendants(pid)]:
            os.kill(one, signal.SIGKILL)
        assert ended(launcher, handle).status == "lost"

    def test_tells_of_an_agent_that_fails_without_making_up_an_exit_code(self, place: Place) -> None:
        launcher, ctx = place.launcher(), place.context()
        handle = place.launch(launcher, attrs.evolve(ctx, command=[sys.executable, "-c", "raise SystemExit(3)"]))
        status = ended(launcher, handle)
        assert (status.status, status.exit_code) == ("failed", None)
        assert "on node 0 with 1" in status.message


class TestOtherMachines:
    def test_are_reached_with_ssh_and_quoted_strictly(self, place: Place) -> None:
        launcher = place.launcher(hosts=("me@node-1", "node-2"), ssh=("-i", "a key"), rendezvous_port=29400)
        handle = place.launch(launcher, place.context(resources={"num_nodes": 2}))
        wait_until(lambda: place.ranks(0) and place.ranks(1), "both ranks")
        said = (place.notes / "ssh.txt").read_text().splitlines()
        assert said[:6] == ["-o", "BatchMode=yes", "-i", "a key", "--", "me@node-1"]
        assert "node-2" in said
        assert place.agent(0)["--rdzv-endpoint"] == "node-1:29400"
        assert [place.agent(node)["--local-addr"] for node in range(2)] == ["node-1", "node-2"]
        (arguments, folder, _, runs), *_ = place.ranks(1)
        assert runs == str(place.run_dir.parent)
        assert (arguments[0], folder) == (str(place.run_dir), str(place.path))
        (place.notes / "go").touch()
        assert ended(launcher, handle).status == "succeeded"

    def test_that_are_not_reached_leave_the_launch_to_another_try(self, place: Place) -> None:
        launcher = place.launcher(hosts=("localhost", "unreachable"))
        with pytest.raises(TransientError, match="No route to host") as caught:
            launcher.launch(place.context(resources={"num_nodes": 2}, launch_id=""))
        assert caught.value.pointer == "/launcher/hosts"
        assert "BatchMode=yes unreachable true" in caught.value.hint

    def test_that_are_not_reached_yet_begin_together_when_they_are(self, place: Place) -> None:
        ctx = place.context(resources={"num_nodes": 2})
        with pytest.raises(TransientError):
            place.launcher(hosts=("localhost", "unreachable"), min_nodes=1).launch(ctx)
        folder = LaunchFolder.of(ctx.run_dir, ctx.launch_id)
        first = folder.claimed(0)
        assert first is not None
        launcher = place.launcher(hosts=("localhost", "node-2"), min_nodes=1)
        handle = place.launch(launcher, ctx)
        assert folder.claimed(0) == first
        (place.notes / "go").touch()
        assert ended(launcher, handle).status == "succeeded"
        assert [len(place.ranks(node)) for node in range(2)] == [1, 1]
        began, second = (folder.path / name for name in ("meeting.json", "node-1.json"))
        assert began.stat().st_mtime_ns >= second.stat().st_mtime_ns

    def test_leave_nothing_behind_when_one_of_them_cannot_start(self, place: Place) -> None:
        ctx = place.context(resources={"num_nodes": 2})
        with pytest.raises(FatalError, match=r"node 1 cannot start on bare: .*python: not found"):
            place.launcher(hosts=("localhost", "bare"), min_nodes=1).launch(ctx)
        first = LaunchFolder.of(ctx.run_dir, ctx.launch_id).claimed(0)
        assert first is not None
        wait_until(lambda: not runs_here(first), "the end of the keeper of node 0")
        assert place.ranks(0) == []

    @pytest.mark.parametrize(
        ("end", "words"), [("kill -TERM $$", "ended by signal 15"), ("exit 130", "ended by signal 2")]
    )
    def test_whose_ssh_was_interrupted_may_have_begun(self, place: Place, end: str, words: str) -> None:
        (place.path / "bin" / "ssh").write_text(f"#!/bin/sh\n{end}\n")
        with pytest.raises(TransientError, match=words):
            place.launcher(hosts=("node-1",)).launch(place.context())

    def test_are_reached_though_this_process_is_interrupted_meanwhile(self, place: Place) -> None:
        """A terminal, and a service manager that stops a service, signal a whole process group."""
        told = "import os, sys; print(os.getpgrp()); sys.exit(255)"
        (place.path / "bin" / "ssh").write_text(f"#!{sys.executable} -IS\n{told}\n")
        with pytest.raises(TransientError, match=r"ssh does not reach node-1: \d+$") as caught:
            place.launcher(hosts=("node-1",)).launch(place.context())
        assert int(caught.value.message.rpartition(" ")[2]) != os.getpgrp()

    def test_that_have_no_hostcore_say_so(self, place: Place) -> None:
        ctx = place.context()
        with pytest.raises(FatalError, match=r"node 0 cannot start on node-1: .*(not found|No such file)") as caught:
            place.launcher(hosts=("node-1",)).launch(attrs.evolve(ctx, command=["/no/such/python", *ctx.command[1:]]))
        assert "hostcore has to be installed there" in caught.value.hint

    def test_are_claimed_once_and_watched_by_what_their_keepers_leave_in_the_run_directory(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = LaunchFolder.of(str(place.run_dir), "far")
        launch_spec = LaunchSpec(command=["true"], env={}, cwd="/", earlier_result=None)
        folder.prepare(launch_spec)
        details = {"run_dir": str(place.run_dir), "hosts": ["node-1", "node-2"], "earlier_result": None}
        handle, launcher = LaunchHandle(launcher="torchrun", id="far", details=details), place.launcher()
        for node in range(2):
            folder.show_life(node)
            process = {"host": f"node-{node + 1}.elsewhere", "pid": 1, "started": "long ago"}
            assert [folder.claim(node, one) for one in (process, {**process, "started": "now"})] == [True, False]
            assert folder.claimed(node) == process
        folder.end(0, 0)
        assert launcher.poll(handle).status == "running"
        an_hour = 3600
        with monkeypatch.context() as patch:  # the clock of this machine is not that of the files
            patch.setattr(time, "time", lambda now=time.time: now() + an_hour)
            assert launcher.poll(handle).status == "running"
        before = time.time() - an_hour
        os.utime(folder.path / "node-1.alive", (before, before))
        assert launcher.poll(handle).status == "lost"


class TestAPlan:
    def test_says_which_machines_and_shows_the_commands(self, place: Place) -> None:
        plan = place.launcher(hosts=("node-1", "node-2"), min_nodes=1).plan(
            place.context(resources={"num_nodes": 2, "gpus_per_node": 8})
        )
        assert plan.summary == "torchrun on 2 machines (node-1, node-2), 8 ranks each, and goes on with 1"
        assert plan.document.count("--rdzv-endpoint=node-1:PORT") == 2
        assert "GREETING" not in plan.document
        assert "it's me" not in plan.document


class TestAKeeper:
    def prepared(self, place: Place, code: str) -> list[str]:
        """The command of a keeper as an engine starts it: its child, that prints what is printed."""
        folder = LaunchFolder.of(str(place.run_dir), "kept")
        command = [sys.executable, "-u", "-c", code]
        folder.prepare(LaunchSpec(command=command, env={}, cwd=str(place.path), earlier_result=None, grace_seconds=120))
        module = "hostcore_engines.keeper"
        return [sys.executable, "-P", "-m", module, str(folder.path), "0", "--tee", str(place.path / "kept.log")]

    def start(self, place: Place, code: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.prepared(place, code), stdout=subprocess.PIPE)

    @pytest.mark.parametrize(("end", "code"), [("raise SystemExit(7)", 7), ("os.kill(os.getpid(), 9)", 137)])
    def test_prints_whole_characters_alone_and_ends_as_shells_do(self, place: Place, end: str, code: int) -> None:
        keeper = self.start(place, rf"import os; os.write(1, b'\xff\xe6\x97'); os.write(2, b'\xa5!\n'); {end}")
        said, _ = keeper.communicate(timeout=300)
        assert (keeper.returncode, said.decode()) == (code, "\ufffd日!\n")
        assert (place.path / "kept.log").read_bytes() == b"\xff\xe6\x97\xa5!\n"

    def test_lets_a_command_be_interrupted_where_the_engine_blocks_that(self, place: Place) -> None:
        """Ray blocks SIGINT in all that it starts."""
        code = "import time; print('here')\ntry: time.sleep(600)\nexcept KeyboardInterrupt: raise SystemExit(130)"
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            keeper = self.start(place, code)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        assert keeper.stdout is not None
        assert keeper.stdout.readline() == b"here\n"
        LaunchFolder.of(str(place.run_dir), "kept").cancel(120.0)
        keeper.communicate(timeout=300)
        assert keeper.returncode == 130

    def test_stops_the_command_when_the_engine_is_gone(self, place: Place) -> None:
        asked = place.notes / "asked"
        code = f"import signal, time; signal.signal(15, lambda *_: open({str(asked)!r}, 'w').close() or exit(75))"
        keep = self.prepared(place, f"{code}; print('here'); time.sleep(600)")
        engine = subprocess.Popen(
            [sys.executable, "-c", "import subprocess, sys; subprocess.Popen(sys.argv[1:]); input()", *keep],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        wait_until(lambda: (log := place.path / "kept.log").exists() and log.read_text() == "here\n", "the command")
        engine.communicate(timeout=300)
        folder = LaunchFolder.of(str(place.run_dir), "kept")
        wait_until(lambda: folder.ended(0) is not None, "the command's end")
        assert (folder.ended(0), asked.exists()) == (75, True)

    def test_measures_the_time_to_stop_by_its_own_clock_and_hears_of_more_hurry(self, place: Place) -> None:
        """Whoever cancels may be a machine whose clock is an hour behind or ahead: no time of day is handed over."""
        code = "import signal, time; signal.signal(2, print); print('here')\nwhile 1: time.sleep(9)"
        keeper = self.start(place, code)
        assert keeper.stdout is not None
        assert keeper.stdout.readline() == b"here\n"
        folder = LaunchFolder.of(str(place.run_dir), "kept")
        folder.cancel(3600.0)
        assert json.loads((folder.path / "cancel.json").read_text()) == {"grace_seconds": 3600.0}
        assert keeper.stdout.readline().startswith(b"2 ")
        assert folder.ended(0) is None
        folder.cancel(0.0)
        folder.cancel(3600.0)
        keeper.communicate(timeout=300)
        assert keeper.returncode == 137

    def with_agent(self, place: Place, torchrun: str, *, nodes: int = 1) -> LaunchFolder:
        """The folder of a launch whose nodes have an agent each."""
        counts = {"min_nodes": 1, "nodes": nodes, "ranks_per_node": 1, "max_restarts": 0}
        agent = Agent(torchrun=[torchrun], rendezvous_id="run", host="127.0.0.1", **counts)
        command = [sys.executable, str(place.path / "rank.py"), str(place.run_dir)]
        folder = LaunchFolder.of(str(place.run_dir), "run.1")
        folder.prepare(LaunchSpec(command=command, env={}, cwd=str(place.path), earlier_result=None, agent=agent))
        return folder

    def keep(self, place: Place, folder: LaunchFolder, program: str) -> int:
        """The exit code of a keeper of node 0 that runs in a program of the test's."""
        given = [str(folder.path), "0", "--tee", str(place.path / "kept.log")]
        return subprocess.run([sys.executable, "-c", program, *given], check=False, timeout=300).returncode

    def test_leaves_its_node_to_another_try_when_the_others_are_not_started(self, place: Place) -> None:
        folder = self.with_agent(place, "true", nodes=2)
        program = "import sys; from hostcore_engines.keeper import __main__, keeping"
        program += "; keeping._MEET_SECONDS = 0.0; sys.exit(__main__.main(sys.argv[1:]))"
        code = self.keep(place, folder, program)
        assert (code, folder.claimed(0), folder.ended(0)) == (1, None, None)

    def test_ends_the_ranks_of_an_agent_that_is_killed_while_they_are_listed(self, place: Place) -> None:
        folder = self.with_agent(place, str(place.path / "agent"))
        program = """\
import os, signal, sys
from pathlib import Path
from hostcore_engines.keeper import __main__, keeping
known, children = Path(os.environ["NOTES"], "known"), keeping.children
def list_late(pid):
    if known.exists():
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    found = children(pid)
    if found:
        known.write_text(str(found[0]))
    return found
keeping.children = list_late
sys.exit(__main__.main(sys.argv[1:]))
"""
        assert (self.keep(place, folder, program), folder.ended(0)) == (137, -9)
        rank = int((place.notes / "known").read_text())
        wait_until(lambda: (found := look(rank)) is None or found.is_zombie, "the rank's end")
