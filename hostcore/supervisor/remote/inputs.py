"""The inputs and weights of a job: resolved to paths and URIs, and brought to this machine."""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs

from hostcore.errors import Errors, for_each
from hostcore.events.writer import now_ms
from hostcore.interruption import is_by_signal
from hostcore.job.document import blame
from hostcore.job.paths import absolute, is_uri
from hostcore.job.pointers import escaped
from hostcore.job.sections import InputSpec
from hostcore.job.spec import JobSpec, job_view
from hostcore.plugins.attribution import attribute
from hostcore.plugins.errors import from_exception, one_line
from hostcore.plugins.hooks import Hooks
from hostcore.plugins.load import Component
from hostcore.secrets.reference import resolve_secrets, without_marks
from hostcore.supervisor.remote.cache import Cached, Shelf, cached_file
from hostcore_builtin_plugins.stores.errors import Unreachable, store_errors
from hostcore_builtin_plugins.stores.location import Listing, Location
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.resolver import ResolveContext

A = TypeVar("A")
B = TypeVar("B")
Tell = Callable[[str], object]


class UnresolvedInput(HostcoreError):
    """No resolver knows where an input is."""

    code = "input.unresolved"


@attrs.frozen(kw_only=True)
class InputPlace:
    """Place of an input."""

    #: The key in ``ctx.model_handles``.
    name: str
    #: Where the job names it.
    pointer: str
    #: A URI, or an absolute path of this machine.
    location: str
    #: What the content must have; empty: anything.
    sha256: str = ""
    storage_options: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    #: How the job names it, if a resolver has said where it is.
    ref: str = ""

    @property
    def local(self) -> Path | None:
        """The path, if it lies on this machine already."""
        if not is_uri(self.location):
            return Path(self.location)
        scheme, _, path = self.location.partition("://")
        return Path(f"/{path.lstrip('/')}") if scheme in ("file", "local") else None


def sources(spec: JobSpec, resolvers: Sequence[Component]) -> list[InputPlace]:
    """Return the places of the inputs and the weights of a job.

    :param resolvers: Asked about every reference, in this order; the first answer counts.
    :raises Errors: Every input that no resolver knows, and what resolvers have raised.
    """
    if not spec.inputs and spec.weights is None:
        return []
    asked = _Resolvers(spec, resolvers)
    weights = (
        [InputPlace(name="weights", pointer="/weights", location=spec.weights)] if spec.weights is not None else []
    )
    return [*weights, *_each(spec.inputs.items(), lambda one: _place(*one, asked), spec)]


def _place(name: str, one: InputSpec, resolvers: "_Resolvers") -> InputPlace:
    pointer = f"/inputs/{escaped(name)}"
    options = _without_secrets(dict(one.storage_options or {}), f"{pointer}/storage_options")
    location, ref = _without_secrets(one.uri, f"{pointer}/uri"), ""
    if one.ref is not None:
        location = resolvers.ask(one.ref, name, pointer)
        ref = one.ref if location != one.ref else ""
    assert isinstance(location, str)
    if not is_uri(location):
        location = absolute(location, resolvers.job_dir)
    return InputPlace(
        name=name, pointer=pointer, location=location, sha256=one.sha256 or "", storage_options=options, ref=ref
    )


def _without_secrets(value: Any, pointer: str) -> Any:
    return without_marks(resolve_secrets(value, pointer))


class _Resolvers:
    """The resolvers of a job, asked in turn."""

    def __init__(self, spec: JobSpec, components: Sequence[Component]) -> None:
        self._spec = spec
        self._components = components
        self._resolve: Callable[[str, ResolveContext], object] | None = (
            Hooks(components, kinds=("resolver",)).bind("resolve_ref") if components else None
        )
        #: Where relative paths start.
        self.job_dir = spec.job_dir

    def ask(self, ref: str, name: str, pointer: str) -> str:
        """Return the place that a reference leads to.

        :raises HostcoreError: When no resolver knows, or one raises.
        """
        answer = self._answer(ref, ResolveContext(job=job_view(self._spec), input_name=name), pointer)
        if isinstance(answer, str) and (is_uri(answer) or Path(answer).is_absolute()):
            return answer
        if answer is not None:
            raise UnresolvedInput(
                f"a resolver ({self._names()}) said that {ref!r} is at {answer!r}",
                pointer=pointer,
                hint="a resolver returns a URI, an absolute path, or None",
            )
        if is_uri(ref) or Path(ref).is_absolute() or Path(absolute(ref, self.job_dir)).exists():
            return ref
        raise UnresolvedInput(
            f"no resolver knows where {ref!r} is",
            pointer=pointer,
            hint=(f"asked were: {self._names()}; " if self._components else 'the job lists no "resolvers"; ')
            + "what is not a reference is an absolute path, a path that begins with ./, or a URI",
        )

    def _answer(self, ref: str, context: ResolveContext, pointer: str) -> object:
        if self._resolve is None:
            return None
        try:
            return self._resolve(ref, context)
        except HostcoreError as error:
            culprit = attribute(error, self._components)
            error.pointer = error.pointer or pointer
            error.plugin = error.plugin or (culprit.ref.provenance if culprit else None)
            raise
        except BaseException as error:
            if is_by_signal(error):
                raise
            culprit = attribute(error, self._components)
            if culprit is None:
                raise UnresolvedInput(f"{ref!r} cannot be resolved: {one_line(error)}", pointer=pointer) from error
            raise from_exception(
                f"asked where {ref!r} is", error, code="plugin.resolve", ref=culprit.ref, pointer=pointer
            ) from error

    def _names(self) -> str:
        return ", ".join(one.ref.provenance for one in self._components)


class InputMissing(HostcoreError):
    """An input is not in its place, or is something else."""

    code = "input.missing"


@attrs.frozen(kw_only=True)
class _Absent:
    """An input that lies in a store and not on this machine."""

    source: InputPlace
    place: Location
    listing: Listing
    shelf: Shelf


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
    """Return the result for each item; raise all errors at once, each with the option that is to blame."""
    try:
        return for_each(items, act)
    except Errors as found:
        blame(found.errors, spec.origins)
        raise


def _found(one: InputPlace, tell: Tell) -> tuple[InputPlace, Path] | _Absent:
    """An input on this machine, or, if only there, in its store."""
    if one.local is not None:
        return one, _of_this_machine(one, one.local)
    shelf = Shelf.of(one.location, _endpoint(one.storage_options))
    if one.sha256 and (kept := shelf.newest(sha256=one.sha256)):
        return one, kept[1]  # the content is known to be the right one, whatever the store has by now
    try:
        place = Location.of(one.location, one.storage_options, pointer=one.pointer)
        listing = place.listing()
    except Unreachable as error:
        kept = shelf.newest(sha256=one.sha256)
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
    with store_errors(str(absent.shelf.path), pointer=one.pointer), absent.shelf.locked(tell, place.uri):
        kept = absent.shelf.find(version)
        if kept is not None and (not one.sha256 or kept[0].sha256 == one.sha256):
            return kept[1]
        tell(f"input {one.name}: fetching {place.uri}{_amount(absent.listing)}")
        return _brought(absent, version)


def _brought(absent: _Absent, version: str) -> Path:
    """Fetch a version into a folder of a temporary name, and give it its own when it is whole."""
    from hostcore_builtin_plugins.stores.get import Wanted, bring

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


def _amount(listing: Listing) -> str:
    count = f"{len(listing.files):,} files, " if listing.is_folder else ""
    return f" ({count}{listing.size / 1e6:,.1f} MB)" if listing.size else ""


def _folder_has_no_sum(one: InputPlace) -> InputMissing:
    return InputMissing(
        f"{one.location} is a folder, and a SHA-256 is that of one file",
        code="input.folder",
        pointer=f"{one.pointer}/sha256",
        file=one.location,
        hint='remove "sha256", or name a file',
    )


def _of_this_machine(one: InputPlace, path: Path) -> Path:
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
    from hostcore_builtin_plugins.stores.get import checked_digest

    checked_digest(path, one.sha256, uri=str(path), pointer=f"{one.pointer}/sha256")
    return path


def _endpoint(options: Mapping[str, Any]) -> str:
    """Return the address of a store, if it is not the usual one."""
    nested = options.get("client_kwargs")
    found = options.get("endpoint_url") or (nested.get("endpoint_url") if isinstance(nested, Mapping) else "")
    return str(found or "")
