"""Writes scikit-learn's diabetes data as Parquet: ``python example_trainers/linear/prepare_data.py``.

442 patients: ten measurements of each, and how far the disease had got after a year (Efron, Hastie, Johnstone and
Tibshirani, "Least Angle Regression", 2004). All columns are standardised. Every fourth row is for the validation.
"""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent


def prepare(out: Path) -> None:
    """Write ``train.parquet`` and ``validation.parquet``.

    :param out: The folder to write to; made if need be.
    """
    from sklearn.datasets import load_diabetes

    columns, target = load_diabetes(return_X_y=True, as_frame=True)
    data = columns.assign(target=target)
    data = (data - data.mean()) / data.std()
    table = pa.table({name: data[name].to_numpy() for name in data})
    rows = range(table.num_rows)
    out.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.take([row for row in rows if row % 4]), out / "train.parquet")
    pq.write_table(table.take([row for row in rows if row % 4 == 0]), out / "validation.parquet")


if __name__ == "__main__":
    try:
        prepare(HERE / "data")
    except ModuleNotFoundError as error:
        sys.exit(f"error: {error}\nhint: pip install scikit-learn")
    print(f"{HERE / 'data'}: train.parquet, validation.parquet")
