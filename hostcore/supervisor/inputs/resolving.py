"""From the inputs that a job names to the places where they are: paths and URIs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from hostcore.errors import Errors, all_errors
from hostcore.interruption import is_by_signal
from hostcore.job.origins import mark
from hostcore.job.paths import absolute, is_uri
from hostcore.job.pointers import escaped
from hostcore.job.secrets import resolve_secrets, without_marks
from hostcore.job.spec import InputSpec, JobSpec, job_view
from hostcore.plugins.attribution import attribute
from hostcore.plugins.component import Component
from hostcore.plugins.errors import one_line
from hostcore.plugins.hooks import Hooks
from hostcore.plugins.importing import from_exception
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.resolver import ResolveContext


class UnresolvedInput(HostcoreError):
    """No resolver knows where an input is."""

    code = "input.unresolved"


@attrs.frozen(kw_only=True)
class Source:
    """Where an input is."""

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


def sources(spec: JobSpec, resolvers: Sequence[Component]) -> list[Source]:
    """Where the inputs and the weights of a job are.

    :param resolvers: Asked about every reference, in this order; the first answer counts.
    :raises Errors: Every input that no resolver knows, and what resolvers have raised.
    """
    if not spec.inputs and spec.weights is None:
        return []
    asked = _Resolvers(spec, resolvers)
    found: list[Source] = []
    errors: list[HostcoreError] = []
    if spec.weights is not None:
        found.append(Source(name="weights", pointer="/weights", location=spec.weights))
    for name, one in spec.inputs.items():
        try:
            found.append(_source(name, one, asked))
        except HostcoreError as error:
            errors += all_errors(error)
    if errors:
        mark(errors, spec.origins)
        raise Errors(errors)
    return found


def _source(name: str, one: InputSpec, resolvers: "_Resolvers") -> Source:
    pointer = f"/inputs/{escaped(name)}"
    options = _without_secrets(dict(one.storage_options or {}), f"{pointer}/storage_options")
    location, ref = _without_secrets(one.uri, f"{pointer}/uri"), ""
    if one.ref is not None:
        location = resolvers.ask(one.ref, name, pointer)
        ref = one.ref if location != one.ref else ""
    assert isinstance(location, str)
    if not is_uri(location):
        location = absolute(location, resolvers.job_dir)
    return Source(
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
        """Where a reference leads.

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
        if is_uri(ref) or Path(ref).is_absolute() or self._lies_beside_the_job(ref):
            return ref
        raise UnresolvedInput(
            f"no resolver knows where {ref!r} is",
            pointer=pointer,
            hint=(f"asked were: {self._names()}; " if self._components else 'the job lists no "resolvers"; ')
            + "what is not a reference is an absolute path, a path that begins with ./, or a URI",
        )

    def _lies_beside_the_job(self, ref: str) -> bool:
        return Path(absolute(ref, self.job_dir)).exists()

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
        return ", ".join(_labels(self._components))


def _labels(components: Sequence[Component]) -> Iterator[str]:
    return (one.ref.provenance for one in components)
