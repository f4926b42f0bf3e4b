"""What the conformance kit trains on: the package's own job, over a few rows."""

import sys
from pathlib import Path
from typing import Any

from char_lm.prepare_data import prepare

sys.path.append(str(Path(__file__).parents[3] / "tests"))  # for `hostcore check`; pytest has it
from prepared_job import PreparedJob, job_over

JOB = Path(__file__).parents[1] / "job.json"


class Text(PreparedJob):
    """A text of our own making, byte by byte, and the smallest GPT."""

    def prepared(self, folder: Path) -> dict[str, Any]:
        text = folder / "text.txt"
        text.write_text("".join(f"{number} times {number} is {number * number}. " for number in range(2_000)))
        prepare(folder, text)
        hyperparams = {"context": 32, "layers": 1, "heads": 2, "width": 16, "dropout": 0.1, "sample_length": 8}
        samples = [{"prompt": "7 times 7 is ", "seed": 0}]
        return job_over(folder, JOB, batch_size=4, callbacks=[], hyperparams=hyperparams, samples=samples)
