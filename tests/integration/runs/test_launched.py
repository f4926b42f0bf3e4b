"""A run in the foreground whose launcher is not ``local``: this command submits it, and watches it to its end."""

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest

LAUNCHERS = '''
    """Launchers that start the command on this machine, or keep it waiting."""

    import os
    import signal
    import subprocess
    from pathlib import Path

    from hostcore_hookspecs import LaunchHandle, LaunchPlan, LaunchStatus, LogChunk


    class Sees:
        """An engine on the machine of whoever asks."""

        def plan(self, ctx):
            return LaunchPlan(summary="a process of this machine")

        def launch(self, ctx):
            log = Path(ctx.run_dir, "launched.log")
            command = self.command(ctx)
            process = subprocess.Popen(command, stdout=log.open("wb"), stderr=subprocess.STDOUT, start_new_session=True,
                                       cwd=Path(ctx.run_dir).parent.parent, env={**os.environ, **self.env(ctx)})
            return LaunchHandle(launcher="sees", id=str(process.pid), details={"run_dir": ctx.run_dir})

        def command(self, ctx):
            return ctx.command

        def env(self, ctx):
            return {}

        def poll(self, handle):
            try:
                ended, status = os.waitpid(int(handle.id), os.WNOHANG)
            except ChildProcessError:
                return LaunchStatus(status="lost", message="nobody knows it")
            if not ended:
                return LaunchStatus(status="running", message="a process runs it")
            code = os.waitstatus_to_exitcode(status)
            ends = {0: "succeeded", 130: "cancelled", 75: "preempted"}
            return LaunchStatus(status=ends.get(code, "failed"), exit_code=code, message=f"it exited with {code}")

        def cancel(self, handle, grace_seconds):
            os.kill(int(handle.id), signal.SIGINT)

        def read_logs(self, handle, since):
            with Path(handle.details["run_dir"], "launched.log").open("rb") as log:
                log.seek(int(since or 0))
                text = log.read()
            return LogChunk(text=text.decode(), next=str(int(since or 0) + len(text)))


    class Blind(Sees):
        """An engine whose machine has no folder in common with this one."""

        sees_run_dir = False

        def command(self, ctx):
            import json
            there = Path(ctx.run_dir).parent.parent / "there"
            there.mkdir(exist_ok=True)
            (there / "job.json").write_text(json.dumps(dict(ctx.document)))
            return [there / "job.json" if word == ctx.job_path else word for word in ctx.command]

        def env(self, ctx):
            return {"HOSTCORE_RUNS_DIR": str(Path(ctx.run_dir).parent.parent / "there" / "runs")}


    class Queue(Sees):
        """An engine that has no room."""

        def launch(self, ctx):
            gone = Path(ctx.run_dir).parent.parent / "gone"
            return LaunchHandle(launcher="queue", id="7", details={"gone": str(gone)})

        def poll(self, handle):
            if Path(handle.details["gone"]).exists():
                return LaunchStatus(status="cancelled", message="taken out of the queue")
            return LaunchStatus(status="submitted", message="3 jobs are before it")

        def cancel(self, handle, grace_seconds):
            Path(handle.details["gone"]).touch()
'''


@pytest.fixture
def project(site: Any, own_project: Callable[..., Any]) -> Any:
    """A user's folder, beside launchers that were installed."""
    names = {name: f"here_launchers:{name.capitalize()}" for name in ("sees", "blind", "queue")}
    site.install("here-launchers", modules={"here_launchers.py": LAUNCHERS}, entry_points={"hostcore.launchers": names})
    return own_project(site.environment)


def test_a_run_is_shown_and_told_as_if_it_ran_here(project: Any) -> None:
    keys = {"max_steps": 5, "metric_every": 1, "terminal": True}
    there = project.command("run", project.job("there.json", run_id="there", launcher="sees", **keys), "--json")
    assert there.code == 0, there.err
    assert there.json == project.run("there").result
    assert "there succeeded at step 5" in there.err
    launch = json.loads((project.run("there").path / "config" / "launch.json").read_text())
    claim = json.loads((project.run("there").path / "attempts" / "1.json").read_text())
    assert str(claim["process"]["pid"]) == launch["handle"]["id"], "the launcher's process has run it"
    again = project.command("resume", "there", "--set", "max_steps=8")
    assert (again.code, again.out.splitlines()[0]) == (0, "succeeded  there")
    assert "there started on" not in again.err.partition("resumed")[0], "what the first attempt has told is old"
    assert project.run("there").result["attempt"] == 2


def test_the_first_ctrl_c_cancels_it(project: Any, until: Callable[..., Any]) -> None:
    job = project.job(trainer="small_trainer:Slow", max_steps=10**6, metric_every=1, launcher="sees")
    command = project.start("run", job)
    until((project.path / "a.pid").exists, "the third step")
    command.signal(signal.SIGINT)
    said = command.end()
    assert (said.code, said.out.splitlines()[0]) == (130, "cancelled  a")
    assert project.run().result["reason"].startswith("interrupted by the user")
    assert project.run().result["final_checkpoint"]


def test_one_that_waits_in_a_queue_is_taken_out_of_it(project: Any, until: Callable[..., Any]) -> None:
    job = project.job(max_steps=3, launcher="queue")
    command = project.start("run", job)
    until((project.run().path / "config" / "launch.json").exists, "the launch")
    until(lambda: '"7"' in (project.run().path / "config" / "launch.json").read_text(), "its handle")
    command.signal(signal.SIGINT)
    said = command.end()
    assert (said.code, said.out.splitlines()[0]) == (130, "cancelled  a")
    assert (project.path / "gone").exists()
    assert project.run().result["status"] == "cancelled"


def test_cancel_takes_a_detached_one_out_of_the_queue(project: Any) -> None:
    assert project.command("run", project.job(max_steps=3, launcher="queue"), "--detach").code == 0
    said = project.command("cancel", "a")
    assert (said.code, said.out.splitlines()[0].split()[:2]) == (0, ["cancelled", "a"]), said.err
    assert (project.path / "gone").exists()
    assert project.run().result["status"] == "cancelled"


def test_where_its_directory_is_not_seen_its_launcher_tells_how_it_goes(project: Any) -> None:
    (project.path / "there").mkdir()
    (project.path / "there" / "small_trainer.py").write_bytes((project.path / "small_trainer.py").read_bytes())
    keys = {"max_steps": 3, "launcher": "blind", "terminal": True}
    said = project.command("run", project.job(**keys))
    assert said.code == 0, said.err
    assert said.out.splitlines()[0] == "succeeded  a"
    assert "a succeeded at step 3" in said.err, "what was printed there is shown here"
