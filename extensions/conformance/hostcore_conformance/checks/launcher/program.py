"""Program that the kit has launchers start: a small one that follows ``instructions.json`` in its folder.

Started as ``python -I -S program.py FOLDER [ARGUMENT]…``, with the standard library alone. It writes into the folder:

================  =====================================================================================
``lock``          held as long as it runs, so that anybody can see whether it does
``record.json``   its arguments, and the variables ``HOSTCORE_CHECK_…`` of its environment, in hexadecimal
``signal.json``   the name of the signal that asked it to stop
``stopped.json``  it had the time to stop as a run does that writes a checkpoint first
================  =====================================================================================

and ``result.json`` into the run directory, as a supervisor would.
"""

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

#: It never stays longer, whatever becomes of the check.
_LONGEST_SECONDS = 60
_LOOK_SECONDS = 0.01


def main() -> None:
    """Carry out the instructions."""
    signal.alarm(_LONGEST_SECONDS)
    folder = Path(sys.argv[1])
    told = json.loads((folder / "instructions.json").read_text())
    fcntl.flock(os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644), fcntl.LOCK_EX)
    _obey_signals(folder, told)
    _write(folder / "record.json", _record())
    for descriptor, data, gate in told["prints"]:
        _print(descriptor, bytes.fromhex(data))
        _wait_for(folder, gate, told["gate_seconds"])
    for _ in range(told["flood_mib"]):
        _print(1, (b"x" * 1023 + b"\n") * 1024)
    _end(told["result"], told)


def _record() -> dict[str, Any]:
    names = [name for name in os.environb if name.startswith(b"HOSTCORE_CHECK_")]
    return {
        "arguments": [os.fsencode(one).hex() for one in sys.argv[2:]],
        "environment": {os.fsdecode(name): os.environb[name].hex() for name in names},
    }


def _obey_signals(folder: Path, told: dict[str, Any]) -> None:
    def obey(number: int, _: object) -> None:
        _write(folder / "signal.json", signal.Signals(number).name)
        if told["stubborn"]:
            return
        time.sleep(told["stopping_seconds"])
        _write(folder / "stopped.json", True)
        _end({"status": "cancelled", "exit_code": 130}, {**told, "exit_code": 130})

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, obey)


def _print(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _wait_for(folder: Path, gate: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while gate and not (folder / gate).exists() and time.monotonic() < deadline:
        if not folder.exists():  # the check is over
            os._exit(70)
        time.sleep(_LOOK_SECONDS)


def _end(result: dict[str, Any] | None, told: dict[str, Any]) -> NoReturn:
    if result is not None:
        _write(Path(told["run_dir"], "result.json"), {"run_id": "conformance", "reason": None, "error": None, **result})
    if told["exit_code"] < 0:
        os.kill(os.getpid(), -told["exit_code"])
        signal.pause()
    os._exit(told["exit_code"])


def _write(path: Path, value: object) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value))
    part.replace(path)


if __name__ == "__main__":
    main()
