"""Scores a run on flights it has not seen: ``python -m flight_delay.score RUN_DIR --data data/test.parquet``.

The mean absolute error of the run's final model, which is the run's own ``test/mae``, stands next to that of a guess
that needs no model: a flight makes up as many minutes in the air as the flights of the training data did on average.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from flight_delay.batch import Batch
from flight_delay.console import exit_code_of
from flight_delay.features import ARRIVAL_DELAY, COLUMN_NAMES, DEPARTURE_DELAY
from flight_delay.model import FlightDelayModel
from flight_delay.prepare_data import TRAIN_FILE
from flight_delay.weights import load_model
from hostcore_hookspecs import HostcoreError, InvalidData

_ROWS_AT_ONCE: Final = 16_384


@attrs.frozen(kw_only=True)
class Score:
    """Mean absolute errors in minutes, lower is better."""

    #: Of the checkpoint.
    step: int
    flights: int
    mae_minutes: float
    #: Of "departure delay + mean gain".
    baseline_mae_minutes: float
    #: By how much the model is better, of the baseline.
    improvement_percent: float


def score(run_dir: Path, data: Path, train: Path) -> Score:
    """Score the final model of a run.

    :param run_dir: The folder that the run printed, ``runs/<run_id>``.
    :param data: Prepared flights to score on.
    :param train: Prepared flights that the baseline takes its mean gain from.
    :raises HostcoreError: When the run has no final checkpoint, or a file cannot be read.
    """
    step, folder = _final_model(run_dir)
    flights = _read(data, COLUMN_NAMES)
    if not flights.num_rows:
        raise InvalidData("no flights to score on", file=str(data))
    mae = _model_mae(load_model(folder), flights)
    baseline = _baseline_mae(flights, mean_gain(train))
    return Score(
        step=step,
        flights=flights.num_rows,
        mae_minutes=mae,
        baseline_mae_minutes=baseline,
        improvement_percent=100 * (1 - mae / baseline),
    )


def mean_gain(train: Path) -> float:
    """The mean of arrival delay minus departure delay, in minutes; negative when flights make up time."""
    flights = _read(train, [ARRIVAL_DELAY, DEPARTURE_DELAY])
    return float(pc.mean(_gain(flights)).as_py())


def _gain(flights: pa.Table) -> pa.ChunkedArray:
    return pc.subtract(flights[ARRIVAL_DELAY], flights[DEPARTURE_DELAY])


def _baseline_mae(flights: pa.Table, expected_gain: float) -> float:
    return float(pc.mean(pc.abs(pc.subtract(_gain(flights), expected_gain))).as_py())


@torch.inference_mode()
def _model_mae(model: FlightDelayModel, flights: pa.Table) -> float:
    total = 0.0
    for rows in flights.to_batches(max_chunksize=_ROWS_AT_ONCE):
        batch = Batch.from_arrow(rows)
        total += float((model(batch.ids, batch.numbers) - batch.arrival_delay).abs().sum())
    return total / len(flights)


def _final_model(run_dir: Path) -> tuple[int, Path]:
    """The step of the run's last checkpoint, and the folder that ``save_checkpoint`` wrote in it."""
    path = run_dir / "result.json"
    try:
        result = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise HostcoreError(
            f"no result of a run: {error}", file=str(path), hint="Give the folder of a run that has ended: runs/RUN_ID"
        ) from error
    if not result["final_checkpoint"]:
        raise HostcoreError("the run ended without a checkpoint", file=str(path))
    return result["step"], run_dir / result["final_checkpoint"] / "trainer"


def _read(path: Path, columns: Sequence[str]) -> pa.Table:
    try:
        return pq.read_table(path, columns=list(columns))
    except (OSError, pa.ArrowException) as error:
        raise InvalidData(
            f"cannot read prepared flights: {error}",
            file=str(path),
            hint="Prepare them with: python -m flight_delay.prepare_data --out DIR",
        ) from error


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line.

    :return: The exit code.
    """
    parser = argparse.ArgumentParser(
        prog="python -m flight_delay.score", description="Score a run's final model on flights it has not seen."
    )
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="the folder of the run: runs/RUN_ID")
    parser.add_argument("--data", type=Path, required=True, metavar="FILE", help="the flights: data/test.parquet")
    parser.add_argument(
        "--train",
        type=Path,
        metavar="FILE",
        help=f"the flights that the baseline's mean gain is taken from (default: {TRAIN_FILE} beside --data)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(arguments)

    def command() -> None:
        result = score(options.run_dir, options.data, options.train or options.data.with_name(TRAIN_FILE))
        print(json.dumps(attrs.asdict(result)) if options.json else _in_words(result))

    return exit_code_of(command)


def _in_words(result: Score) -> str:
    return (
        f"mean absolute error on {result.flights:,} flights, in minutes:\n"
        f"  {result.mae_minutes:6.2f}  the model at step {result.step:,}\n"
        f"  {result.baseline_mae_minutes:6.2f}  departure delay + mean gain\n"
        f"{result.improvement_percent:.1f} % better than without a model"
    )


if __name__ == "__main__":
    sys.exit(main())
