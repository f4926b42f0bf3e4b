"""The one way from a job file, or a mapping, to a :class:`JobSpec`: files, profile, ``--set``, types, rules."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs

from hostcore.errors import Errors, all_errors
from hostcore.job.data import with_fractions
from hostcore.job.document import Document, blame
from hostcore.job.files import INCLUDE, WrongInclude, folder_of, read_job, without_annotations
from hostcore.job.forms import object_form, structure
from hostcore.job.json_values import checked
from hostcore.job.names import DATA_SECTIONS, make_run_id
from hostcore.job.paths import SOURCE_PATHS, as_dataset, with_absolute_paths
from hostcore.job.pointers import Problems, at_or_below, tokens
from hostcore.job.rules import check_global_batch, check_rules, wrong_references
from hostcore.job.sections import dataset_keys
from hostcore.job.spec import JobSpec
from hostcore.job.wording import did_you_mean, near
from hostcore_hookspecs.errors import HostcoreError

#: Every override is called ``--set KEY``.
_NO_NAMES: Mapping[str, str] = MappingProxyType({})
_OF_DATA = 'settings of the data are under "dataset"'
_OF_ANY = 'settings of the trainer are under "hyperparams", those of the data under "dataset"'


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _random_token() -> str:
    return os.urandom(2).hex()


def load_job(
    source: Path | Mapping[str, Any],
    *,
    overrides: Sequence[str] = (),
    override_names: Mapping[str, str] = _NO_NAMES,
    profile: str | None = None,
    job_dir: Path | None = None,
    world_size: int | None = None,
    now: Callable[[], datetime] = _utc_now,
    token: Callable[[], str] = _random_token,
    also: Callable[[Mapping[str, Any], Path], Iterable[HostcoreError]] = lambda _document, _folder: (),
) -> JobSpec:
    """Load a job.

    The file comes first, with what it includes; then the profile is merged in, then the overrides are set, in order.

    :param source: A file (JSON; YAML if it ends in ``.yaml`` or ``.yml``, TOML if in ``.toml``), or the job itself.
    :param overrides: ``key=value``, as ``--set`` takes them; their relative paths start at the working directory.
    :param override_names: What errors call an override that is no ``--set``: ``--devices``, ``$TRAINER_PLUGIN``.
    :param profile: One of the job's ``profiles``.
    :param job_dir: Where other relative paths start, and import paths are searched. None: the file's folder; for a
        mapping the working directory.
    :param world_size: Ranks, when an engine has started them. None: one for each device of the job.
    :param now: The clock, for a generated run id.
    :param token: Four random hexadecimal digits, for a generated run id.
    :param also: What else is wrong with a document that is no job, by it and its folder.
    :raises Errors: With everything that is wrong, each with a JSON pointer and the file.
    """
    file = None if isinstance(source, Mapping) else Path(source)
    document = Document()
    try:
        folder = (job_dir or (folder_of(file) if file else Path.cwd())).absolute()
        document = read_job(file) if file else Document(without_annotations(checked(source)))
        _refuse_another_document(document.job)
        if profile is not None:
            document = document.with_profile(profile)
        document = _overridden(_with_absolute_places(document, folder), overrides, override_names)
        document = attrs.evolve(document, job=with_fractions(document.job))
        spec = attrs.evolve(
            _spec(document.job, lambda job: also(job, folder)),
            job_dir=folder,
            origins=document.origins,
            world_size=world_size,
        )
        if spec.has_data:
            check_global_batch(spec)
    except HostcoreError as error:
        _add_hints(all_errors(error), document.job)
        blame(all_errors(error), document.origins)
        for single in all_errors(error):
            single.file = single.file or (str(file) if file else None)
        raise Errors(all_errors(error)) from error.__cause__
    if spec.run_id:
        return spec
    return attrs.evolve(spec, run_id=make_run_id(spec.trainer, now=now, token=token), generated_run_id=True)


def _refuse_another_document(job: Mapping[str, Any]) -> None:
    if "trainer" not in job and "job" in job:
        raise HostcoreError(
            'this is not a job: it has one under "job", as a sweep has',
            code="job.another_document",
            pointer="/job",
            hint="`hostcore sweep FILE` runs a sweep; with --dry-run it shows sampled jobs, and starts nothing",
        )


def _overridden(document: Document, overrides: Sequence[str], names: Mapping[str, str]) -> Document:
    if not overrides:
        return document  # its places are absolute, and the working directory may have been deleted
    problems = Problems()
    for override in overrides:
        try:
            document = document.with_override(override, name=names.get(override))
        except HostcoreError as error:
            problems.extend(all_errors(error))
    problems.check()
    return _with_absolute_places(document, Path.cwd())  # what is still relative came from an override


def _with_absolute_places(document: Document, base_dir: Path) -> Document:
    return attrs.evolve(document, job=with_absolute_paths(document.job, base_dir))


def _spec(job: Mapping[str, Any], also: Callable[[Mapping[str, Any]], Iterable[HostcoreError]]) -> JobSpec:
    wrong = [*_includes(job), *wrong_references(job)]
    try:
        spec = structure(JobSpec, job)
        check_rules(spec)
    except Errors as error:
        others = _apart_from(wrong, error.errors)
        raise Errors([*others, *_apart_from([*others, *wrong], also(job)), *wrong]) from None
    if wrong:
        raise Errors(wrong)
    return spec


def _includes(document: Mapping[str, Any]) -> Iterator[HostcoreError]:
    """The key that files alone may have: theirs was read already."""
    if INCLUDE in document:
        yield WrongInclude(
            "job files alone include others: not a job that came over HTTP or from Python, a profile or --set",
            pointer=f"/{INCLUDE}",
            hint="`hostcore validate JOB --json` prints a job file with what it includes as one job",
        )


def _apart_from(others: Iterable[HostcoreError], errors: Iterable[HostcoreError]) -> list[HostcoreError]:
    """The errors about places that no other error is about."""
    places = [error.pointer or "" for error in others]

    def is_known(pointer: str) -> bool:
        return any(at_or_below(pointer, place) or at_or_below(place, pointer) for place in places)

    return [error for error in errors if not is_known(error.pointer or "")]


def _add_hints(errors: Iterable[HostcoreError], job: Mapping[str, Any]) -> None:
    """Add hints to errors of top-level keys: where a setting belongs, and how a job writes the value."""
    for error in errors:
        key, *inside = tokens(error.pointer or "") or [""]
        if inside:
            continue
        if error.code == "key.unknown":
            error.hint = _section_hint(key) or error.hint
        elif not error.hint and isinstance(value := job.get(key), str):
            error.hint = _value_hint(key, value)


def _value_hint(key: str, value: str) -> str | None:
    """The way in which a job writes what other libraries write otherwise: a file for the data, ``16-mixed``."""
    folded = value.casefold()
    if key in DATA_SECTIONS:
        return f'write "{key}": {json.dumps(as_dataset(value), ensure_ascii=False)}'
    if key == "precision" and ("16" in folded or "32" in folded):
        return did_you_mean(["bf16" if folded.startswith("bf") else "fp16" if "16" in folded else "fp32"])
    return None


def _section_hint(name: str) -> str | None:
    """The section that an unknown key belongs to; None if it is rather a mistyped key of the job."""
    data_keys = (*dataset_keys(), *SOURCE_PATHS)
    of_job, of_data = near(name, object_form(JobSpec).keys), near(name, data_keys)
    if name in data_keys or (of_data and not of_job):
        return f"{did_you_mean([f'dataset.{key}' for key in of_data])} {_OF_DATA}"
    return None if of_job else f"{did_you_mean([f'hyperparams.{name}'])} {_OF_ANY}"
