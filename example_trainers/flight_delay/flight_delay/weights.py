"""A trained model as two files: ``model.safetensors``, and ``model.json`` with its purpose."""

import json
from pathlib import Path
from typing import Any, Final

from safetensors.torch import load_file, save_file

from flight_delay.features import CATEGORIES, NUMBER_NAMES
from flight_delay.model import FlightDelayModel
from hostcore_hookspecs import HostcoreError

WEIGHTS_FILE: Final = "model.safetensors"
DESCRIPTION_FILE: Final = "model.json"


def _columns() -> dict[str, Any]:
    """The columns that the model reads, as plain JSON."""
    return {"ids": {category.name: category.size for category in CATEGORIES}, "numbers": list(NUMBER_NAMES)}


def save_model(model: FlightDelayModel, folder: Path) -> None:
    """Write a model into a folder."""
    save_file(model.state_dict(), folder / WEIGHTS_FILE)
    description = {"hidden_sizes": list(model.hidden_sizes), "columns": _columns()}
    (folder / DESCRIPTION_FILE).write_text(json.dumps(description, indent=2) + "\n")


def load_model(folder: Path) -> FlightDelayModel:
    """Read the model of a folder, ready to predict.

    :raises HostcoreError: When there is none, or when it reads other columns than this version of the package prepares.
    """
    path = folder / DESCRIPTION_FILE
    try:
        description = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise HostcoreError(f"not a model of this trainer: {error}", file=str(path)) from error
    if description.get("columns") != _columns():
        raise HostcoreError(
            "the model reads other columns than this version of flight_delay",
            file=str(path),
            hint="Install the version that trained it, or train it again.",
        )
    model = FlightDelayModel(hidden_sizes=description["hidden_sizes"])
    model.load_state_dict(load_file(folder / WEIGHTS_FILE))
    return model.eval()
