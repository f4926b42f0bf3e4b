"""Draw the picture of a poisoned row that is found: what a terminal shows of real commands, as SVG.

    python docs/debug_picture.py docs/_static/debug.svg

Needs tmux, and hostcore-debug, the example ``flight_delay`` and its prepared data (``make demo``) in this environment.
The run and the row are those of ``how-to/debug-a-step.md``.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet
from run_picture import COLUMNS, draw, tmux, wait_for, wait_for_prompt

EXAMPLE = Path(__file__).resolve().parents[1] / "example_trainers/flight_delay"
LINES, STEP, ROW = 60, 299, 123456
TRAIN = [
    *("run", "job.json", "--set", "run_id=spiky", "--set", 'dataset.parquet_paths=["data/poisoned.parquet"]'),
    *("--set", "epochs=2", "--set", "metric_every=1", "--set", "checkpoint_every=50", "--set", "keep_checkpoints=10"),
]
COMMANDS = [
    "hostcore debug spiky --spikes",
    f"hostcore debug spiky --step {STEP} --bisect-rows",
    f"hostcore rows spiky --row poisoned.parquet:{ROW}",
    f"hostcore debug spiky --step {STEP}",
]


def poison(data: Path) -> None:
    """Write the training data again with a delay of 2,000,000 minutes in one row."""
    rows = parquet.read_table(data / "train.parquet")
    minutes = rows["arrival_delay_minutes"].to_pylist()
    minutes[ROW] = 2_000_000.0
    place = rows.schema.get_field_index("arrival_delay_minutes")
    rows = rows.set_column(place, rows.schema.field(place), pa.array(minutes, pa.float32()))
    parquet.write_table(rows, data / "poisoned.parquet", row_group_size=4096)


def main() -> None:
    """Train, look for the row, capture, draw."""
    with tempfile.TemporaryDirectory() as place:
        shutil.copytree(EXAMPLE / "data", Path(place, "data"))
        shutil.copy(EXAMPLE / "job.json", place)
        poison(Path(place, "data"))
        scripts = Path(sys.executable).parent
        subprocess.run([scripts / "hostcore", *TRAIN], cwd=place, check=True, capture_output=True)
        shell = f"cd {place} && PATH={scripts}:$PATH PS1='$ ' exec bash --norc --noprofile -i"
        tmux("new-session", "-d", "-s", "run", "-x", str(COLUMNS), "-y", str(LINES), shell)
        try:
            wait_for_prompt()
            for command in COMMANDS:
                tmux("send-keys", "-t", "run", command, "Enter")
                wait_for(command)
                wait_for_prompt()
            screen = tmux("capture-pane", "-p", "-e", "-t", "run").rstrip().removesuffix("$").rstrip()
        finally:
            tmux("kill-server")
    draw(screen, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
