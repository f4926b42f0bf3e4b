"""The callback ``csv-metrics``: all recorded metrics as CSV files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hostcore_builtin_plugins.callbacks.csv_file import CsvFile
from hostcore_hookspecs import RunState, StepContext

_FOLDER: Final = "csv-metrics"


class CsvMetrics:
    """Writes ``csv-metrics/train.csv``, ``validation.csv`` and ``test.csv`` in the run directory; rank 0 alone.

    The host records a step's training metrics after ``on_batch_end``, so they are written at the next hook of any kind.
    What a process that died had not written comes from the history when the run resumes.
    """

    def __init__(self) -> None:
        #: By split; empty on every other rank.
        self._files: Mapping[str, CsvFile] = {}
        #: The names of the metrics that a validation or a test has reported, by split; all others are of the training.
        self._evaluated: dict[str, dict[str, None]] = {"validation": {}, "test": {}}
        self._metric_every = 0
        self._noted_step = 0

    def on_train_begin(self, run_state: RunState, ctx: StepContext) -> None:
        """Bring the files to where the run stands: later rows are removed, and missing ones added.

        :raises FatalError: When a file cannot be read or written.
        """
        if ctx.rank != 0 or not ctx.run_dir:
            return
        self._metric_every = ctx.job.metric_every
        self._noted_step = run_state.step
        splits = ("train", *self._evaluated)
        self._files = {split: CsvFile(Path(ctx.run_dir, _FOLDER, f"{split}.csv")) for split in splits}
        for split, file in self._files.items():
            file.open(until=run_state.step)
            self._catch_up(split, file, run_state)

    def _catch_up(self, split: str, file: CsvFile, run_state: RunState) -> None:
        rows: dict[int, dict[str, float]] = {}
        for name, points in run_state.history.items():
            if name in self._evaluated.get(split, ()) or (split == "train" and not self._is_evaluated(name)):
                for step, value in points:
                    if step > file.last_step:
                        rows.setdefault(step, {})[name] = value
        file.append(sorted(rows.items()))

    def _is_evaluated(self, name: str) -> bool:
        return any(name in names for names in self._evaluated.values())

    def on_batch_begin(self, run_state: RunState) -> None:
        """Write the metrics of the step before, if it was a cadence step."""
        if self._metric_every and run_state.step % self._metric_every == 0:
            self._note_training(run_state)

    def on_validation_begin(self, run_state: RunState) -> None:
        """Write the metrics of this step."""
        self._note_training(run_state)

    def on_epoch_end(self, run_state: RunState) -> None:
        """Write the metrics of this step."""
        self._note_training(run_state)

    def on_test_begin(self, run_state: RunState) -> None:
        """Write the metrics of the last step."""
        self._note_training(run_state)

    def on_train_end(self, run_state: RunState) -> None:
        """Write the metrics of the last step, and close the files."""
        self._end(run_state)

    def on_exception(self, run_state: RunState) -> None:
        """Write the metrics of the last step, and close the files."""
        self._end(run_state)

    def _end(self, run_state: RunState) -> None:
        try:
            self._note_training(run_state)
        finally:
            for file in self._files.values():
                file.close()

    def _note_training(self, run_state: RunState) -> None:
        if not self._files or run_state.step == self._noted_step:
            return
        self._noted_step = run_state.step
        metrics = {
            name: points[-1].value
            for name, points in run_state.history.items()
            if points and points[-1].step == run_state.step and not self._is_evaluated(name)
        }
        if metrics:
            self._files["train"].append([(run_state.step, metrics)])

    def on_validation_end(self, metrics: Mapping[str, float], run_state: RunState) -> None:
        """Write what a validation has found."""
        self._note_evaluation("validation", metrics, run_state)

    def on_test_end(self, metrics: Mapping[str, float], run_state: RunState) -> None:
        """Write what the test has found."""
        self._note_evaluation("test", metrics, run_state)

    def _note_evaluation(self, split: str, metrics: Mapping[str, float], run_state: RunState) -> None:
        self._evaluated[split].update(dict.fromkeys(metrics))
        if self._files and metrics:
            self._files[split].append([(run_state.step, metrics)])

    def callback_state(self) -> dict[str, Any]:
        """Return the state for a resume: the owner of each metric."""
        return {split: list(names) for split, names in self._evaluated.items()}

    def load_callback_state(self, payload: Mapping[str, Any]) -> None:
        """Go on with the names of an earlier attempt."""
        self._evaluated = {split: dict.fromkeys(payload[split]) for split in self._evaluated}
