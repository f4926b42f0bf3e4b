"""A sweep file into a :class:`Sweep`: each key with type, bounds, default and meaning, the rules between them, the job.

The converter and the JSON Schema are made from these classes, as those of a job are.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import attrs
from annotated_types import Ge, Gt, Le, MinLen

from hostcore.errors import all_errors
from hostcore.job.document import Document, blame
from hostcore.job.files import SCHEMA, folder_of, read_file, read_job, without_annotations
from hostcore.job.forms import json_schema, structure
from hostcore.job.load import load_job
from hostcore.job.names import RunId
from hostcore.job.pointers import Problems, at_or_below, escaped
from hostcore.job.sections import Text
from hostcore_hookspecs.errors import HostcoreError
from hostcore_sweeps.space import Parameter, Values, grid, ordered

Count = Annotated[int, Ge(1)]
#: The digits of a trial's number in the name of its run.
_DIGITS = 4
#: Begins what errors call a value that the space has set, before its pointer follows.
_SPACE = "--set "
#: Combinations of a grid that are tried without a limit.
_MOST_COMBINATIONS = 100_000


@attrs.frozen(kw_only=True)
class ObjectiveSpec:
    """Metric by which trials are compared."""

    metric: Text = attrs.field(metadata={"help": "As the events of a run call it: `val/loss`, `train/loss`."})
    mode: Literal["min", "max"] = attrs.field(metadata={"help": "Whether less or more is better."})
    value: Literal["last", "best"] = attrs.field(
        default="last", metadata={"help": "Which of a trial's values counts at its end."}
    )


@attrs.frozen(kw_only=True)
class SamplerSpec:
    """Choice of the next trial's values."""

    use: Literal["tpe", "random", "grid", "cmaes", "pbt"] = attrs.field(
        default="tpe",
        metadata={"help": "The sampler; all but `grid` and `pbt` are Optuna's.", "shorthand": True},
    )
    startup_trials: Annotated[int, Ge(0)] | None = attrs.field(
        default=None,
        metadata={"help": "Trials of `tpe` and `cmaes` that are random.", "default": "10 of `tpe`, 1 of `cmaes`"},
    )
    population: Annotated[int, Ge(2)] | None = attrs.field(
        default=None, metadata={"help": "Of `pbt`, which needs it: trials of a generation."}
    )
    interval_steps: Count | None = attrs.field(
        default=None, metadata={"help": "Of `pbt`, which needs it: the steps of a trial, from a checkpoint of another."}
    )


@attrs.frozen(kw_only=True)
class PrunerSpec:
    """Early end of trials. All pruners but `none` are Optuna's."""

    use: Literal["none", "median", "asha", "hyperband"] = attrs.field(
        default="none", metadata={"help": "The pruner.", "shorthand": True}
    )
    min_steps: Count | None = attrs.field(
        default=None, metadata={"help": "Of `asha` and `hyperband`, which need it: the step of the first rung."}
    )
    max_steps: Count | None = attrs.field(
        default=None, metadata={"help": "Of `hyperband`, which needs it: the step of the last rung."}
    )
    reduction_factor: Annotated[int, Ge(2)] | None = attrs.field(
        default=None,
        metadata={
            "help": "Of `asha` and `hyperband`: one of so many trials passes a rung, and the next rung is so many "
            "times as far.",
            "default": "3",
        },
    )
    startup_trials: Annotated[int, Ge(0)] | None = attrs.field(
        default=None, metadata={"help": "Of `median`: trials that come before the first is ended.", "default": "5"}
    )
    warmup_steps: Annotated[int, Ge(0)] | None = attrs.field(
        default=None, metadata={"help": "Of `median`: steps in which no trial is ended.", "default": "0"}
    )
    interval_steps: Count | None = attrs.field(
        default=None, metadata={"help": "Of `median`: steps between two decisions about a trial.", "default": "1"}
    )


@attrs.frozen(kw_only=True)
class LimitsSpec:
    """Limits of a sweep. It is resumed when a limit is raised."""

    trials: Count | None = attrs.field(
        default=None, metadata={"help": "Trials in all.", "default": "of `grid`: all combinations; else required"}
    )
    parallel: Count = attrs.field(default=1, metadata={"help": "Trials that run at the same time."})
    hours: Annotated[float, Gt(0)] | None = attrs.field(
        default=None, metadata={"help": "Of driving, over all sessions; then trials are paused.", "default": "no limit"}
    )
    steps: Count | None = attrs.field(
        default=None,
        metadata={"help": "Of all trials together, after which no trial begins.", "default": "no limit"},
    )
    failures: Count = attrs.field(default=5, metadata={"help": "Failed trials, after which no trial begins."})
    resumes: Annotated[int, Ge(0)] = attrs.field(
        default=5,
        metadata={
            "help": "How often in a row a trial goes on whose processes were killed before it reported anything new; "
            "then it counts as failed."
        },
    )


#: The keys of samplers and of pruners, and what those must have.
_SAMPLER_KEYS: Mapping[str, tuple[set[str], set[str]]] = {
    "tpe": ({"startup_trials"}, set()),
    "cmaes": ({"startup_trials"}, set()),
    "random": (set(), set()),
    "grid": (set(), set()),
    "pbt": ({"population", "interval_steps"}, {"population", "interval_steps"}),
}
_PRUNER_KEYS: Mapping[str, tuple[set[str], set[str]]] = {
    "none": (set(), set()),
    "median": ({"startup_trials", "warmup_steps", "interval_steps"}, set()),
    "asha": ({"min_steps", "reduction_factor"}, {"min_steps"}),
    "hyperband": ({"min_steps", "max_steps", "reduction_factor"}, {"min_steps", "max_steps"}),
}


@attrs.frozen(kw_only=True)
class SweepSpec:
    """A sweep: trials of one job, whose values at some places are searched for."""

    sweep_id: RunId = attrs.field(
        default="",
        metadata={
            "help": "The name of the sweep, and the beginning of the names of its runs.",
            "default": "the trainer, and a digest of everything but `limits`",
        },
    )
    job: Text | Mapping[str, Any] = attrs.field(
        metadata={"help": "The job of all trials: a file, relative to this one, or the job itself."}
    )
    space: Annotated[Mapping[str, Parameter], MinLen(1)] = attrs.field(
        metadata={"help": "What is searched, by JSON pointers into the job: `/hyperparams/learning_rate`."}
    )
    objective: ObjectiveSpec | Annotated[tuple[ObjectiveSpec, ...], MinLen(1)] = attrs.field(
        metadata={"help": "What trials are compared by; a list for several, of which none is traded for another."}
    )
    sampler: SamplerSpec = attrs.field(factory=SamplerSpec, metadata={"help": "How values are chosen."})
    pruner: PrunerSpec = attrs.field(factory=PrunerSpec, metadata={"help": "Which trials end early."})
    limits: LimitsSpec = attrs.field(factory=LimitsSpec, metadata={"help": "How much is tried."})
    seed: Annotated[int, Ge(0), Le(2**32 - 1)] = attrs.field(
        default=0, metadata={"help": "Of the sampler. The same seed gives the same trials."}
    )

    @property
    def objectives(self) -> tuple[ObjectiveSpec, ...]:
        """The objectives; one of most sweeps."""
        return self.objective if isinstance(self.objective, tuple) else (self.objective,)


@attrs.frozen(kw_only=True)
class Sweep:
    """A sweep that was found to be right, with its job."""

    spec: SweepSpec
    sweep_id: str
    #: The job as its file has it.
    job: Mapping[str, Any]
    #: Where relative paths of the job start, and its import paths are searched; absolute.
    job_dir: Path
    #: The parameters, those that conditions name before the others.
    space: Mapping[str, Parameter]

    @property
    def most_trials(self) -> int:
        """Trials in all, from the sweep's file."""
        wanted = self.spec.limits.trials
        if self.spec.sampler.use == "grid":
            return sum(1 for _ in itertools.islice(grid(self.space), wanted))
        return wanted or 0

    def run_id(self, number: int) -> str:
        """The run of a trial. It follows from the number, so that no trial can be two runs."""
        return f"{self.sweep_id}-{number:0{_DIGITS}d}"

    def job_of(self, number: int, values: Values) -> dict[str, Any]:
        """The job of a trial.

        :param values: By JSON pointer.
        :raises HostcoreError: When the job has no such place.
        """
        document = {**self.with_values(values), "run_id": self.run_id(number)}
        if isinstance(labels := document.get("labels", {}), Mapping):  # else it is reported with the job's other errors
            document["labels"] = {**labels, "sweep": self.sweep_id, "trial": str(number)}
        sampler = self.spec.sampler
        if sampler.population and sampler.interval_steps:
            document.pop("epochs", None)
            document["max_steps"] = (number // sampler.population + 1) * sampler.interval_steps
        return document

    def with_values(self, values: Values) -> dict[str, Any]:
        """The job with values at their places.

        :raises HostcoreError: When the job has no such place.
        """
        return dict(_with_space(Document(self.job), values).job)

    def as_dict(self) -> dict[str, Any]:
        """The sweep as the document in its folder."""
        document = plain(self.spec)
        return {**document, "job_dir": str(self.job_dir)}


def _with_space(document: Document, values: Values) -> Document:
    """A job with values at their places, which errors name as set by the space."""
    for pointer, value in values.items():
        document = document.with_override(f"{pointer}={json.dumps(value)}", name=f"{_SPACE}{pointer}")
    return document


def plain(value: Any) -> Any:
    """A value of a specification as JSON, without what was not given."""
    if attrs.has(type(value)):
        fields = {field.name: getattr(value, field.name) for field in attrs.fields(type(value))}
        return {name: plain(item) for name, item in fields.items() if item is not None}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def load_sweep(source: Path | Mapping[str, Any], *, folder: Path | None = None) -> Sweep:
    """Load a sweep.

    :param source: A file (JSON; YAML if it ends in ``.yaml`` or ``.yml``, TOML if in ``.toml``), or the sweep itself.
    :param folder: Where a relative path of its job starts; the file's folder if not given, or the working directory.
    :raises Errors: With everything that is wrong, each with a JSON pointer and the file.
    """
    file = None if isinstance(source, Mapping) else source
    folder = (folder or (folder_of(file) if file else Path.cwd())).absolute()
    try:
        document = dict(without_annotations(read_file(source) if isinstance(source, Path) else source))
        if "trainer" in document and "space" not in document:
            hint = 'a sweep names it: {"job": "job.json", "space": …, "objective": …, "limits": {"trials": …}}'
            raise _wrong("this is a job, not a sweep", hint=hint)
        job_dir = Path(document.pop("job_dir", folder))
        spec = structure(SweepSpec, document)
        sweep = _checked(spec, folder, job_dir)
    except HostcoreError as error:
        for single in all_errors(error):
            single.file = single.file or (str(file) if file else None)
            if single.file == str(file) and single.code.startswith("job."):  # the reader of jobs has read it
                single.message = single.message.replace("job", "sweep")
                single.hint = (single.hint or "").replace(
                    '{"trainer": …}', '{"job": …, "space": …, "objective": …}'
                ) or None
        raise
    return sweep


def sweep_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of sweep files."""
    schema = json_schema(SweepSpec)
    annotation = {SCHEMA: {"type": "string", "description": "The schema of this file, for editors."}}
    return {**schema, "title": "hostcore sweep", "properties": {**annotation, **schema["properties"]}}


def _checked(spec: SweepSpec, folder: Path, job_dir: Path) -> Sweep:
    problems = Problems()
    _check_rules(spec, problems)
    order = problems.gather("space", ordered, spec.space) or []
    written = Document()
    file: Path | None = None
    try:
        if isinstance(spec.job, Mapping):
            written = Document(dict(spec.job))
        else:
            file = folder / spec.job
            written, job_dir = read_job(file), folder_of(file)
    except HostcoreError as error:
        _blame(error, file, "/job")
        problems.extend(all_errors(error))
    problems.check()
    job = dict(written.job)
    space = {pointer: spec.space[pointer] for pointer in order}
    sweep_id = spec.sweep_id or _generated_id(spec, job)
    whole = attrs.evolve(spec, sweep_id=sweep_id, job=job)  # what its folder keeps
    made = Sweep(spec=whole, sweep_id=sweep_id, job=job, job_dir=job_dir, space=space)
    _check_grid(made)
    try:
        example = {pointer: parameter.first for pointer, parameter in space.items() if not parameter.when}
        load_job(made.job_of(0, example), job_dir=job_dir)
    except HostcoreError as error:
        for single in all_errors(error):
            single.file = single.file or _of_space(single.pointer, example)
        blame(all_errors(error), written.origins)
        _blame(error, file, "" if file else "/job")
        raise
    return made


def _check_grid(sweep: Sweep) -> None:
    """See that a grid without a limit comes to an end."""
    if sweep.spec.sampler.use != "grid" or sweep.spec.limits.trials is not None:
        return
    if next(itertools.islice(grid(sweep.space), _MOST_COMBINATIONS, None), None) is not None:
        hint = 'give "limits": {"trials": …}, fewer values, or another sampler'
        raise _wrong(f"the grid has more than {_MOST_COMBINATIONS:,} combinations", "/space", hint)


def _of_space(pointer: str | None, values: Values) -> str | None:
    """The value of the space that an error of the job is about, as errors call it; None for another place."""
    places = (one for one in values if pointer and (at_or_below(pointer, one) or at_or_below(one, pointer)))
    place = next(places, None)
    return None if place is None else f"{_SPACE}{place}"


def _blame(error: HostcoreError, file: Path | None, prefix: str) -> None:
    """Locate an error of the job: in its own file or one that it includes, or in the sweep's."""
    for single in all_errors(error):
        if single.file and single.file.startswith(_SPACE):
            single.pointer, single.file = f"/space/{escaped(single.file.removeprefix(_SPACE))}", None
            single.hint = None if _SPACE in (single.hint or "") else single.hint  # there is no such option here
        elif file is not None:
            single.file = single.file or str(file)
        else:
            single.pointer = f"{prefix}{single.pointer or ''}"


def _generated_id(spec: SweepSpec, job: Mapping[str, Any]) -> str:
    """Return an id derived from the sweep: the same sweep has it again, and is resumed."""
    kept = {key: value for key, value in plain(spec).items() if key not in ("sweep_id", "limits", "job")}
    digest = hashlib.sha256(json.dumps([job, kept]).encode()).hexdigest()[:8]
    trainer = re.sub(r"[^A-Za-z0-9._-]", "-", str(job.get("trainer", "sweep"))).strip("._-")[:80]
    return f"{trainer or 'sweep'}-{digest}"


def _check_rules(spec: SweepSpec, problems: Problems) -> None:
    """The rules between keys."""
    several = len(spec.objectives) > 1
    if several and spec.pruner.use != "none":
        problems.add(_wrong("a sweep with several objectives has no pruner", hint='leave "pruner" out'), "pruner")
    if several and spec.sampler.use in ("cmaes", "pbt"):
        problems.add(_wrong(f"{spec.sampler.use} takes one objective", hint='take "tpe" for several'), "sampler")
    metrics = [objective.metric for objective in spec.objectives]
    if len(set(metrics)) < len(metrics):
        problems.add(_wrong("two objectives have the same metric"), "objective")
    if spec.sampler.use == "grid":
        for pointer, parameter in spec.space.items():
            if parameter.count is None:
                message = f"grid needs values that can be counted, and {parameter.kind} has any number of them"
                problems.extend([_wrong(message, f"/space/{escaped(pointer)}", "give a step, or a choice")])
    elif spec.limits.trials is None:
        problems.add(_wrong("trials is missing: how many are tried", "/trials", '"limits": {"trials": 50}'), "limits")
    if spec.sampler.use == "pbt" and spec.pruner.use != "none":
        problems.add(_wrong("pbt has no pruner: bad trials copy good ones", hint='leave "pruner" out'), "pruner")
    if spec.sampler.use == "pbt" and "/max_steps" in spec.space:
        problems.extend([_wrong("pbt sets max_steps itself", "/space/~1max_steps")])
    _check_keys(spec.sampler, "sampler", _SAMPLER_KEYS[spec.sampler.use], problems)
    pruner = spec.pruner
    _check_keys(pruner, "pruner", _PRUNER_KEYS[pruner.use], problems)
    if pruner.min_steps and pruner.max_steps and pruner.max_steps < pruner.min_steps:
        problems.add(_wrong("max_steps is below min_steps", "/max_steps"), "pruner")


def _check_keys(
    chosen: SamplerSpec | PrunerSpec, key: str, of_it: tuple[set[str], set[str]], problems: Problems
) -> None:
    """See that a sampler or a pruner is given its own keys, and those that it needs."""
    allowed, needed = of_it
    given = set(plain(chosen)) - {"use"}
    for name in sorted(given - allowed):
        hint = f"its keys are {', '.join(sorted(allowed))}" if allowed else None
        problems.add(_wrong(f"{chosen.use} has no {name}", f"/{name}", hint), key)
    for name in sorted(needed - given):
        problems.add(_wrong(f"{name} is missing: {chosen.use} needs it", f"/{name}"), key)


def _wrong(message: str, pointer: str = "", hint: str | None = None) -> HostcoreError:
    return HostcoreError(message, code="sweep.rule", pointer=pointer, hint=hint)
