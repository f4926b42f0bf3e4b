"""A probe answers, whatever becomes of its process."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from waiting import is_gone, wait_until

from hostcore.probe import Probe

Ask = Callable[..., Probe]


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    """Asks a module with this source."""
    with ExitStack() as stack:

        def start(source: str, question: str = "") -> Probe:
            (tmp_path / "asked.py").write_text(textwrap.dedent(source))
            environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
            return stack.enter_context(Probe("asked", question=question, environment=environment))

        yield start


def test_what_it_said_in_whole_lines_that_are_objects_is_the_answer(ask: Ask, tmp_path: Path) -> None:
    """What the interpreter prints at its start is no part of it, and neither is half a line."""
    (tmp_path / "sitecustomize.py").write_text("print('hello')\n")
    answer = ask("""print('{hello}\\n[2]\\n{"sum": 1}\\n{"doing": "more"}\\n{"sum": 2}\\n{"su', end="")""").answer(30)
    assert (answer.all("sum"), answer.last("sum"), answer.last("other")) == ([1, 2], 2, None)
    assert list(answer.lines) == [{"sum": 1}, {"doing": "more"}, {"sum": 2}]
    assert (answer.trouble, answer.hung) == (None, False)


def test_an_error_says_what_it_was_doing_and_an_exit_its_code(ask: Ask) -> None:
    answer = ask("""print('{"doing": "adding"}\\n{"error": "ValueError: no"}')\nraise SystemExit(1)""").answer(30)
    assert answer.trouble == "ValueError: no (while adding)"
    answer = ask("raise SystemExit(4)", "0" * 1_000_000).answer(30)  # a long question that is not read
    assert answer.trouble == "the process exited with 4"


def test_of_what_it_prints_without_end_the_end_is_kept(ask: Ask) -> None:
    answer = ask("""import sys; sys.stderr.write("x" * (3 << 20) + "\\n" + "y" * 1000 + "\\nlast\\n")""").answer(30)
    assert len(answer.output) <= 1 << 20
    assert answer.output.endswith("\nlast\n")


def test_a_death_is_told_with_its_signal_and_last_words(ask: Ask) -> None:
    source = """
        import os, signal, sys
        print('{"doing": "dying"}', flush=True)
        print("oh", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    """
    answer = ask(source).answer(30)
    assert answer.trouble == "the process was killed by SIGSEGV (while dying)"
    assert answer.output == "oh\n"


def test_one_that_hangs_is_killed_with_what_it_started(ask: Ask, tmp_path: Path) -> None:
    source = """
        import pathlib, subprocess, sys, threading
        child = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
        print('{"child": %d}\\n{"doing": "waiting"}' % child.pid, flush=True)
        pathlib.Path(__file__).with_name("waits").touch()
        threading.Event().wait()
    """
    probe = ask(source)
    wait_until((tmp_path / "waits").exists, "it to wait")
    answer = probe.answer(2)
    assert answer.trouble == "no answer within 2 s (while waiting)"
    assert answer.hung
    child = answer.last("child")
    wait_until(lambda: is_gone(child), "what it started to end")  # killed, and perhaps not yet reaped


def test_a_child_that_keeps_its_output_open_does_not_keep_it(ask: Ask) -> None:
    source = """
        import os, subprocess, sys
        command = [sys.executable, "-c", "import threading; threading.Event().wait()"]
        child = subprocess.Popen(command, start_new_session=True)
        print('{"child": %d}' % child.pid, flush=True)
        os._exit(0)
    """
    answer = ask(source).answer(30)
    os.kill(answer.last("child"), 9)
    assert answer.trouble is None


def test_a_question_is_a_line_of_its_standard_input(ask: Ask) -> None:
    source = """
        import json, sys
        from hostcore.probe import answer
        asked = json.loads(sys.stdin.readline())
        answer(lambda say: say(sum=sum(asked)))
    """
    numbers = list(range(100_000))  # more than a pipe holds
    assert ask(source, str(numbers)).answer(30).last("sum") == sum(numbers)


def test_an_interpreter_that_cannot_be_started_is_an_answer() -> None:
    with Probe("asked", python="/no/such/python") as probe:
        answer = probe.answer(30)
    assert (answer.not_started, answer.lines) == ("No such file or directory", ())
    assert answer.trouble == "no process can be started for it: No such file or directory"


@pytest.mark.parametrize("own_session", [True, False])
def test_it_ends_when_the_process_that_asked_was_killed(tmp_path: Path, own_session: bool) -> None:
    (tmp_path / "asked.py").write_text(
        "import subprocess, sys, threading\n"
        "from hostcore.probe import answer\n"
        "def examine(say):\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'import threading; threading.Event().wait()'])\n"
        "    print(child.pid, file=sys.stderr, flush=True)\n"
        "    say(child=child.pid)\n"
        "    threading.Event().wait()\n"
        "answer(examine)\n"
    )
    asking = (
        "import sys, time\n"
        "from hostcore.probe import Probe\n"
        f"probe = Probe('asked', own_session={own_session})\n"
        "while not probe._said: time.sleep(0.01)\n"
        "print(probe._process.pid, probe._said[0].decode(), flush=True)\n"
        "time.sleep(1000)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", asking],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        probe, _, said = process.stdout.readline().partition(" ")
        child = int(said.strip()[len('{"child":') : -1])
        process.kill()
    wait_until(lambda: is_gone(int(probe)), "the probe to end")
    if own_session:
        wait_until(lambda: is_gone(child), "what it started to end")
    else:
        os.killpg(process.pid, signal.SIGKILL)  # the group of the process that asked
