"""Places that a job from others may read and write: stores, public servers, and folders opened by the operator.

Every string of a job that is a place, or that some plugin could take for one, is looked at in all of its readings.
"""

import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import unquote

import attrs

from hostcore.job.paths import SOURCE_PATHS
from hostcore.job.pointers import escaped
from hostcore.job.wording import found as shown
from hostcore.secrets.reference import is_reference
from hostcore.supervisor.operator_file import HttpSettings
from hostcore_hookspecs.errors import HostcoreError
from hostcore_service.guard.hosts import MOST_NAMES, Hosts, Lookup, NamedHost, look_up
from hostcore_service.guard.refusal import NotAllowed
from hostcore_service.guard.uris import Unreadable, find_uris, host_of

#: Text for people, names that others check, and data that is in the job itself: no places.
_TEXT: Final = tuple(
    re.compile(one)
    for one in (
        r"/(labels|owner|release_ref|run_id|mock_batches)(/.*)?",
        r"/annotations/(?!hostcore~1config-path$).*",
        r"/samples/[0-9]+/(prompt|negative_prompt|instruction|task)",
        r"/(dataset|validation|test)/columns/[0-9]+",
        r"/resources/(image|namespace)",
        r"/environment/((requirements|indexes)/[0-9]+|interpreter|python)",
    )
)
#: What is a place, and nothing else.
_PLACES: Final = tuple(
    re.compile(one)
    for one in (
        rf"/(dataset|validation|test)/({'|'.join(SOURCE_PATHS)})(/[0-9]+)?",
        r"/(weights|checkpoint_base_uri|resume_from_checkpoint)",
        r"/inputs/[^/]*/uri",
        r"/samples/[0-9]+/source_image",
        r"/uploaders/[0-9]+/uri",
    )
)
_MIRROR: Final = "/checkpoint_base_uri"
#: What is written, or may be: over others' data, unless the operator has opened a folder for it.
_WRITTEN: Final = re.compile(r"/(checkpoint_base_uri|(uploaders|reporters|callbacks)/(?![0-9]+/ca_file$).*)")
#: Where files are put: what else is in the folder does not matter.
_COPIED_TO: Final = re.compile(r"/(checkpoint_base_uri|uploaders/.*)")
#: Keys of plugins and stores whose value is a host without a scheme.
_HOST_KEY: Final = re.compile(
    r"(?:^|[_.-]|(?<=[a-z])(?=[A-Z]))(hosts?|hostnames?|address(es)?|addr|endpoints?|endpoint_?override|servers?"
    r"|prox(y|ies)|brokers?|ur[il]s?)$",
    re.IGNORECASE,
)
#: What is a host wherever it stands: an address, or a name with a port. ``16:9`` is none.
_SURELY_HOST: Final = re.compile(
    r"[0-9]{1,3}(\.[0-9]{1,3}){3}(:[0-9]+)?|\[[0-9a-fA-F:.]*:[0-9a-fA-F:.]*:[^\]]*\](:[0-9]+)?"
    r"|([0-9]{8,}|0x[0-9a-fA-F]+|[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+\.?|localhost\.?|metadata|instance-data):[0-9]{1,5}",
    re.IGNORECASE,
)
#: Files and folders that are looked at before a folder counts as too large to be sure of.
_MOST_ENTRIES: Final = 100_000
_HINT: Final = "name a URI of a store, or ask the operator: {roots} and hosts in [http] of HOSTCORE_CONFIG"


def wrong_places(job: Mapping[str, Any], http: HttpSettings, *, look_up: Lookup = look_up) -> list[HostcoreError]:
    """Return an error for every place in a job that jobs from others may not name.

    :param job: Before any other check; wrong types are left to the converter's errors.
    :param look_up: The addresses of names; those that are unknown may be left out.
    """
    guard = _Guard(
        read=Folders(roots=(*http.data_roots, *http.checkpoint_roots), use="read"),
        written=Folders(roots=http.checkpoint_roots, use="write to"),
        hosts=Hosts(opened=http.hosts),
    )
    found = list(guard.places(job, ""))
    if all(one.pointer != _MIRROR for one in found):
        found += guard.mirror(job)
    return [*found, *guard.names_that_lead_astray(look_up)]


@attrs.frozen(kw_only=True)
class _Guard:
    """One look at one job."""

    read: "Folders"
    written: "Folders"
    hosts: Hosts
    #: The named hosts that are to be looked up, and where they stand.
    _named: dict[NamedHost, str] = attrs.field(factory=dict, init=False)

    def places(self, value: Any, pointer: str) -> Iterator[HostcoreError]:
        """Yield the errors of all strings in a value."""
        if is_reference(value) or any(one.fullmatch(pointer) for one in _TEXT):
            return  # a reference is a name, which is looked at as such
        if isinstance(value, Mapping):
            for key, item in value.items():
                yield from self.places(item, f"{pointer}/{escaped(key)}")
        elif isinstance(value, list):
            for position, item in enumerate(value):
                yield from self.places(item, f"{pointer}/{position}")
        elif isinstance(value, str) and (problem := self._why_not(value, pointer)):
            yield _refused(value, pointer, *problem)

    def mirror(self, job: Mapping[str, Any]) -> Iterator[HostcoreError]:
        """Yield an error if the run's folder in the mirror leads elsewhere: a resumed run reads from it."""
        base, run_id = job.get("checkpoint_base_uri"), job.get("run_id")
        if isinstance(base, str) and isinstance(run_id, str) and base.startswith(("/", "file:///")):
            path = f"{base.removeprefix('file://')}/{run_id}"
            if problem := self.written.why_not(path, look_inside=True):
                yield _refused(base, _MIRROR, problem, None)

    def names_that_lead_astray(self, look_up: Lookup) -> Iterator[HostcoreError]:
        """The hosts that were named and whose addresses are closed to jobs."""
        names = {host.name.removesuffix(".") for host in self._named}
        if len(names) > MOST_NAMES:
            yield NotAllowed(
                f"the job names {len(names)} hosts, which is more than the {MOST_NAMES} that a job may name", pointer=""
            )
            return
        addresses = look_up(sorted(names)) if names else {}
        for host, pointer in self._named.items():
            if problem := self.hosts.why_not_there(host, addresses.get(host.name.removesuffix("."), ())):
                yield NotAllowed(problem, pointer=pointer, hint=_hint(pointer))

    def _why_not(self, text: str, pointer: str) -> tuple[str, str | None] | None:
        """Return the problem of a string at a place, and a hint; None: allowed."""
        if pointer == "/resume_from_checkpoint" and text == "auto":
            return None
        if any(one.fullmatch(pointer) for one in _PLACES) and not _is_somewhere(text):
            return "a job that comes over HTTP has no folder, where a relative path could start", None
        key = pointer.rpartition("/")[2]
        key = pointer.split("/")[-2] if key.isdigit() else key
        if _HOST_KEY.search(key) and (problem := self._why_not_hosts(text, key, pointer)):
            return problem
        for reading in readings(text):
            if reading is None:
                return "it is encoded more often than anybody needs", None
            if problem := self._why_not_reading(reading, pointer):
                return problem
        return None

    def _why_not_reading(self, text: str, pointer: str) -> tuple[str, str | None] | None:
        uris = list(find_uris(text))
        for uri in uris:
            if isinstance(uri, Unreadable):
                return uri.problem, uri.hint
            if uri.host is not None and (problem := self._why_not_host(uri.host, pointer)):
                return problem, None
            # A URI inside a text is not requested. The server at one that begins it may redirect to another address.
            if uri.kind == "server" and uri.start == 0 and uri.host and not self.hosts.is_opened(uri.host):
                return f"the server {uri.host.name!r} is not among those that the operator has opened", None
            if uri.path and (problem := self._why_not_path(uri.path, pointer)):
                return problem, None
            for key, value in uri.query:
                if _HOST_KEY.search(key) and (asked := self._why_not_hosts(value, key, pointer)):
                    return asked
        return self._why_not_text(text, pointer, has_uris=bool(uris))

    def _why_not_text(self, text: str, pointer: str, *, has_uris: bool) -> tuple[str, str | None] | None:
        """Return the problem of a text that is no URI: a path of this machine, or a host; None: allowed."""
        if ".." in re.split(r"[/\\]", text):
            return "a path with .. in it", "write the path without"
        if text.startswith("./"):
            return "a job that comes over HTTP has no folder, where a relative path could start", None
        if text.startswith(("/", "~")):
            problem = self._why_not_path(text, pointer)
            return (problem, None) if problem else None
        if not has_uris and (inside := re.search(r"[=,;@|](/|~/)", text)):
            return f"it has a path of this machine in it, after {inside[0][0]!r}", None
        return self._why_not_hosts(text, "", pointer) if _SURELY_HOST.fullmatch(text) else None

    def _why_not_path(self, path: str, pointer: str) -> str | None:
        if path.startswith("~"):
            return "the home folder is another one for every user"
        folders = self.written if _WRITTEN.fullmatch(pointer) else self.read
        return folders.why_not(path, look_inside=not _COPIED_TO.fullmatch(pointer))

    def _why_not_hosts(self, text: str, key: str, pointer: str) -> tuple[str, str | None] | None:
        """Hosts without a scheme: one, or a list of them."""
        for one in re.split(r"[,;\s]+", text):
            host = host_of(one)
            if host is None and one.startswith("["):
                return "an address with a zone is another one on every machine", None
            may_be_text = host is not None and host.port is None and _may_be_text(key, pointer)
            if host and (problem := self._why_not_host(attrs.evolve(host, may_be_text=may_be_text), pointer)):
                return problem, None
        return None

    def _why_not_host(self, host: NamedHost, pointer: str) -> str | None:
        problem = self.hosts.why_not(host)
        if problem is None and re.search(r"[a-z]", host.name) and ":" not in host.name and "." in host.name:
            self._named.setdefault(host, pointer)
        return problem


def _may_be_text(key: str, pointer: str) -> bool:
    """Return whether a word without a dot may be no host, although its key ends like that of a host."""
    return pointer.startswith("/hyperparams/") or key.lower().endswith(("url", "uri"))


def _is_somewhere(text: str) -> bool:
    """Return whether a text is a URI or an absolute path of this machine."""
    return re.match(r"/|[A-Za-z0-9+.-]+:/", text) is not None


def _refused(text: str, pointer: str, problem: str, hint: str | None) -> NotAllowed:
    what = "this" if "@" in text else shown(text)  # which may have credentials in it
    return NotAllowed(f"{what} is not allowed: {problem}", pointer=pointer, hint=hint or _hint(pointer))


def _hint(pointer: str) -> str:
    return _HINT.format(roots="checkpoint_roots" if _WRITTEN.fullmatch(pointer) else "data_roots")


#: What is still different after so many rounds was made to be.
_MOST_ROUNDS: Final = 6
#: What every place has one of; ``..`` is one itself.
_SUSPICIOUS: Final = re.compile(r"[/\\:~%]|^\.\.$|^[0-9]+\.[0-9.]+$|[^\x20-\x7e]")
_IGNORED: Final = re.compile(r"[\t\r\n]")
_CONTROL: Final = "".join(map(chr, range(0x21)))


def _as_urllib_trims(text: str) -> str:
    """Without tabs and line breaks, which URL parsers drop wherever they stand, and without spaces around."""
    return _IGNORED.sub("", text).strip().strip(_CONTROL)


def _unwrapped(text: str) -> str:
    """``<URL:…>``, ``<…>`` and ``URL:…``, as RFC 1738 advised to write URLs and urllib still reads them."""
    inner = text[1:-1].strip() if text.startswith("<") and text.endswith(">") else text
    return inner[4:].strip() if inner[:4].upper() == "URL:" else inner


def _slashed(text: str) -> str:
    return text.replace("\\", "/")


def _folded(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


#: What programs do to a text before they use it, with and without folding it first.
_PLAIN: Final[tuple[Callable[[str], str], ...]] = (_as_urllib_trims, _unwrapped, unquote)
_FOLDING: Final = (_folded, *_PLAIN)


def readings(text: str) -> Iterator[str | None]:
    """Every reading of a text, each once. One is None if there are more than anybody needs.

    Nothing for a text that cannot be a place in any of them.
    """
    if not _SUSPICIOUS.search(text):
        return
    seen: set[str | None] = set()
    for steps in (_PLAIN,) if text.isascii() and "%" not in text else (_PLAIN, _FOLDING):
        for one in _decoded(text, steps):
            # What reads a backslash as a slash may read the same text as what does not.
            for reading in (one,) if one is None else (one, _slashed(one)):
                if reading not in seen:
                    seen.add(reading)
                    yield reading


def _decoded(text: str, steps: Sequence[Callable[[str], str]]) -> Iterator[str | None]:
    """A text, and what comes of it with each step, until nothing changes any more; else None at the end."""
    yield text
    for _ in range(_MOST_ROUNDS):
        before = text
        for step in steps:
            text = step(text)
            yield text
        if text == before:
            return
    yield None


@attrs.frozen(kw_only=True)
class Folders:
    """Some folders, and everything in them."""

    roots: Sequence[Path]
    #: What jobs may do there.
    use: Literal["read", "write to"]
    most_entries: int = _MOST_ENTRIES

    def why_not(self, path: str, *, look_inside: bool) -> str | None:
        """Return the reason against a path; None: allowed.

        :param path: Absolute; may be a glob.
        :param look_inside: Whether the contents of the folder are going to be read, too.
        """
        roots = [os.path.realpath(root) for root in self.roots]
        try:
            real = os.path.realpath(path)
        except (OSError, ValueError) as error:
            return f"{path!r} cannot be looked at: {error}"
        if not _lies_in(real, roots):
            return f"{path!r} does not lie in one of the folders that jobs may {self.use}"
        fixed = _fixed_part(path)
        if (look_inside or fixed != path) and os.path.isdir(fixed):  # noqa: PTH112 - as text, like all the paths here
            return self._why_not_inside(os.path.realpath(fixed), roots)
        return None

    def _why_not_inside(self, folder: str, roots: Sequence[str]) -> str | None:
        """Links are followed by what reads a folder."""
        if not _lies_in(folder, roots):
            return f"{folder!r} does not lie in one of the folders that jobs may {self.use}"
        for seen, entry in enumerate(_everything_in(folder)):
            if seen >= self.most_entries:
                return (
                    f"{folder!r} has more than {self.most_entries:,} files: too many to see that none leads out of it"
                )
            if entry.is_symlink() and not _lies_in(os.path.realpath(entry.path), roots):
                return f"the link {entry.path!r} leads out of the folders that jobs may {self.use}"
        return None


def _lies_in(real: str, roots: Sequence[str]) -> bool:
    return any(real == root or real.startswith(root.rstrip("/") + "/") for root in roots)


def _fixed_part(path: str) -> str:
    """The folder that a glob is searched in; a path without a pattern as it is."""
    from hostcore_builtin_plugins.sources.data_files import split_pattern  # which needs pyarrow

    return split_pattern(path, os.path.lexists)[0] or "/"


def _everything_in(folder: str) -> Iterator["os.DirEntry[str]"]:
    """Files, folders and links at any depth; linked folders too, once each."""
    waiting, known = [folder], {folder}
    while waiting:
        try:
            entries = os.scandir(waiting.pop())
        except OSError:  # what cannot be listed here cannot be read here
            continue
        with entries:
            for entry in entries:
                yield entry
                if _is_folder(entry) and (real := os.path.realpath(entry.path)) not in known:
                    known.add(real)
                    waiting.append(real)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False
