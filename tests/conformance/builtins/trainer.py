"""The example trainers, each with a job of a few hundred rows and a small model. Nothing is downloaded."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

EXAMPLES_FOLDER: Final = Path(__file__).resolve().parents[3] / "example_trainers"


def _job(name: str, folder: Path, batch_size: int, **changes: Any) -> dict[str, Any]:
    """The example's own job, over prepared data in a folder, without callbacks."""
    job: dict[str, Any] = json.loads((EXAMPLES_FOLDER / name / "job.json").read_text())
    for split, file in (("dataset", "train"), ("validation", "validation"), ("test", "test")):
        job[split] = {**job[split], "parquet_paths": [str(folder / f"{file}.parquet")], "batch_size": batch_size}
    return {**job, "device": "cpu", "callbacks": [], **changes}


def digits(folder: Path) -> dict[str, Any]:
    """Handwritten digits that come with scikit-learn."""
    from digits.prepare_data import prepare

    prepare(folder)
    return {"job": _job("digits", folder, 16, hyperparams={"channels": 4})}


def char_lm(folder: Path) -> dict[str, Any]:
    """A text of our own making, byte by byte."""
    from char_lm.prepare_data import prepare

    text = folder / "text.txt"
    text.write_text("".join(f"{number} times {number} is {number * number}. " for number in range(2_000)))
    prepare(folder, text)
    small: Mapping[str, Any] = {"context": 32, "layers": 1, "heads": 2, "width": 16, "dropout": 0.1, "sample_length": 8}
    return {"job": _job("char_lm", folder, 4, hyperparams=small, samples=[{"prompt": "7 times 7 is ", "seed": 0}])}


def flight_delay(folder: Path) -> dict[str, Any]:
    """The flights that the example's own tests train on."""
    from flight_delay.prepare_data import prepare

    prepare(folder, EXAMPLES_FOLDER / "flight_delay" / "tests" / "data")
    return {"job": _job("flight_delay", folder, 32, hyperparams={"hidden_sizes": [16, 8]})}


#: By name, a function that makes the arguments of ``check_plugin`` in a folder.
EXAMPLES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "digits": digits,
    "char_lm": char_lm,
    "flight_delay": flight_delay,
}
