"""``python recorder.py LOG PROGRAM...``: runs a program, and writes down what it and the host say to each other."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO


def copy(source: IO[bytes], sink: IO[bytes], log: IO[bytes], mark: bytes) -> None:
    """Copy lines, and write each down."""
    for line in source:
        log.write(mark + line)
        log.flush()
        sink.write(line)
        sink.flush()
    sink.close()


def main() -> int:
    batches = int(os.environ["HOSTCORE_BATCHES_FD"])
    program = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[batches])
    assert program.stdin is not None
    assert program.stdout is not None
    with Path(sys.argv[1]).open("ab") as log:
        asked = threading.Thread(target=copy, args=(sys.stdin.buffer, program.stdin, log, b"request "), daemon=True)
        asked.start()
        copy(program.stdout, sys.stdout.buffer, log, b"answer ")
        return program.wait()


if __name__ == "__main__":
    sys.exit(main())
