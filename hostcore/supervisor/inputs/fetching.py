"""The inputs of a job, brought to this machine."""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from hostcore.errors import Errors, all_errors
from hostcore.events.writer import now_ms
from hostcore.job.origins import mark
from hostcore.job.spec import JobSpec
from hostcore.plugins.component import Component
from hostcore.supervisor.inputs.resolving import Source, sources
from hostcore.supervisor.remote.errors import told_of
from hostcore_hookspecs.errors import HostcoreError

if TYPE_CHECKING:
    from hostcore.supervisor.inputs.cache import Shelf
    from hostcore.supervisor.remote.store import Listing, Location

A = TypeVar("A")
B = TypeVar("B")
Tell = Callable[[str], object]


class InputMissing(HostcoreError):
    """An input is not where the job says, or is something else."""

    code = "input.missing"


@attrs.frozen(kw_only=True)
class _Absent:
    """An input that lies in a store and not on this machine."""

    source: Source
    place: "Location"
    listing: "Listing"
    shelf: "Shelf"


def fetch_inputs(spec: JobSpec, resolvers: Sequence[Component], tell: Tell) -> dict[str, str]:
    """Bring the ``inputs`` and ``weights`` of a job to this machine.

    What lies on this machine is used where it is; everything else goes to a cache, where it is found the next time.
    Nothing is transferred before all of them were found.

    :param resolvers: In the order of the job.
    :param tell: Gets a line about what people should know.
    :return: Absolute local paths by name, for ``ctx.model_handles``.
    :raises Errors: Everything that cannot be resolved, found, reached or fetched, each with its pointer.
    """
    found = _each(sources(spec, resolvers), lambda one: _found(one, tell), spec)
    brought = _each(found, lambda one: one if isinstance(one, tuple) else (one.source, _fetched(one, tell)), spec)
    return {source.name: str(path) for source, path in brought}


def examine_inputs(spec: JobSpec, resolvers: Sequence[Component]) -> None:
    """See that the ``inputs`` and ``weights`` of a job could be fetched, without fetching them.

    :raises Errors: Everything that cannot be resolved, found or reached, each with its pointer.
    """
    _each(sources(spec, resolvers), lambda one: _found(one, lambda _: None), spec)


def _each(items: Iterable[A], act: Callable[[A], B], spec: JobSpec) -> list[B]:
    """What comes of each item; all errors at once."""
    done: list[B] = []
    errors: list[HostcoreError] = []
    for item in items:
        try:
            done.append(act(item))
        except HostcoreError as error:
            errors += all_errors(error)
    if errors:
        mark(errors, spec.origins)
        raise Errors(errors)
    return done


def _found(one: Source, tell: Tell) -> tuple[Source, Path] | _Absent:
    """An input on this machine, or, if only there, in its store."""
    if one.local is not None:
        return one, _of_this_machine(one, one.local)
    from hostcore.supervisor.inputs.cache import Shelf
    from hostcore.supervisor.remote.errors import StoreError
    from hostcore.supervisor.remote.store import Location

    shelf = Shelf.of(one.location, _endpoint(one.storage_options))
    if one.sha256 and (kept := shelf.newest(sha256=one.sha256)):
        return one, kept[1]  # the content is known to be the right one, whatever the store has by now
    try:
        place = Location.of(one.location, one.storage_options, pointer=one.pointer)
        listing = place.listing()
    except StoreError as error:
        kept = shelf.newest(sha256=one.sha256) if error.is_outage else None
        if kept is None:
            raise
        tell(f"input {one.name}: {error.message}; what was fetched from there before is used")
        return one, kept[1]
    if one.sha256 and listing.is_folder:
        raise _folder_has_no_sum(one)
    kept = shelf.find(listing.version) if listing.version and not one.sha256 else None
    return (one, kept[1]) if kept else _Absent(source=one, place=place, listing=listing, shelf=shelf)


def _fetched(absent: _Absent, tell: Tell) -> Path:
    """Fetch an input, unless another process is fetching it: then wait for it."""
    one, place = absent.source, absent.place
    version = absent.listing.version or f"unknown {now_ms()}"  # fetched anew, if the store cannot tell
    with told_of(str(absent.shelf.path), pointer=one.pointer), absent.shelf.locked(tell, place.uri):
        kept = absent.shelf.find(version)
        if kept is not None and (not one.sha256 or kept[0].sha256 == one.sha256):
            return kept[1]
        tell(f"input {one.name}: fetching {place.uri}{_amount(absent.listing)}")
        return _brought(absent, version)


def _brought(absent: _Absent, version: str) -> Path:
    """Fetch a version into a folder of a temporary name, and give it its own when it is whole."""
    from hostcore.supervisor.inputs.cache import Cached, cached_file
    from hostcore.supervisor.remote.transfer import Wanted, bring

    one, place, listing, shelf = absent.source, absent.place, absent.listing, absent.shelf
    name = place.path.rpartition("/")[2] or "content" if listing.is_folder else listing.files[0].name
    temporary = shelf.temporary(version)
    content = temporary / "content"
    names = [f"{name}/{file.name}" if listing.is_folder else name for file in listing.files]
    wanted = [
        Wanted(
            source=file.path,
            uri=f"{place.uri}/{file.name}" if listing.is_folder else place.uri,
            target=content / below,
            size=file.size,
            sha256=one.sha256,
        )
        for file, below in zip(listing.files, names, strict=True)
    ]
    try:
        content.mkdir(parents=True)
        digests = bring(place.filesystem, wanted, label=one.name, pointer=one.pointer)
        files = [
            cached_file(each.target, below, digest) for each, below, digest in zip(wanted, names, digests, strict=True)
        ]
        cached = Cached(uri=place.uri, version=version, name=name, files=files, fetched_ms=now_ms())
        return shelf.keep(temporary, cached)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _amount(listing: "Listing") -> str:
    count = f"{len(listing.files):,} files, " if listing.is_folder else ""
    return f" ({count}{listing.size / 1e6:,.1f} MB)" if listing.size else ""


def _folder_has_no_sum(one: Source) -> InputMissing:
    return InputMissing(
        f"{one.location} is a folder, and a SHA-256 is that of one file",
        code="input.folder",
        pointer=f"{one.pointer}/sha256",
        file=one.location,
        hint='remove "sha256", or name a file',
    )


def _of_this_machine(one: Source, path: Path) -> Path:
    """See that what lies on this machine is there."""
    if not path.exists():
        if one.name == "weights" and one.pointer == "/weights":
            raise InputMissing(
                "the initial weights are not there", code="weights.missing", pointer=one.pointer, file=str(path)
            )
        of = f" (which {one.ref!r} was resolved to)" if one.ref else ""
        raise InputMissing(f"{path}{of} is not there", pointer=one.pointer, file=str(path))
    if not (path.is_file() or path.is_dir()):  # a pipe may have no writer, and would be waited for without end
        raise InputMissing(f"{path} is neither a file nor a folder", pointer=one.pointer, file=str(path))
    if not one.sha256:
        return path
    if path.is_dir():
        raise _folder_has_no_sum(one)
    from hostcore.supervisor.remote.transfer import WrongContent, sha256_of

    if (digest := sha256_of(path)) != one.sha256:
        raise WrongContent(
            f"the content of {path} is not what it should be: its SHA-256 is {digest}, not {one.sha256}",
            pointer=f"{one.pointer}/sha256",
            file=str(path),
        )
    return path


def _endpoint(options: Mapping[str, Any]) -> str:
    """Where a store is asked for, if not at its usual place."""
    nested = options.get("client_kwargs")
    found = options.get("endpoint_url") or (nested.get("endpoint_url") if isinstance(nested, Mapping) else "")
    return str(found or "")
