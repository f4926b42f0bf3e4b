"""``python -m hostcore_engines.keeper.rank``: becomes the command of a launch, for a rank.

The command is read from the launch's folder, since torchrun replaces ``$`` in arguments. A launch that was cancelled
starts no ranks any more: torchrun would start again those that stopped for it.
"""

import json
import os
import sys
from pathlib import Path
from typing import Final

#: The folder of the launch.
FOLDER_VARIABLE: Final = "HOSTCORE_LAUNCH_FOLDER"
#: As a run ends that was cancelled.
_CANCELLED: Final = 130


def main() -> None:
    """Become the command."""
    folder = Path(os.environ.pop(FOLDER_VARIABLE))
    if (folder / "cancel.json").exists():
        sys.exit(_CANCELLED)
    command = json.loads((folder / "errand.json").read_text())["command"]
    os.execvp(command[0], command)  # noqa: S606 - there is no shell, as intended


if __name__ == "__main__":
    main()
