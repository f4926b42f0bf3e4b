"""The uploader ``http``: sends files with PUT, and reports them to an orchestrator."""

from collections.abc import Callable, Mapping
from string import Formatter
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import quote

import attrs
from annotated_types import Gt, MinLen

from hostcore_builtin_plugins.http_exchange import check_url
from hostcore_builtin_plugins.stores.copying import Content
from hostcore_builtin_plugins.uploaders.orchestrator import CallUrls, Orchestrator, token_of_environment
from hostcore_hookspecs import Artifact, FatalError, InvalidSettings, Secret, UploadContext, UploadReceipt, Uri

if TYPE_CHECKING:
    from hostcore_builtin_plugins.http_exchange import HttpExchange
    from hostcore_builtin_plugins.uploaders.http_objects import HttpObjects

_PLACEHOLDERS: Final = ("run_id", "path", "step")
#: Of an artifact that belongs to no step.
_NO_STEP: Final = "none"

Url = Annotated[Uri, MinLen(1)]


class HttpUploader:
    """Puts every artifact to ``url``, and reads it back; posts one call for each checkpoint, sample and end."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """Which servers, and how they know the run."""

        url: Url | None = attrs.field(
            default=None,
            metadata={
                "help": "Where each file is put: `https://store.example/{run_id}/{path}`, with `{path}` below the run "
                "directory, and `{step}` (`none` for a file of no step). Without it no file is sent."
            },
        )
        checkpoint_url: Url | None = attrs.field(
            default=None,
            metadata={"help": "Told of each checkpoint.", "default": "`TRAINER_UPLOAD_CHECKPOINT_URL`"},
        )
        sample_url: Url | None = attrs.field(
            default=None, metadata={"help": "Told of each sample.", "default": "`TRAINER_UPLOAD_SAMPLE_URL`"}
        )
        terminal_url: Url | None = attrs.field(
            default=None, metadata={"help": "Told of the run's end.", "default": "`TRAINER_UPLOAD_TERMINAL_URL`"}
        )
        token: Secret | None = attrs.field(
            default=None,
            metadata={
                "help": "Sent as `Authorization: Bearer …`.",
                "default": "for the calls alone: `TRAINER_CAPABILITY_TOKEN`",
            },
        )
        headers: Mapping[str, Uri] = attrs.field(
            factory=dict, repr=False, metadata={"help": "Sent with every request; values may be secrets."}
        )
        verify: bool = attrs.field(
            default=True, metadata={"help": "Read back what was put, and compare its SHA-256; otherwise only its size."}
        )
        timeout_seconds: Annotated[float, Gt(0)] = attrs.field(
            default=60.0, metadata={"help": "For each: connecting, and waiting for the next bytes."}
        )

    def __init__(self, *, settings: Settings | None = None) -> None:
        self._settings = settings or self.Settings()
        self._urls = CallUrls(
            checkpoint=self._settings.checkpoint_url,
            sample=self._settings.sample_url,
            terminal=self._settings.terminal_url,
        ).filled()
        _check(self._settings, self._urls)
        self._objects: HttpObjects | None = None
        self._orchestrator: Orchestrator | None = None
        self._run_id = ""
        self._is_canceled: Callable[[], bool] = bool
        self._exchanges: tuple[HttpExchange, ...] = ()

    def open(self, ctx: UploadContext) -> None:
        """Make the pools of connections; nothing is sent yet."""
        from hostcore_builtin_plugins.http_exchange import HttpExchange
        from hostcore_builtin_plugins.uploaders.http_objects import HttpObjects

        settings, timeout = self._settings, self._settings.timeout_seconds
        token = settings.token.value if settings.token else None
        # Only the orchestrator gets the orchestrator's token.
        calls = HttpExchange(headers=_headers(settings, token or token_of_environment()), timeout_seconds=timeout)
        files = HttpExchange(headers=_headers(settings, token), timeout_seconds=timeout)
        self._run_id, self._is_canceled = ctx.run_id, ctx.is_canceled
        self._exchanges = (calls, files)
        self._objects = HttpObjects(files)
        self._orchestrator = Orchestrator(self._urls, calls, ctx, ref_of=self._ref_of)

    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        """Put the file, unless it is there, read it back, and report it to the orchestrator.

        :raises TransientError: A server, or the way to it, fails; or the run is ending.
        :raises FatalError: A server refuses.
        """
        objects, orchestrator = self._objects, self._orchestrator
        if objects is None or orchestrator is None:
            raise FatalError("http is not open")
        receipt = self._put(artifact, objects)
        orchestrator.tell(artifact, receipt)
        if receipt is None:
            told = self._urls.of_kind(artifact.kind) or ""
            receipt = UploadReceipt(uri=told.partition("?")[0], size=artifact.size)
        return receipt

    def _put(self, artifact: Artifact, objects: "HttpObjects") -> UploadReceipt | None:
        url = self._url(artifact.relative_path, artifact.step)
        if url is None:
            return None
        content = Content.of(artifact, self._is_canceled)
        uri, verify = url.partition("?")[0], self._settings.verify
        shown = objects.look(url)
        if shown is not None and shown.size in (content.size, None):
            # A server's word for what it has does where nothing is read back at all.
            sha256 = objects.read_back(url, content)[1] if verify else shown.sha256
            if content.is_digest(sha256):
                return UploadReceipt(uri=uri, size=content.size, sha256=content.sha256, existed=True)
        objects.put(url, content)
        if verify:
            size, sha256 = objects.read_back(url, content)
            return UploadReceipt(uri=uri, size=size, sha256=sha256)
        shown = objects.look(url)
        # It has accepted a request with this length, and may not tell more.
        size = content.size if shown is None or shown.size is None else shown.size
        return UploadReceipt(uri=uri, size=size, sha256=shown.sha256 if shown else "")

    def _url(self, relative_path: str, step: int | None) -> str | None:
        if self._settings.url is None:
            return None
        values = {"run_id": self._run_id, "path": relative_path, "step": _NO_STEP if step is None else str(step)}
        return self._settings.url.format(**{name: quote(value, safe="/") for name, value in values.items()})

    def _ref_of(self, relative_path: str, step: int | None) -> str | None:
        url = self._url(relative_path, step)
        return url.partition("?")[0] if url else None

    def close(self) -> None:
        """Close the connections."""
        self._objects = self._orchestrator = None
        for exchange in self._exchanges:
            exchange.close()


def _headers(settings: HttpUploader.Settings, token: str | None) -> dict[str, str]:
    return {**settings.headers, **({"Authorization": f"Bearer {token}"} if token else {})}


def _check(settings: HttpUploader.Settings, urls: CallUrls) -> None:
    if settings.url is None and urls == CallUrls():
        hint = 'give it a "url" for the files, or a "checkpoint_url", "sample_url" or "terminal_url"'
        raise InvalidSettings("", "http has nowhere to upload to", hint=hint)
    if settings.url is not None:
        _check_template(settings.url)
    for name, url in attrs.asdict(urls).items():
        if url is not None:
            check_url(url, f"/{name}_url")
    for name, value in settings.headers.items():
        if not name.isascii() or not name.isprintable() or not value.isprintable():
            raise InvalidSettings(f"/headers/{name}", "a header has a name in ASCII, and one line of text")


def _check_template(url: str) -> None:
    try:
        names = {name for _, name, _, _ in Formatter().parse(url) if name is not None}
    except ValueError as error:
        raise InvalidSettings("/url", f"not a template: {error}", hint="write {{ for a brace") from error
    if unknown := sorted(names - set(_PLACEHOLDERS)):
        hint = f"there are {', '.join(f'{{{name}}}' for name in _PLACEHOLDERS)}; write {{{{ for a brace"
        raise InvalidSettings("/url", f"there is nothing to put in for {{{unknown[0]}}}", hint=hint)
    if "path" not in names:
        hint = "write for example https://store.example/{run_id}/{path}"
        raise InvalidSettings("/url", "without {path} every file would be put over the one before", hint=hint)
    check_url(url.format(**dict.fromkeys(_PLACEHOLDERS, "1")), "/url")
