"""What the conformance kit trains on: the package's own job, over a few rows."""

import sys
from pathlib import Path
from typing import Any

from digits.prepare_data import prepare

sys.path.append(str(Path(__file__).parents[3] / "tests"))  # for `hostcore check`; pytest has it
from prepared_job import PreparedJob, job_over

JOB = Path(__file__).parents[1] / "job.json"


class Digits(PreparedJob):
    """Handwritten digits that come with scikit-learn, a small network, small batches."""

    def prepared(self, folder: Path) -> dict[str, Any]:
        prepare(folder)
        return job_over(folder, JOB, batch_size=16, callbacks=[], hyperparams={"channels": 4})
