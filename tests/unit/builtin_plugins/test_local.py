import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import attrs
import pytest

from hostcore_builtin_plugins.local import LocalLauncher
from hostcore_hookspecs import FatalError, Job, LaunchContext, LaunchHandle

#: What every launched program begins with: it says something through a pipe, so that no test waits for luck.
PRELUDE = """
import json, os, signal, subprocess, sys, time
fifo = open(sys.argv[1], "w", buffering=1)
def say(word): print(word, file=fifo)
def end(**result):
    with open("result.json.tmp", "w") as file: json.dump(result, file)
    os.replace("result.json.tmp", "result.json")
"""


@attrs.frozen
class Launched:
    handle: LaunchHandle
    said: int

    def wait_for(self, word: str) -> None:
        heard = b""
        while f"{word}\n".encode() not in heard:
            chunk = os.read(self.said, 65536)
            assert chunk, f"it ended without a word of {word!r}"
            heard += chunk

    def wait_for_end(self) -> None:
        """Returns once everybody who could speak is gone, and the process is dead, though not reaped."""
        while os.read(self.said, 65536):
            pass
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(self.handle.details["pid"])
            select.select([pidfd], [], [])
            os.close(pidfd)


Launch = Callable[..., Launched]


def context_of(program: str, run_dir: Path, fifo: Path, env: Mapping[str, str]) -> LaunchContext:
    return LaunchContext(
        job=Job(),
        job_path=str(run_dir / "job.json"),
        run_dir=str(run_dir),
        command=[sys.executable, "-c", f"{PRELUDE}os.chdir({str(run_dir)!r})\n{program}", str(fifo)],
        env=env,
        log=lambda line: None,
    )


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Launches a program, from this process or through another one that ends at once."""
    all_launched: list[Launched] = []

    def launch(program: str, *, env: Mapping[str, str] | None = None, through: str | None = None) -> Launched:
        fifo = tmp_path / f"said-{len(all_launched)}"
        os.mkfifo(fifo)
        context = context_of(program, tmp_path, fifo, env or {})
        handle = LocalLauncher().launch(context) if through is None else launch_through(through, context)
        all_launched.append(Launched(handle, os.open(fifo, os.O_RDONLY)))  # waits for the program to open it
        return all_launched[-1]

    yield launch
    for launched in all_launched:
        LocalLauncher().cancel(launched.handle, 0)
        os.close(launched.said)


def launch_through(prepare: str, context: LaunchContext) -> LaunchHandle:
    program = f"""
import attrs, json, sys
from hostcore_builtin_plugins.local import LocalLauncher
from hostcore_hookspecs import Job, LaunchContext
{prepare}
context = LaunchContext(job=Job(), log=lambda line: None, **json.loads(sys.argv[1]))
print(json.dumps(attrs.asdict(LocalLauncher().launch(context))))
"""
    plain = attrs.asdict(context, filter=attrs.filters.exclude("job", "log"), recurse=False)
    command = [sys.executable, "-c", program, json.dumps(plain)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return LaunchHandle(**json.loads(printed))


def log_of(launched: Launched) -> str:
    return LocalLauncher().read_logs(launched.handle, "").text


def test_the_plan_is_the_command_that_would_run_and_its_output_has_a_place(tmp_path: Path) -> None:
    told: list[str] = []
    context = attrs.evolve(context_of("", tmp_path, tmp_path, {}), command=["true", "my job.json"], log=told.append)
    assert LocalLauncher().plan(context).document == "true 'my job.json'"
    handle = LocalLauncher().launch(context)
    assert told == [f"process {handle.id} runs it; its output goes to {tmp_path}/logs/supervisor.log"]
    os.waitpid(handle.details["pid"], 0)


def test_the_process_has_its_own_session_no_input_and_one_log_for_its_output(launch: Launch, tmp_path: Path) -> None:
    launched = launch(
        """
print(json.dumps([os.getsid(0) == os.getpid(), sys.stdin.read(), os.environ["COLOUR"], "HOME" in os.environ]))
sys.stdout.flush()
print("an error", file=sys.stderr)
""",
        env={"COLOUR": "blue"},
    )
    launched.wait_for_end()
    log = tmp_path / "logs" / "supervisor.log"
    first = f'[true, "", "blue", {json.dumps("HOME" in os.environ)}]\nan error\n'
    assert log.read_text() == first
    second = launch("print('two')")
    second.wait_for_end()
    assert log_of(second) == f"{first}two\n"


def test_a_child_that_ended_without_a_result_is_lost_and_reaped(launch: Launch) -> None:
    launched = launch("sys.exit(3)")
    launched.wait_for_end()
    found = LocalLauncher().poll(launched.handle)
    assert (found.status, found.exit_code) == ("lost", 3)
    assert "supervisor.log" in found.message
    with pytest.raises(ChildProcessError):
        os.waitpid(launched.handle.details["pid"], os.WNOHANG)
    assert LocalLauncher().poll(launched.handle).status == "lost"


def test_a_result_that_cannot_be_read_is_said_so_and_that_of_an_earlier_attempt_does_not_count(
    launch: Launch, tmp_path: Path
) -> None:
    contents = ["", "[]", "{}", "{", '{"status": "running"}', '{"status": ["failed"]}']
    launched = launch("".join(f"open('{n}.json', 'w').write({one!r})\n" for n, one in enumerate(contents)))
    launched.wait_for_end()
    for number in range(len(contents)):
        (tmp_path / f"{number}.json").rename(tmp_path / "result.json")
        found = LocalLauncher().poll(launched.handle)
        assert found.status == "lost"
        assert "result.json cannot be read" in found.message
    (tmp_path / "result.json").write_text('{"status": "cancelled", "exit_code": 130}')
    for program, status in (("pass", "lost"), ("end(status='succeeded', exit_code=0)", "succeeded")):
        again = launch(program)
        again.wait_for_end()
        assert LocalLauncher().poll(again.handle).status == status


def test_sigint_is_heard_though_the_launching_process_ignores_it(launch: Launch) -> None:
    launched = launch(
        "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)",
        through="import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)",
    )
    launched.wait_for_end()
    assert log_of(launched) == "True\n"


@pytest.mark.parametrize("through", [None, ""])
def test_what_does_not_stop_is_killed_with_its_process_group(launch: Launch, through: str | None) -> None:
    launched = launch(
        """
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = "import signal; print('child up', flush=True); signal.pause()"
subprocess.Popen([sys.executable, "-c", child], stdout=fifo)  # it ignores SIGINT too
say("up")
signal.pause()
""",
        through=through,
    )
    launched.wait_for("child up")
    LocalLauncher().cancel(launched.handle, 0.2)
    launched.wait_for_end()  # the child has the pipe open too
    assert LocalLauncher().poll(launched.handle).status == "lost"


def test_another_process_with_the_same_number_is_neither_polled_nor_signalled(launch: Launch) -> None:
    innocent = launch("signal.signal(signal.SIGINT, lambda *_: say('hit'))\nsay('up')\nwhile True: signal.pause()")
    innocent.wait_for("up")
    boot = innocent.handle.details["started"].partition(" ")[0]
    details = {**innocent.handle.details, "started": f"{boot} 1"}
    mistaken = attrs.evolve(innocent.handle, details=details)
    assert LocalLauncher().poll(mistaken).status == "lost"
    LocalLauncher().cancel(mistaken, 0)
    assert LocalLauncher().poll(innocent.handle).status == "running"
    os.kill(innocent.handle.details["pid"], signal.SIGKILL)
    heard = b""
    while chunk := os.read(innocent.said, 65536):
        heard += chunk
    assert b"hit" not in heard


def test_a_process_of_another_machine_is_not_looked_for_here(launch: Launch) -> None:
    launched = launch("pass")
    elsewhere = attrs.evolve(launched.handle, details={**launched.handle.details, "host": "elsewhere"})
    for call in (lambda: LocalLauncher().poll(elsewhere), lambda: LocalLauncher().cancel(elsewhere, 0)):
        with pytest.raises(FatalError, match="was started on elsewhere") as caught:
            call()
        assert caught.value.code == "launch.elsewhere"


def test_a_process_of_another_user_is_not_cancelled_in_silence(launch: Launch) -> None:
    if os.geteuid() != 0:
        pytest.skip("takes root to start a process that one may not signal")
    launched = launch("say('up')\nsignal.pause()")
    launched.wait_for("up")
    os.setresuid(65534, 65534, 0)
    try:
        with pytest.raises(FatalError, match="belongs to another user"):
            LocalLauncher().cancel(launched.handle, 0)
    finally:
        os.setresuid(0, 0, 0)


def test_a_command_or_a_folder_that_is_not_there_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for command, folder, message in (
        ("no-such-command", tmp_path, r"cannot start no-such-command: .* No such file or directory"),
        ("true", tmp_path / "file", "Not a directory"),
    ):
        with pytest.raises(FatalError, match=message):
            LocalLauncher().launch(attrs.evolve(context_of("", folder, tmp_path, {}), command=[command]))


def test_a_long_log_is_read_in_chunks_from_a_place_in_it(tmp_path: Path) -> None:
    log = tmp_path / "supervisor.log"
    log.write_text("é" * 1_500_000)
    handle, launcher = LaunchHandle(launcher="local", id="1", details={"log": str(log)}), LocalLauncher()
    text, since = "", ""
    while (chunk := launcher.read_logs(handle, since)).text:
        text, since = text + chunk.text, chunk.next
        assert len(chunk.text.encode()) <= 1 << 20
    assert text == "é" * 1_500_000
    with pytest.raises(FatalError, match="'three' is no place in the log"):
        launcher.read_logs(handle, "three")
