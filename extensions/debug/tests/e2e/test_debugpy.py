"""An editor at a step: a client of the Debug Adapter Protocol attaches to the replay."""

import re
import socket
from pathlib import Path
from typing import Any

import pytest
from dap_client import DapClient
from fork_server import hostcore
from ports import free_ports

pytest.importorskip("debugpy")


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_editor_stops_before_the_step_and_in_it_and_the_replay_proves_itself(bench: Any, ranks: int) -> None:
    keys = {"devices": ["cpu"] * ranks, "device": None}
    bench.run(f"edited-{ranks}", **keys)
    trainer = bench.folder / "debug_trainer.py"
    line = trainer.read_text().splitlines().index("            loss.backward()") + 1
    port = free_ports(1)
    command = ["debug", f"edited-{ranks}", "--step", "35", "--debugpy", str(port)]
    process = hostcore(command, cwd=bench.folder, stdout=-1, stderr=-2, text=True)
    editor = DapClient(port)
    editor.ask("initialize", adapterID="test", clientID="test", pathFormat="path", linesStartAt1=True)
    attached = editor.send("attach", name="test", type="python", request="attach", justMyCode=False)
    editor.event("initialized")
    editor.ask("setBreakpoints", source={"path": str(trainer)}, breakpoints=[{"line": line}])
    editor.ask("configurationDone")
    editor.answer(attached)

    thread, frame = _stopped(editor)
    assert _evaluated(editor, frame, "ctx.run_state.step") == "34"
    assert {"prepared_batch", "state", "ctx"} <= _variables(editor, frame)
    editor.ask("continue", threadId=thread)

    thread, frame = _stopped(editor)
    assert (frame["name"], frame["line"]) == ("train_step", line)
    loss = float(re.findall(r"[\d.]+", _evaluated(editor, frame, "loss.item()"))[0])
    editor.ask("setBreakpoints", source={"path": str(trainer)}, breakpoints=[])
    editor.ask("continue", threadId=thread)
    editor.event("terminated")
    editor.close()

    shown, _ = process.communicate(timeout=120)
    assert process.returncode == 0, shown
    assert "5 steps are equal to the recorded ones, bit for bit" in shown
    if ranks == 1:
        assert f"{loss:.6g}" in shown


def test_a_port_that_is_taken_is_one_error_before_anything_is_replayed(bench: Any, plain: Path) -> None:
    assert plain.is_dir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = bench(["debug", "plain", "--step", "35", "--debugpy", str(port)])
    assert ended.returncode == 2
    assert f"port {port} of this machine cannot be used" in ended.stderr
    assert "replayed" not in ended.stdout


def _stopped(editor: DapClient) -> tuple[int, dict[str, Any]]:
    """Wait until the program stops; return the thread and its frame at the top."""
    thread = editor.event("stopped")["threadId"]
    return thread, editor.ask("stackTrace", threadId=thread, startFrame=0, levels=1)["stackFrames"][0]


def _evaluated(editor: DapClient, frame: dict[str, Any], expression: str) -> str:
    return str(editor.ask("evaluate", expression=expression, frameId=frame["id"])["result"])


def _variables(editor: DapClient, frame: dict[str, Any]) -> set[str]:
    scope = editor.ask("scopes", frameId=frame["id"])["scopes"][0]
    return {one["name"] for one in editor.ask("variables", variablesReference=scope["variablesReference"])["variables"]}
