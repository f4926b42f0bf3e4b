"""``python -m hostcore_engines.keeper FOLDER NODE --detach|--tee LOG``: the keeper of a node.

The command appends its output to LOG. With ``--detach`` the keeper runs in a session of its own, and this process
returns as soon as it has begun. With ``--tee`` it stays a child of the engine that started it, prints what is
appended, ends with the command's exit code, and stops the command when the engine's process is gone.
"""

import os
import signal
import sys
from pathlib import Path

from hostcore_engines.keeper.folder import LaunchFolder
from hostcore_engines.keeper.following import Following
from hostcore_engines.keeper.keeping import Keeper


def main(arguments: list[str]) -> int:
    """Keep a node.

    :return: The exit code.
    """
    folder, node, how, log = arguments
    if how == "--detach":
        return _detach(Keeper(LaunchFolder(Path(folder)), int(node)), Path(log))
    keeper = Keeper(LaunchFolder(Path(folder)), int(node), parent=os.getppid())
    with Following(Path(log)), Path(log).open("ab") as output:
        code = keeper.keep(output=output) if keeper.claim() else 0
    return code if code >= 0 else 128 - code


def _detach(keeper: Keeper, log: Path) -> int:
    heard, told = os.pipe()
    if os.fork():
        os.close(told)
        with os.fdopen(heard, "rb") as answer:
            return 0 if answer.read() else 1
    os.close(heard)
    os.setsid()
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # nohup
    log.parent.mkdir(parents=True, exist_ok=True)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    claimed = keeper.claim()
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.write(told, b"1")
    os.close(told)
    if claimed:
        keeper.keep()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
