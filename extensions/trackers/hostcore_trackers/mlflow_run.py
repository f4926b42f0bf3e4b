"""The MLflow run that stands for a run of hostcore: found again in every attempt, by its tags."""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from hostcore_hookspecs import FatalError, Job
from hostcore_trackers.job_parameters import parameters_of
from hostcore_trackers.mlflow_api import MlflowApi, NotThere, RefusedValue
from hostcore_trackers.names import as_path, distinct

#: Limits of the server: characters, and items of one request.
_NAME_CHARACTERS: Final = 250
_PARAM_CHARACTERS: Final = 6000
_TAG_CHARACTERS: Final = 5000
_PARAMS_PER_REQUEST: Final = 100
_METRICS_PER_REQUEST: Final = 1000

RUN_ID_TAG: Final = "hostcore.run_id"
SUBMITTED_TAG: Final = "hostcore.submitted_ms"

#: The reporter ``mlflow`` and the uploader ``mlflow-artifacts`` of one run may look for it at the same time.
_CREATING: Final = threading.Lock()


class MlflowRun:
    """One run on the server. All calls may be repeated: what the server has, it keeps once.

    :param id: MLflow's.
    """

    def __init__(self, api: MlflowApi, id: str) -> None:
        self._api = api
        self.id = id
        #: Called with the name of a value that the server refuses, and the reason; the other values are logged.
        self.on_refused: Callable[[str, str], object] = lambda *_: None

    @classmethod
    def find_or_create(
        cls, api: MlflowApi, *, experiment_id: str, name: str, run_id: str, submitted_ms: int, job: Job
    ) -> "MlflowRun":
        """The server's run with the tags of this run; made, if there is none.

        :param name: What MLflow shows.
        :param submitted_ms: Distinguishes it from an earlier run with the same ``run_id``.
        """
        with _CREATING:
            found = cls._find(api, experiment_id, run_id=run_id, submitted_ms=submitted_ms)
            return found or cls._create(
                api, experiment_id, name=name, run_id=run_id, submitted_ms=submitted_ms, job=job
            )

    @classmethod
    def _find(cls, api: MlflowApi, experiment_id: str, *, run_id: str, submitted_ms: int) -> "MlflowRun | None":
        where = f"tags.`{RUN_ID_TAG}` = '{run_id}' AND tags.`{SUBMITTED_TAG}` = '{submitted_ms}'"
        query = {"experiment_ids": [experiment_id], "filter": where, "max_results": 1}
        found = api.post("runs/search", query).get("runs")
        return cls(api, found[0]["info"]["run_id"]) if found else None

    @classmethod
    def _create(
        cls, api: MlflowApi, experiment_id: str, *, name: str, run_id: str, submitted_ms: int, job: Job
    ) -> "MlflowRun":
        tags = {
            **job.labels,
            RUN_ID_TAG: run_id,
            SUBMITTED_TAG: str(submitted_ms),
            "mlflow.source.type": "JOB",
            "mlflow.source.name": job.trainer,
        }
        body = {
            "experiment_id": experiment_id,
            "run_name": name,
            "start_time": submitted_ms,
            "tags": [_tag(key, value) for key, value in tags.items()],
        }
        return cls(api, api.post("runs/create", body)["run"]["info"]["run_id"])

    def log_parameters(self, job: Job) -> None:
        """Log what describes the job, as far as the server has no parameters of these names: it never changes one."""
        data = self._api.get("runs/get", run_id=self.id)["run"].get("data", {})
        known = {param["key"] for param in data.get("params", ())}
        params = [
            {"key": key, "value": _cut(value, _PARAM_CHARACTERS)}
            for name, value in parameters_of(job).items()
            if (key := _name(name)) not in known
        ]
        for first in range(0, len(params), _PARAMS_PER_REQUEST):
            self._log("params", params[first : first + _PARAMS_PER_REQUEST])

    def log_metrics(self, metrics: Mapping[str, float], *, step: int, time_ms: int) -> None:
        """Log values of one step; what comes again with the same time is there once."""
        points = [
            # Strict JSON has no NaN; in that of protocol buffers, which the server reads, it is a string.
            {"key": _name(name), "value": "NaN" if math.isnan(value) else value, "timestamp": time_ms, "step": step}
            for name, value in metrics.items()
        ]
        for first in range(0, len(points), _METRICS_PER_REQUEST):
            self._log("metrics", points[first : first + _METRICS_PER_REQUEST])

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Set tags, over what they were."""
        self._log("tags", [_tag(key, value) for key, value in tags.items()])

    def set_status(self, status: str, *, ended_ms: int | None) -> None:
        """Set the status: ``RUNNING``, ``FINISHED``, ``FAILED`` or ``KILLED``."""
        ended = {} if ended_ms is None else {"end_time": ended_ms}
        self._api.post("runs/update", {"run_id": self.id, "status": status, **ended})

    def _log(self, kind: str, items: Sequence[Mapping[str, Any]]) -> None:
        try:
            self._api.post("runs/log-batch", {"run_id": self.id, kind: items})
        except RefusedValue as error:
            self._api.post("runs/log-batch", {"run_id": self.id})  # is it the run that the server refuses?
            if len(items) == 1:
                self.on_refused(items[0]["key"], error.message)
                return
            middle = len(items) // 2
            self._log(kind, items[:middle])
            self._log(kind, items[middle:])


def experiment_id(api: MlflowApi, name: str, *, create: bool) -> str:
    """The id of an experiment.

    :param create: Whether to make it, if there is none of the name.
    :raises FatalError: There is none, or it was deleted.
    """
    hint = "restore it, or name another experiment in the reporter's settings"
    try:
        found = api.get("experiments/get-by-name", experiment_name=name)["experiment"]
    except NotThere:
        if not create:
            raise FatalError(
                f"the MLflow server has no experiment {name!r}",
                hint='make it, name another one, or set "create_experiment" to true',
            ) from None
        return str(api.post("experiments/create", {"name": name})["experiment_id"])
    if found.get("lifecycle_stage") == "deleted":
        raise FatalError(f"the MLflow experiment {name!r} was deleted", hint=hint)
    return str(found["experiment_id"])


def _name(name: str) -> str:
    return distinct(name, as_path(name), characters=_NAME_CHARACTERS)


def _cut(value: object, characters: int) -> str:
    text = str(value)
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


def _tag(key: str, value: str) -> dict[str, str]:
    return {"key": _name(key), "value": _cut(value, _TAG_CHARACTERS)}
