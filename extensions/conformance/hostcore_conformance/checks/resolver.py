"""Checks of resolvers."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from hostcore.job.paths import is_uri
from hostcore_conformance.check import check
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.job import Job
from hostcore_hookspecs.resolver import ResolveContext

_CONTEXT: Final = ResolveContext(job=Job(run_id="conformance"), input_name="base_model_ref")

#: What a job can name without any resolver.
_NOBODYS: Final = (
    "./model.safetensors",
    "../models/model.safetensors",
    "/srv/models/model.safetensors",
    "file:///srv/models/model.safetensors",
    "s3://bucket/model.safetensors",
    "https://example.org/model.safetensors",
)

_ODD: Final[Mapping[str, str]] = {
    "empty": "",
    "blank": " \n\t",
    "dots": "..",
    "long": "x" * 100_000,
    "unicode": "模型/größe:最新",
    "control": "a\x00b\x1b[31m",
    "punctuation": "@:#?&=%2e%2e%00;|`$(id)'\"",
}

#: Behind one of its own references: what may lead out of where it looks.
_ESCAPES: Final = ("/../../../etc/passwd", "/..", "%2f..%2f..%2fetc", "\\..\\..\\etc", "?x=/../..", "\n../..")


def _asking(subject: Subject) -> Callable[[str], Any]:
    """Ask a new instance as the host does."""
    resolve = subject.calls()["resolve_ref"]
    return lambda ref: resolve(ref, _CONTEXT)


def _own_references(subject: Subject) -> list[str]:
    """The references in the ``inputs`` of the example job.

    :raises NotApplicable: There are none.
    """
    inputs: Mapping[str, Any] = subject.job.get("inputs") or {}
    given = [value if isinstance(value, str) else value.get("ref") for value in inputs.values()]
    references = [ref for ref in given if isinstance(ref, str)]
    if not references:
        raise NotApplicable(
            "no reference of its own is known: give a job with one in its inputs"
            f' (job = {{ inputs = {{ base_model_ref = "…" }} }} in [tool.hostcore.conformance.{subject.name}])',
            wants_example=True,
        )
    return references


def _require_place(ref: str, answer: object) -> None:
    from fsspec.core import split_protocol
    from fsspec.registry import known_implementations, registry

    expected = f"for {ref[:100]!r} a URI that fsspec can open, an absolute path, or None"
    if not isinstance(answer, str) or not (is_uri(answer) or answer.startswith("/")):
        raise ConformanceError(
            expected=expected,
            got=repr(answer)[:300],
            fix="return a str such as 's3://bucket/model.safetensors', not a Path or an object of a client library.",
        )
    protocol, _ = split_protocol(answer)
    chained = [part.partition("://")[0] for part in answer.split("::")]
    for name in chained if "::" in answer else [protocol or "file"]:
        if name not in known_implementations and name not in registry:
            raise ConformanceError(
                expected=expected,
                got=f"{answer[:300]!r}, and fsspec knows no protocol {name!r}",
                fix="Return a URI of a protocol of fsspec (https://filesystem-spec.readthedocs.io), or register yours.",
            )


@check("resolver.answers")
def answers(subject: Subject) -> None:
    """A reference of its own is resolved to a place that fsspec can open.

    Every reference in the inputs of the example job is asked about. The answer must be a text: a URI whose protocol
    fsspec knows, or an absolute path. Nothing is fetched.
    """
    ask = _asking(subject)
    for ref in _own_references(subject):
        _require_place(ref, ask(ref))


@check("resolver.same_answer", requires=("resolver.answers",))
def same_answer(subject: Subject) -> None:
    """The same reference has the same answer, from another instance too.

    Each reference of the example is asked about twice, and then a new instance is asked. A run that is resumed resolves
    its references again, and must find the same model: put no dates, random names or expiring signatures into the URI.
    """
    first, second = _asking(subject), _asking(subject)
    for ref in _own_references(subject):
        found = [first(ref), first(ref), second(ref)]
        if len(set(found)) > 1:
            raise ConformanceError(
                expected=f"one answer for {ref!r}",
                got=", then ".join(map(repr, dict.fromkeys(found))),
                fix="Make the answer from the reference and the settings alone.",
            )


@check("resolver.leaves_others")
def leaves_others(subject: Subject) -> None:
    """A path or a URI is not this resolver's: it answers None.

    Resolvers are asked about everything in a job's inputs, before the host looks whether it is a path or a URI itself;
    the first answer counts. One that answers for ./model.safetensors or s3://bucket/model takes it away from everybody
    else, and one that raises stops a job that never needed it. Begin with: if not ref.startswith(…): return None.
    """
    ask = _asking(subject)
    try:
        own = {ref.partition(":")[0] for ref in _own_references(subject)}
    except NotApplicable:
        own = set()
    for ref in (ref for ref in _NOBODYS if ref.partition(":")[0] not in own):
        try:
            answer = ask(ref)
        except Exception as error:
            raise ConformanceError(
                expected=f"None for {ref!r}",
                got=f"{type(error).__name__}: {error}",
                fix="Return None for what is not a reference of this resolver's kind; raise for those that are.",
            ) from error
        if answer is not None:
            raise ConformanceError(
                expected=f"None for {ref!r}",
                got=repr(answer)[:300],
                fix="Answer for references of this resolver's kind alone; the host opens paths and URIs itself.",
            )


@check("resolver.odd_references")
def odd_references(subject: Subject) -> None:
    """References that are no names get None, a place, or an error that names the problem.

    It is asked about an empty reference, a blank one, dots, one of 100,000 characters, other scripts, control
    characters and punctuation, bare and behind the beginning of a reference of its own. An exception other than a
    HostcoreError is shown to the user as a failure of the plugin.
    """
    ask = _asking(subject)
    try:
        scheme, colon, _ = _own_references(subject)[0].rpartition(":")
    except NotApplicable:
        scheme = colon = ""
    for name, ref in _ODD.items():
        for asked in dict.fromkeys((ref, f"{scheme}{colon}{ref}")):
            try:
                answer = ask(asked)
            except HostcoreError:
                continue
            except Exception as error:
                raise ConformanceError(
                    expected=f"an answer or a HostcoreError for a reference that is odd ({name}: {asked[:60]!r})",
                    got=f"{type(error).__name__}: {str(error)[:300]}",
                    fix="Check the form of the reference first; raise HostcoreError(message, hint=…), or return None.",
                ) from error
            if answer is not None:
                _require_place(asked, answer)


@check("resolver.stays_inside", requires=("resolver.answers",))
def stays_inside(subject: Subject) -> None:
    """A reference does not lead out of the place where the resolver looks.

    Dots, encoded slashes and line ends are put behind a reference of the example. The answer may be None, an error, or
    a URI; but it must not contain a path segment "..", decoded or not, nor a line end.

    References come from jobs of other people. "small/../../other-team/model" in a URI is resolved by the store, with
    the resolver's rights.
    """
    from urllib.parse import unquote

    ask = _asking(subject)
    for ref in (f"{own}{escape}" for own in _own_references(subject) for escape in _ESCAPES):
        try:
            answer = ask(ref)
        except HostcoreError:
            continue
        segments = unquote(str(answer or "")).replace("\\", "/").split("/")
        if ".." in segments or len(str(answer).splitlines()) > 1:
            raise ConformanceError(
                expected=f"for {ref!r} an error, None, or a URI without '..'",
                got=repr(answer),
                fix="Refuse names that are not of the form you document: re.fullmatch('[a-z0-9._-]+', name).",
            )
