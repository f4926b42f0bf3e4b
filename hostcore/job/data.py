"""The data of a job: the sections that it has itself, and those that its trainer brings."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import attrs

from hostcore.errors import Errors, all_errors
from hostcore.job.forms import structure
from hostcore.job.json_values import checked
from hostcore.job.names import DATA_SECTIONS
from hostcore.job.paths import with_absolute_paths
from hostcore.job.pointers import Problems, escaped, tokens
from hostcore.job.rules import check_global_batch, check_rules, wrong_references
from hostcore.job.sections import DatasetSpec, dataset_keys
from hostcore.job.spec import JobSpec
from hostcore.job.wording import found
from hostcore_hookspecs.errors import HostcoreError

#: What is evaluated if no split is asked for: the first that there is.
SPLITS: Final = ("test", "validation")


class NothingToEvaluate(HostcoreError):
    """The job has no data for it, and its trainer brings none."""

    code = "evaluation.no_data"


def needed(spec: JobSpec, sections: Any) -> dict[str, Any]:
    """Those of the sections that a trainer brings which the job does not have itself.

    :param sections: What the trainer's ``data_sections`` returned.
    :raises Errors: When it is no mapping of sections.
    """
    if sections is None:
        return {}
    if not isinstance(sections, Mapping):
        raise _wrong(f"data_sections returned {found(sections)}, and no mapping of sections")
    if unknown := [key for key in sections if key not in DATA_SECTIONS]:
        raise _wrong(f"data_sections returned a section {found(unknown[0])}")
    has = {key for key in DATA_SECTIONS if getattr(spec, key) is not None}
    if spec.mock_batches is not None:
        has.add("dataset")
    return {key: value for key, value in sections.items() if key not in has}


def _wrong(message: str) -> HostcoreError:
    hint = f"the sections are {', '.join(DATA_SECTIONS)}, each an object as a job has it"
    return HostcoreError(message, code="trainer.data_sections", pointer="", hint=hint)


#: Keys of the training data that what is held out of it does not have: about an order, or about proportions.
_OF_TRAINING: Final = ("fraction", "shuffle", "shuffle_window", "window_bytes", "lanes", "stages", "exhausted")


def with_fractions(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """A job that holds rows of its dataset out of the training, for each ``{"fraction": 0.05}`` of its other splits.

    :param job: As written, with absolute paths. Without a dataset, it is returned as it is.
    :raises Errors: A fraction is none, or stands beside other data.
    """
    dataset, problems, end, held_out = job.get("dataset"), Problems(), 1.0, {}
    for split in SPLITS:
        section = job.get(split)
        if isinstance(dataset, Mapping) and isinstance(section, Mapping) and section.get("fraction") is not None:
            start = problems.gather(split, _held_out_from, section, dataset, end)
            kept = _without(dataset, _OF_TRAINING)
            if isinstance(parts := kept.get("of"), list):
                kept["of"] = [_without(part, ("weight",)) for part in parts]
            held_out[split] = {**kept, **_without(section, ("fraction",)), "hash_range": [start, end]}
            end = start or end
    problems.check()
    if not held_out or dataset is None:
        return job
    try:
        structure(DatasetSpec, dataset)
    except HostcoreError:
        # Its mistakes are reported once, as those of the dataset.
        return {key: section for key, section in job.items() if key not in held_out}
    return {**job, **held_out, "dataset": {**dataset, "hash_range": [0, end]}}


def _without(value: Any, keys: Collection[str]) -> Any:
    """Return an object without some of its keys; what is no object, which structuring refuses, as it is."""
    return {key: one for key, one in value.items() if key not in keys} if isinstance(value, Mapping) else value


def _held_out_from(section: Mapping[str, Any], dataset: Mapping[str, Any], end: float) -> float:
    """Return where the hashes of held-out rows begin that end somewhere."""
    if dataset.get("hash_range") is not None:
        message, hint = "the dataset has a hash_range already", "give the section one, too, in place of a fraction"
        raise HostcoreError(message, code="value.invalid", pointer="/fraction", hint=hint)
    for key in section:
        if key in ("source", "of", "hash_range") or key not in dataset_keys():
            message = f'a fraction is held out of the training data, and "{key}" names other data'
            raise HostcoreError(message, code="value.invalid", pointer=f"/{key}", hint="leave one of the two out")
    fraction = section["fraction"]
    start = round(end - fraction, 12) if isinstance(fraction, float) else 0.0
    if not 0 < start < end:
        message = f"a fraction is a number above 0 and below {end:g}, not {found(fraction)}"
        raise HostcoreError(message, code="value.invalid", pointer="/fraction", hint="for example 0.05")
    return start


def with_sections(spec: JobSpec, sections: Mapping[str, Any]) -> JobSpec:
    """A job with sections of data beside its own. Their relative paths start where those of the job do.

    :param sections: By name, as a job would have them; see :func:`needed`.
    :raises Errors: Everything that is wrong with them, with pointers as if the job had them.
    """
    if not sections:
        return spec
    folder, problems = spec.job_dir, Problems()
    document = with_absolute_paths(checked(sections), folder)
    brought: dict[str, Any] = {
        key: problems.gather(key, structure, DatasetSpec, section) for key, section in document.items()
    }
    problems.extend(wrong_references(document))
    problems.check()
    spec = attrs.evolve(spec, **brought)
    check_rules(spec)
    return spec


def with_brought(spec: JobSpec, by_rank: Sequence[Mapping[str, Any]]) -> JobSpec:
    """A job with the data that the workers have found its trainer to bring.

    :param by_rank: The sections, for each rank.
    :raises Errors: When they are not the same on all ranks, or the global batch cannot be made of them.
    """
    different = next((rank for rank, one in enumerate(by_rank) if one != by_rank[0]), 0)
    if different:
        message = f"data_sections of the trainer returned one thing on rank 0, and another on rank {different}"
        hint = "the data is that of all ranks, which share it out: return the same on all of them"
        raise Errors([HostcoreError(message, code="trainer.data_sections", pointer="/trainer", hint=hint)])
    spec = with_sections(spec, by_rank[0])
    try:
        check_global_batch(spec)  # of a job that is to run elsewhere, no worker here knows the ranks
    except HostcoreError as error:
        raise Errors([error]) from None
    return spec


def attribute_to_trainer(error: HostcoreError, sections: Mapping[str, Any], *, trainer: str, provenance: str) -> None:
    """Attribute errors in data sections that a trainer brings to the trainer, in place of keys that the job lacks.

    :param sections: Those that it brings, by name.
    :param trainer: Its name in a sentence.
    """
    for one in all_errors(error):
        place = tokens(one.pointer or "")
        if place and place[0] in sections:
            inside = "".join(f"/{escaped(token)}" for token in place[1:])
            at = f", at {inside}" if inside else ""
            one.message = f'in the "{place[0]}" that {trainer} brings{at}: {one.message}'
            one.pointer, one.plugin = "/trainer", one.plugin or provenance


def settled_split(spec: JobSpec, asked: str | None) -> str | None:
    """The split to evaluate, if the job has data for it itself; None if that depends on what its trainer brings.

    :param asked: ``validation`` or ``test``; None: the test, else the validation.
    """
    first = asked or SPLITS[0]
    return first if getattr(spec, first) is not None else None


def chosen_split(spec: JobSpec, asked: str | None) -> str:
    """The split to evaluate: the one asked for, else the test, else the validation.

    :param spec: With the sections that its trainer brings.
    :raises NothingToEvaluate: When the job has no data for it.
    """
    given = [split for split in SPLITS if getattr(spec, split) is not None]
    split = asked or next(iter(given), None)
    if split in given:
        return str(split)
    if asked is None:
        message, pointer = 'the job has neither "test" nor "validation" data', "/test"
    else:
        message, pointer = f'the job has no "{asked}" data', f"/{asked}"
    hint = 'give it in the form of "dataset"'
    if given:
        hint += f", or evaluate on what it has: --split {given[0]}"
    raise NothingToEvaluate(message, pointer=pointer, hint=hint)


def with_split_alone(spec: JobSpec, split: str) -> JobSpec:
    """A job without the other split, nor steps between validations: what an evaluation needs of it."""
    return attrs.evolve(
        spec,
        validation=spec.validation if split == "validation" else None,
        test=spec.test if split == "test" else None,
        validate_every=0,
    )
