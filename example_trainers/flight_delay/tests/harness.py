"""What the conformance kit trains on: the package's own job, over a few rows."""

import sys
from pathlib import Path
from typing import Any

from flight_delay.prepare_data import prepare

sys.path.append(str(Path(__file__).parents[3] / "tests"))  # for `hostcore check`; pytest has it
from prepared_job import PreparedJob, job_over

HERE = Path(__file__).parent


class Flights(PreparedJob):
    """The flights of the other tests, and a small network."""

    def prepared(self, folder: Path) -> dict[str, Any]:
        prepare(folder, HERE / "data")
        hyperparams = {"hidden_sizes": [16, 8]}
        return job_over(folder, HERE.parent / "job.json", batch_size=32, callbacks=[], hyperparams=hyperparams)
