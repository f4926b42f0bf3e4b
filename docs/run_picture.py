"""Draw the picture of a run that the README shows: what a terminal shows of real commands, as SVG.

    python docs/run_picture.py docs/_static/run.svg

Needs tmux, and hostcore and the example ``digits`` with its data in this environment. The first run is interrupted with
Ctrl-C, as a user would, and resumed.
"""

import io
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS, LINES = 100, 56
EXAMPLE = Path(__file__).resolve().parents[1] / "example_trainers/digits"


def tmux(*arguments: str) -> str:
    """Ask tmux, in a server of its own."""
    return subprocess.run(["tmux", "-L", "picture", *arguments], check=True, capture_output=True, text=True).stdout


def wait_for(words: str) -> None:
    """Wait until the terminal shows them."""
    while words not in tmux("capture-pane", "-p", "-t", "run"):
        time.sleep(0.05)


def wait_for_prompt() -> None:
    """Wait until the shell has nothing to do."""
    while not tmux("capture-pane", "-p", "-t", "run").rstrip().endswith("$"):
        time.sleep(0.05)


def draw(screen: str, file: Path) -> None:
    """Draw what a terminal shows, with its colors, as SVG."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi(screen))
    svg = console.export_svg(title="hostcore")
    # Without the font that rich names: a page must not load anything from elsewhere.
    file.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL), encoding="utf-8")


def main() -> None:
    """Run, capture, draw."""
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([sys.executable, "-m", "digits.prepare_data", "--out", f"{place}/data"], check=True)
        shutil.copy(EXAMPLE / "job.json", place)
        scripts = Path(sys.executable).parent
        shell = f"cd {place} && PATH={scripts}:$PATH PS1='$ ' exec bash --norc --noprofile -i"
        tmux("new-session", "-d", "-s", "run", "-x", str(COLUMNS), "-y", str(LINES), shell)
        try:
            wait_for_prompt()
            tmux("send-keys", "-t", "run", "hostcore run job.json --set run_id=digits-1 --set epochs=4", "Enter")
            wait_for("validation at step 16")
            tmux("send-keys", "-t", "run", "C-c")
            wait_for("to go on")
            wait_for_prompt()
            tmux("send-keys", "-t", "run", "hostcore resume digits-1", "Enter")
            wait_for("succeeded")
            wait_for_prompt()
            screen = tmux("capture-pane", "-p", "-e", "-t", "run").rstrip()
        finally:
            tmux("kill-server")
    draw(screen, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
