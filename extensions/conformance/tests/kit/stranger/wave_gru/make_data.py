"""Write the small Parquet files of ``job.json``: sines, squares and saw-teeth of 12 to 32 samples, with noise."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = {"train": 192, "validation": 40, "test": 40}


def waves(rows: int, seed: int) -> pa.Table:
    """Make a table with the columns ``signal`` (a list of float32) and ``label``."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=rows)
    signals = []
    for label in labels:
        phase = rng.uniform(0, 1) + np.arange(rng.integers(12, 33)) * rng.uniform(0.08, 0.2)
        sine = np.sin(2 * np.pi * phase)
        wave = (sine, np.sign(sine), 2 * (phase % 1) - 1)[label]
        signals.append((wave + rng.normal(0, 0.1, len(wave))).astype(np.float32))
    return pa.table({"signal": pa.array(signals, pa.list_(pa.float32())), "label": pa.array(labels, pa.int8())})


def main() -> None:
    """Write one file for each part, with row groups of 16 rows."""
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    for seed, (name, rows) in enumerate(ROWS.items()):
        pq.write_table(waves(rows, seed), folder / f"{name}.parquet", row_group_size=16)


if __name__ == "__main__":
    main()
