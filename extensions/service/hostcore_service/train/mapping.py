"""Conversion of the unified trainer API's requests to jobs, and of a job's errors to places of the request."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from hostcore.errors import Errors, all_errors
from hostcore.job.forms import object_form
from hostcore.job.names import BUILTIN, engine_name, without_builtin
from hostcore.job.paths import source_of
from hostcore.job.pointers import at_or_below, escaped
from hostcore.job.spec import JobSpec
from hostcore.job.wording import found
from hostcore_hookspecs.errors import HostcoreError
from hostcore_service.guard.from_others import CONFIG_PATH, EXTRA_ARGS, MODEL_ID
from hostcore_service.guard.refusal import NotAllowed, matches
from hostcore_service.train.request import TrainingJobRequest

#: Where in a job the ``extra_args`` of the specification go that are called otherwise there.
ALIASES: Final = {
    "batch_size": "/dataset/batch_size",
    "dataloader_workers": "/dataset/workers",
    "eval_steps": "/validate_every",
    "gradient_accumulation": "/accumulate",
    "log_every_n_steps": "/metric_every",
    "logging_steps": "/metric_every",
    "num_epochs": "/epochs",
    "save_steps": "/checkpoint_every",
}
#: Keys that ``extra_args`` may not hold, and the field to use instead.
RESERVED: Final = {
    "trainer": "framework",
    "trainer_api_version": None,
    "run_id": "run_id",
    "hyperparams": "one extra_arg for each",
    "mock_batches": "dataset_uri",
    "launcher": None,
    "resources": "image, num_nodes, gpus_per_node, cpus_per_node, memory_per_node_gb, namespace, env",
    "environment": None,
    "policies": None,
    "profiles": None,
    "labels": "labels",
    "annotations": "annotations",
    "checkpoint_base_uri": "checkpoint_base_uri",
    "resume_from_checkpoint": "resume_from_checkpoint",
    "model_id": "model_id",
    "config_path": "config_path",
}
_RESOURCES: Final = ("image", "num_nodes", "gpus_per_node", "cpus_per_node", "memory_per_node_gb", "namespace", "env")
#: A hint that names a key of a job that no request can set.
_UNSAYABLE: Final = re.compile(
    rf'"({"|".join(sorted(RESERVED.keys() - {field.name for field in attrs.fields(TrainingJobRequest)}))})"'
)
_OPERATORS: Final = "it is the operator's; POST /v1/jobs takes a whole job"
#: What a source calls its files, if not ``paths``.
_PATHS: Final = {"parquet": "parquet_paths", "shards": "index"}
_MOST_CHARACTERS: Final = 63


@attrs.frozen(kw_only=True)
class MappedJob:
    """A request as a job."""

    document: Mapping[str, Any]
    #: What its engine is to call it.
    name: str
    #: Where in the request the places of the job come from, by JSON pointer.
    origins: Mapping[str, str]
    #: What of the request counts for nothing, and why; sentences.
    notes: Sequence[str] = ()

    def as_said(self, error: HostcoreError) -> list[HostcoreError]:
        """The errors behind an error of the job, with pointers into the request, and hints that name its fields."""
        errors = list(all_errors(error))
        for one in errors:
            one.pointer = self._origin(one.pointer)
            one.hint = one.hint and _hint_as_said(one.hint)
        return errors

    def noting(self, extra_args: Mapping[str, Any]) -> "MappedJob":
        """With the ``extra_args`` of its request as an annotation, for containers made for the original API."""
        if not extra_args:
            return self
        annotations = {**self.document["annotations"], EXTRA_ARGS: json.dumps(dict(extra_args))}
        origins = {**self.origins, f"/annotations/{escaped(EXTRA_ARGS)}": "/extra_args"}
        return attrs.evolve(self, document={**self.document, "annotations": annotations}, origins=origins)

    def without_model_id(self) -> "MappedJob":
        """For a trainer that takes no such hyperparameter: it is recorded as an annotation."""
        return self._annotated("model_id", MODEL_ID)

    def without_config_path(self) -> "MappedJob":
        """For a trainer that takes no such hyperparameter: an annotation, of which containers make ``CONFIG_PATH``."""
        if "config_path" not in self.document["hyperparams"]:
            return self
        note = f"the trainer {self.document['trainer']!r} has no hyperparameter config_path: CONFIG_PATH alone has it"
        return attrs.evolve(self._annotated("config_path", CONFIG_PATH), notes=[*self.notes, note])

    def _annotated(self, key: str, annotation: str) -> "MappedJob":
        """With a hyperparameter as an annotation."""
        hyperparams = dict(self.document["hyperparams"])
        annotations = {**self.document["annotations"], annotation: hyperparams.pop(key)}
        document = {**self.document, "hyperparams": hyperparams, "annotations": annotations}
        origins = {**self.origins, f"/annotations/{escaped(annotation)}": f"/{key}"}
        return attrs.evolve(self, document=document, origins=origins)

    def _origin(self, pointer: str | None) -> str | None:
        if pointer is None:
            return None
        known = [place for place in self.origins if at_or_below(pointer, place)]
        if not known:  # no such key: the error may be about one of the request's own fields
            section, _, key = pointer[1:].partition("/")
            return f"/{key}" if section == "resources" and key in _RESOURCES else ""
        longest = max(known, key=len)
        return self.origins[longest] + pointer.removeprefix(longest)


def job_name(request: TrainingJobRequest) -> str:
    """Engine's name of a job: a DNS label (RFC 1123). ``meta`` and ``meta_demo_001`` make ``meta-meta-demo-001``.

    The end of a name that is too long is replaced by a digest of the whole, so that different ones stay different.
    """
    return label(request.job_name or f"{request.framework.rpartition('/')[2]}-{request.run_id}")


def label(text: str) -> str:
    """A text as a DNS label; see :func:`job_name`."""
    if len(text) <= _MOST_CHARACTERS - len("job-"):
        return engine_name(text)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{engine_name(text)[: _MOST_CHARACTERS - 9].rstrip('-')}-{digest}"


def to_job(request: TrainingJobRequest, allowed_args: Sequence[str]) -> MappedJob:
    """A request as a job.

    :param allowed_args: Patterns of the names that ``extra_args`` may have.
    :raises Errors: Every one of ``extra_args`` that cannot be.
    """
    making = _Making()
    making.put("/trainer", request.framework, "/framework")
    making.put("/run_id", request.run_id, "/run_id")
    making.put("/checkpoint_base_uri", request.checkpoint_base_uri.rstrip("/"), "/checkpoint_base_uri")
    # An existing run is resumed; false would make every launch of it after the first an error.
    making.put("/resume_from_checkpoint", request.resume_from_checkpoint or "auto", "/resume_from_checkpoint")
    making.put("/hyperparams/model_id", request.model_id, "/model_id")
    if request.config_path is not None:
        making.put("/hyperparams/config_path", request.config_path, "/config_path")
    making.put("/labels", dict(request.labels), "/labels")
    making.put("/annotations", dict(request.annotations), "/annotations")
    for key in _RESOURCES:
        if (value := getattr(request, key)) not in (None, {}):
            # A job counts in 10^9 bytes, a request in GiB.
            gigabytes = value * 2**30 / 10**9 if key == "memory_per_node_gb" else value
            making.put(f"/resources/{key}", gigabytes, f"/{key}")
    making.put_extra_args(request.extra_args, allowed_args)
    making.put_dataset(request.dataset_uri)
    notes = making.leave_out_what_counts_for_nothing()
    if making.errors:
        raise Errors(making.errors)
    return MappedJob(document=making.document, name=job_name(request), origins=making.origins, notes=notes)


@attrs.define(eq=False)
class _Making:
    """A job, as far as it is made."""

    document: dict[str, Any] = attrs.field(factory=dict)
    origins: dict[str, str] = attrs.field(factory=dict)
    errors: list[HostcoreError] = attrs.field(factory=list)

    def put(self, place: str, value: Any, origin: str) -> None:
        """Set a place of the job, at most two levels deep."""
        if place in self.origins:
            said = HostcoreError(f"{self.origins[place]} sets the same key", code="train.twice", pointer=origin)
            said.hint = "leave one of them out"
            self.errors.append(said)
            return
        section, slash, key = place[1:].partition("/")
        if slash:
            self.document.setdefault(section, {})[key.replace("~1", "/").replace("~0", "~")] = value
        else:
            self.document[section] = value
        self.origins[place] = origin

    def put_extra_args(self, extra_args: Mapping[str, Any], allowed: Sequence[str]) -> None:
        """Each to where it belongs."""
        keys = object_form(JobSpec).keys
        for name, value in extra_args.items():
            origin = f"/extra_args/{escaped(name)}"
            if not matches(name, allowed):
                self.errors.append(_not_allowed(name, origin))
            elif name in RESERVED:
                self.errors.append(_reserved(name, origin))
            elif name == "dataset":
                self._put_dataset_keys(value, origin)
            elif name in ALIASES:
                self.put(ALIASES[name], value, origin)
            elif name in keys:
                self.put(f"/{name}", value, origin)
            else:
                self.put(f"/hyperparams/{escaped(name)}", value, origin)

    def put_dataset(self, uri: str) -> None:
        """Put the data's URI into the key of the source that reads it."""
        dataset = self.document.setdefault("dataset", {})
        source = dataset.get("source", f"{BUILTIN}{source_of(uri)}")
        paths = _PATHS.get(without_builtin(source), "paths") if isinstance(source, str) else "paths"
        if "source" not in dataset:
            self.put("/dataset/source", source, "/dataset_uri")
        self.put(f"/dataset/{paths}", uri, "/dataset_uri")

    def leave_out_what_counts_for_nothing(self) -> list[str]:
        """Remove ``eval_steps`` if there is no validation data (old scripts always send it), and return notes on that.

        An ``eval_steps`` that is no number of steps stays, and is an error like any other.
        """
        place, steps = ALIASES["eval_steps"], self.document.get("validate_every")
        is_theirs = self.origins.get(place) == "/extra_args/eval_steps"
        if not is_theirs or type(steps) is not int or steps < 0 or self.document.get("validation") is not None:
            return []
        del self.document["validate_every"], self.origins[place]
        return ["eval_steps has no effect without validation data (extra_args.validation)"]

    def _put_dataset_keys(self, value: Any, origin: str) -> None:
        if not isinstance(value, Mapping):
            message = f"expected an object with keys of the dataset, found {found(value)}"
            self.errors.append(HostcoreError(message, code="value.type", pointer=origin))
            return
        for key, item in value.items():
            self.put(f"/dataset/{escaped(key)}", item, f"{origin}/{escaped(key)}")


def _not_allowed(name: str, pointer: str) -> NotAllowed:
    return NotAllowed(
        f"the extra_arg {found(name)} is not among those that the operator allows",
        pointer=pointer,
        hint="ask the operator of this service; [http] extra_args in HOSTCORE_CONFIG",
    )


def extra_arg_names(hyperparams: Iterable[str]) -> list[str]:
    """Those of a trainer's hyperparameters that an ``extra_arg`` of the same name sets."""
    keys = object_form(JobSpec).keys
    return sorted(name for name in hyperparams if name not in RESERVED and name not in ALIASES and name not in keys)


def _hint_as_said(hint: str) -> str:
    """A hint of the job's, with the fields of the request for those of the job."""
    hint = re.sub(r'"resources": \{(.*?)\}', r"\1", hint)
    hint = re.sub(r"\bresources\.(?=\w)", "", hint)
    return _OPERATORS if _UNSAYABLE.search(hint) else hint


def _reserved(name: str, pointer: str) -> HostcoreError:
    instead = RESERVED[name]
    hint = f"use {instead}" if instead else _OPERATORS
    return HostcoreError(f"extra_args cannot set {found(name)}", code="train.reserved", pointer=pointer, hint=hint)
