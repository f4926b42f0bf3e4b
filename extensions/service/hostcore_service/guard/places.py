"""Places that a job from others may read and write: stores, servers and folders that the operator has opened.

A string that looks like a place must be a place that is open, with one spelling, and its key must be one that may hold
a place: a key of the job's own, or a setting that its plugin declares as a path or URI. Everything else that looks like
a place is refused. Nothing is decoded but queries, and characters that have several forms (NFKC). Options of a store
lead elsewhere without looking like it: those that do are refused by their keys.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import attrs

from hostcore.job.paths import SOURCE_PATHS
from hostcore.job.pointers import escaped
from hostcore.job.wording import found as shown
from hostcore.secrets.reference import is_reference
from hostcore.supervisor.operator_file import HttpSettings
from hostcore_hookspecs.errors import HostcoreError
from hostcore_service.guard.folders import Folders
from hostcore_service.guard.hosts import HOST, MOST_NAMES, Hosts, Lookup, look_up, why_not_there
from hostcore_service.guard.refusal import NotAllowed

#: Text for people, names that others check, and data that is in the job itself: no places.
_TEXT: Final = re.compile(
    r"/(labels|owner|release_ref|run_id|mock_batches)(/.*)?"
    r"|/annotations/(?!hostcore~1config-path$).*"
    r"|/samples/[0-9]+/(prompt|negative_prompt|instruction|task)"
    r"|/(dataset|validation|test)/(columns/[0-9]+|of/[0-9]+/name)"
    r"|/resources/(image|namespace)"
    r"|/environment/((requirements|indexes)/[0-9]+|interpreter|python)"
)
#: Keys of the job that are a place, and nothing else.
_PLACE: Final = re.compile(
    rf"/(dataset|validation|test)(/of/[0-9]+)*/({'|'.join(SOURCE_PATHS)})(/[0-9]+)?"
    r"|/(weights|checkpoint_base_uri|resume_from_checkpoint)"
    r"|/inputs/[^/]*/uri"
    r"|/samples/[0-9]+/source_image"
    r"|/uploaders/[0-9]+/uri"
)
#: Keys of the job that may hold one; the last are fields of the unified API.
_MAY_BE_PLACE: Final = re.compile(
    r"/inputs/.*|/resources/env/[^/]*|/.*/storage_options/.*|/annotations/hostcore~1config-path"
    r"|/hyperparams/(config_path|model_id)"
)
#: Settings of plugins, which say what they hold.
_SETTING: Final = re.compile(
    r"/(hyperparams|dataset|validation|test|(callbacks|reporters|uploaders|resolvers|policies)/[0-9]+)/.*"
)
_MIRROR: Final = "/checkpoint_base_uri"
#: What is written, or may be: over others' data, unless the operator has opened a folder for it.
_WRITTEN: Final = re.compile(r"/(checkpoint_base_uri|(uploaders|reporters|callbacks)/(?![0-9]+/ca_file$).*)")
#: Where files are put: what else is in the folder does not matter.
_COPIED_TO: Final = re.compile(r"/(checkpoint_base_uri|uploaders/.*)")
#: Options of stores, at any depth.
_OPTION: Final = re.compile(r"/.*/storage_options/(.*)")
#: Options that lead to another file system or server, by key, and the reasons why they are refused.
_LEADS_ELSEWHERE: Final = {
    re.compile(r"protocol"): "the scheme of the URI decides which file system it is",
    re.compile(r".*connection_string|.*service_account_key"): "it names servers of its own; it may be a secret",
    re.compile(r".*emulator"): "an emulator is a server of the worker's machine",
}
_ACCOUNT_KEY: Final = re.compile(r"(.*_)?account_name")
_ACCOUNT: Final = re.compile(r"[a-z0-9]{3,24}")
#: A signature for Azure, which is a query.
_SIGNATURE: Final = re.compile(r"\??[A-Za-z0-9&=%._~+-]*")
#: Keys of plugins and stores whose value is a host, with or without a scheme.
_HOST_KEY: Final = re.compile(
    r"(?:^|[_.-]|(?<=[a-z])(?=[A-Z]))(hosts?|hostnames?|address(es)?|addr|endpoints?|endpoint_?override|servers?"
    r"|prox(y|ies)|brokers?)$",
    re.IGNORECASE,
)
#: Keys whose value is a URL, or a word that stands for one.
_URL_KEY: Final = re.compile(r"(?:^|[_.-]|(?<=[a-z])(?=[A-Z]))ur[il]s?$", re.IGNORECASE)

#: A string that begins like a place, or has one behind a sign.
_LOOKS: Final = re.compile(
    r"^\s*(?:[/~]|\\(?!.?$))"  # a path
    r"|(?:^|[/\\=,;@:])\s*\.\.\s*(?:$|[/\\])"  # out of a folder
    r"|[=,;@:][\t\r\n]*(?:[/\\](?=\S)|~/)"  # a scheme, or a path behind a word
    r"|^[\s<]*(?:url:(?=\S*[:/])|(?:file|local|https?):)"  # a scheme that some programs read without slashes
    r"|%(?:2[5ef]|3a|5c|7e)"  # what a place has, encoded
    # An address, or a name with a port. 16:9 is none.
    r"|^\s*(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?::[0-9]+)?|\[[0-9a-f.]*:[0-9a-f.]*:[^\]]*\](?::[0-9]+)?"
    r"|(?:[0-9]{8,}|0x[0-9a-f]+|[a-z0-9_-]+(?:\.[a-z0-9_-]+)+\.?|localhost\.?|metadata|instance-data):[0-9]{1,5})\s*$",
    re.IGNORECASE,
)
#: What no open place has: control characters, spaces around, a way out of a folder, a chain of file systems.
_ODD: Final = re.compile(r"[\0-\x1f\x7f-\x9f\u2028\u2029\\]|^\s|\s$|(?:^|/)\s*\.\.\s*(?:$|/)|::")
#: A second place behind the first, in programs that take several.
_MORE: Final = re.compile(r"[=,;|:\s@](?:[/~]|[A-Za-z][A-Za-z0-9+.-]*:/)")
#: What a path of this machine may not have, decoded or not.
_ENCODED: Final = re.compile(r"%(?:00|2[5ef]|3a|5c|7e)", re.IGNORECASE)
_BRACKETED: Final = re.compile(r"\[[0-9A-Fa-f:.]*\]")
_STORE: Final = re.compile(
    r"(?P<scheme>s3a?|gcs|gs|adl|abfss?|az|hf)://(?:[A-Za-z0-9][A-Za-z0-9._-]*|arn:[a-z0-9:_-]+)"
    r"(?:@(?P<account>[A-Za-z0-9.-]+))?(?=[/?#]|$)"
)
_AZURE: Final = re.compile(
    r"[a-z0-9]+(\.(blob|dfs)\.(core\.(windows\.net|chinacloudapi\.cn|usgovcloudapi\.net)|fabric\.microsoft\.com))?"
)
_SERVER: Final = re.compile(rf"(?P<scheme>https?|rediss?)://{HOST}(?=[/?#]|$)")
_PORTS: Final = {"http": 80, "https": 443, "redis": 6379, "rediss": 6379}
_SEVERAL: Final = "it has a second place in it"
_CREDENTIALS: Final = "credentials in a URI would be shown"
_FORMS: Final = "/, file:///, s3://, gs://, az://, abfs://, hf://, http://, https://, redis://, rediss://"


def looks_like_a_place(text: str) -> bool:
    """Return whether a string could be a place for some program: see :data:`_LOOKS`."""
    return _LOOKS.search(_folded(text)) is not None


def walk(value: Any, pointer: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value at any depth with its pointer; nothing inside of a reference to a secret."""
    yield pointer, value
    if isinstance(value, Mapping) and not is_reference(value):
        for key, item in value.items():
            yield from walk(item, f"{pointer}/{escaped(key)}")
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from walk(item, f"{pointer}/{position}")


def settings_with_places(job: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the plugins' settings that hold a place, which the plugins must declare, with their pointers."""
    for pointer, text in walk(job):
        if isinstance(text, str) and _is_setting(pointer) and looks_like_a_place(text):
            yield pointer, text


def _is_setting(pointer: str) -> bool:
    own = (_TEXT, _PLACE, _MAY_BE_PLACE)
    return _SETTING.fullmatch(pointer) is not None and not any(one.fullmatch(pointer) for one in own)


def wrong_places(job: Mapping[str, Any], http: HttpSettings, *, look_up: Lookup = look_up) -> list[HostcoreError]:
    """Return an error for every string in a job that looks like a place and is none that is open.

    :param job: Before any other check; wrong types are left to the converter's errors.
    :param look_up: Returns the addresses of names, without the unknown names.
    """
    guard = _Guard(
        read=Folders(roots=(*http.data_roots, *http.checkpoint_roots), use="read"),
        written=Folders(roots=http.checkpoint_roots, use="write to"),
        hosts=Hosts(opened=http.hosts),
    )
    found: list[HostcoreError] = []
    for pointer, value in walk(job):
        problem = _why_not_option(value, pointer) or (guard.why_not(value, pointer) if isinstance(value, str) else None)
        if problem:
            found.append(_refused(value, pointer, problem))
    if all(one.pointer != _MIRROR for one in found) and (problem := guard.why_not_mirror(job)):
        found.append(_refused(job["checkpoint_base_uri"], _MIRROR, problem))
    return [*found, *guard.names_that_lead_astray(look_up)]


@attrs.frozen(kw_only=True)
class _Guard:
    """The check of one job."""

    read: Folders
    written: Folders
    hosts: Hosts
    #: The opened names that are to be looked up, and where they stand.
    _named: dict[str, str] = attrs.field(factory=dict, init=False)

    def why_not(self, text: str, pointer: str) -> str | None:
        """Return the problem of a string at a place of the job; None: allowed."""
        if _TEXT.fullmatch(pointer) or (pointer, text) == ("/resume_from_checkpoint", "auto"):
            return None
        keys = _keys(pointer)
        if keys[-1:] == ["sas_token"] and _OPTION.fullmatch(pointer) and _SIGNATURE.fullmatch(text):
            return None
        if looks_like_a_place(text):
            return self._why_not_place(text, pointer)
        if _PLACE.fullmatch(pointer) or (text.startswith("./") and pointer.startswith("/inputs/")):
            return "a job that comes over HTTP has no folder, where a relative path could start"
        if not any(_HOST_KEY.search(key) or _URL_KEY.search(key) for key in keys):
            return None
        has_words = pointer.startswith("/hyperparams/") or not any(map(_HOST_KEY.search, keys))
        return self._why_not_hosts(text, pointer, has_words=has_words)

    def why_not_mirror(self, job: Mapping[str, Any]) -> str | None:
        """Return the problem of a run's folder in the mirror that leads elsewhere: a resumed run reads from it."""
        base, run_id = job.get("checkpoint_base_uri"), job.get("run_id")
        if isinstance(base, str) and isinstance(run_id, str) and base.startswith(("/", "file:///")):
            return self.written.why_not(f"{base.removeprefix('file://')}/{run_id}", look_inside=True)
        return None

    def names_that_lead_astray(self, look_up: Lookup) -> Iterator[HostcoreError]:
        """Yield the opened names whose addresses are closed to jobs."""
        if len(self._named) > MOST_NAMES:
            told = f"the job names {len(self._named)} hosts, which is more than the {MOST_NAMES} that a job may name"
            yield NotAllowed(told, pointer="")
            return
        addresses = look_up(sorted(self._named)) if self._named else {}
        for name, pointer in self._named.items():
            if problem := why_not_there(name, addresses.get(name, ())):
                yield NotAllowed(problem, pointer=pointer, hint=_hint(pointer))

    def _why_not_place(self, text: str, pointer: str) -> str | None:
        if _ODD.search(_BRACKETED.sub("", _folded(text))):
            return "a place has no '..', '::', '\\' or control character in it, and no space around it"
        if text.startswith(("/", "file:///")):
            path = text.removeprefix("file://")
            return _SEVERAL if _MORE.search(path) else self._why_not_path(path, pointer)
        if found := _STORE.match(text):
            return self._why_not_account(found, pointer) or self._why_not_rest(text[found.end() :], pointer)
        if found := _SERVER.match(text):
            port = int(found["port"]) if found["port"] else _PORTS[found["scheme"]]
            return self._why_not_host(found, port, pointer) or self._why_not_rest(text[found.end() :], pointer)
        return _CREDENTIALS if "@" in text else f"it looks like a place, and begins with none of {_FORMS}"

    def _why_not_path(self, path: str, pointer: str) -> str | None:
        if _ENCODED.search(path):
            return "it has a character in the form %XX, which only some programs decode; in a pattern, ? stands for it"
        folders = self.written if _WRITTEN.fullmatch(pointer) else self.read
        problems = [
            folders.why_not(one, look_inside=not _COPIED_TO.fullmatch(pointer))
            for one in dict.fromkeys((path, _folded(path), unquote(path)))
        ]
        return next(filter(None, problems), None)

    def _why_not_account(self, store: "re.Match[str]", pointer: str) -> str | None:
        """Return the problem of what stands behind the @ of a store: for Azure the host of an account."""
        account = store["account"]
        if account is None or (store["scheme"] in ("az", "abfs", "abfss") and _AZURE.fullmatch(account.lower())):
            return None
        is_host = store["scheme"] in ("az", "abfs", "abfss") and re.fullmatch(HOST, account)
        return self._why_not_hosts(account, pointer) if is_host else _CREDENTIALS

    def _why_not_rest(self, text: str, pointer: str) -> str | None:
        """Return the problem of what stands behind the server or the bucket of a URI."""
        path, _, query = text.partition("#")[0].partition("?")
        if _MORE.search(path) or _MORE.search(text.partition("#")[2]):
            return _SEVERAL
        for key, value in parse_qsl(query, keep_blank_values=True):
            if _HOST_KEY.search(key) or _URL_KEY.search(key):
                if problem := self._why_not_hosts(value, pointer, has_words=not _HOST_KEY.search(key)):
                    return problem
            elif looks_like_a_place(value):
                return _SEVERAL
        return None

    def _why_not_hosts(self, text: str, pointer: str, *, has_words: bool = False) -> str | None:
        """Return the problem of hosts without a scheme, or with that of HTTP: one, or a list of them.

        :param has_words: A text without a dot and a port is a word.
        """
        for one in filter(None, re.split(r"[,;\s]+", text)):
            if has_words and not set(".:") & set(one):
                continue
            found = re.fullmatch(rf"(?:https?://)?{HOST}/?", one)
            if found is None:
                return f"{one!r} is no host that all programs read alike"
            if problem := self._why_not_host(found, int(found["port"]) if found["port"] else None, pointer):
                return problem
        return None

    def _why_not_host(self, found: "re.Match[str]", port: int | None, pointer: str) -> str | None:
        problem = self.hosts.why_not(found["six"] or found["name"], port)
        if problem is None and found["name"] and re.search("[A-Za-z]", found["name"]):
            self._named.setdefault(found["name"].lower().removesuffix("."), pointer)
        return problem


def _keys(pointer: str) -> list[str]:
    """Return the keys that describe a value: the last one; of an option of a store, all."""
    option = _OPTION.fullmatch(pointer)
    keys = [key for key in (option[1] if option else pointer).split("/") if not re.fullmatch("[0-9]*", key)]
    return keys if option else keys[-1:]


def _why_not_option(value: Any, pointer: str) -> str | None:
    """Return the problem of an option of a store that leads to another server or file system; None: no problem."""
    if not _OPTION.fullmatch(pointer) or is_reference(value):
        return None
    keys = _keys(pointer)
    for key, problem in _LEADS_ELSEWHERE.items():
        if any(map(key.fullmatch, keys)):
            return problem
    if any(map(_ACCOUNT_KEY.fullmatch, keys)) and not (isinstance(value, str) and _ACCOUNT.fullmatch(value)):
        return "the name of an account has 3 to 24 of a-z and 0-9"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "a host is a text" if is_number and any(map(_HOST_KEY.search, keys)) else None


def _folded(text: str) -> str:
    """Return a text as programs compare it: one spelling for all forms of a character."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def _refused(value: Any, pointer: str, problem: str) -> NotAllowed:
    may_be_secret = not isinstance(value, str) or "@" in value or _OPTION.fullmatch(pointer)
    what = "this" if may_be_secret else shown(value)
    return NotAllowed(f"{what} is not allowed: {problem}", pointer=pointer, hint=_hint(pointer, problem))


def _hint(pointer: str, problem: str = "") -> str:
    if problem == _CREDENTIALS:
        return 'leave out what stands before the @, and give it as {"$secret": "env:NAME"} in the settings'
    roots = "checkpoint_roots" if _WRITTEN.fullmatch(pointer) else "data_roots"
    return f"name a URI of a store, or ask the operator: {roots} and hosts in [http] of HOSTCORE_CONFIG"
