"""The calls that report a run's files to an orchestrator: one for each checkpoint, each sample, and the end.

They are those of the trainers that ran under it before: JSON, posted, with any answer of success.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from hostcore_builtin_plugins.http_exchange import HttpExchange
from hostcore_hookspecs import Artifact, FatalError, UploadContext, UploadReceipt

_ENVIRONMENT: Final = {
    "checkpoint": "TRAINER_UPLOAD_CHECKPOINT_URL",
    "sample": "TRAINER_UPLOAD_SAMPLE_URL",
    "terminal": "TRAINER_UPLOAD_TERMINAL_URL",
}
_TOKEN: Final = "TRAINER_CAPABILITY_TOKEN"  # noqa: S105 - the name of a variable

#: Which call is made when an artifact of a kind has arrived. A commit record is the last file of its checkpoint, and
#: the result is the last of a run.
_CALL_OF: Final = {"commit": "checkpoint", "sample": "sample", "result": "terminal"}


RefOf = Callable[[str, int | None], str | None]


@attrs.frozen(kw_only=True)
class CallUrls:
    """The URL of each call; None: it is not made."""

    checkpoint: str | None = None
    sample: str | None = None
    terminal: str | None = None

    def filled(self, environment: Mapping[str, str] = os.environ) -> "CallUrls":
        """With those of the environment where the job names none."""
        found = {call: environment.get(name) or None for call, name in _ENVIRONMENT.items()}
        return CallUrls(**{call: getattr(self, call) or found[call] for call in found})

    def of_kind(self, kind: str) -> str | None:
        """For the artifacts of a kind."""
        call = _CALL_OF.get(kind)
        return getattr(self, call) if call else None


def token_of_environment(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the token that the orchestrator gave the run."""
    return environment.get(_TOKEN) or None


class Orchestrator:
    """Makes the calls.

    :param exchange: Sends them, with the token.
    :param ref_of: The URI of a file, by its path below the run directory and its step; None if it is sent nowhere.
    """

    def __init__(self, urls: CallUrls, exchange: HttpExchange, ctx: UploadContext, ref_of: RefOf) -> None:
        self._urls = urls
        self._exchange = exchange
        self._ctx = ctx
        self._ref_of = ref_of

    def tell(self, artifact: Artifact, receipt: UploadReceipt | None) -> None:
        """Make the call that an artifact's arrival calls for, if any.

        :param receipt: Where it arrived; None if files are not sent anywhere.
        :raises TransientError: The orchestrator may take it at another try.
        :raises FatalError: It does not.
        """
        url = self._urls.of_kind(artifact.kind)
        if url is None:
            return
        body = self._terminal(artifact) if artifact.kind == "result" else self._file(artifact, receipt)
        content = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
        with self._exchange.send("POST", url, headers={"Content-Type": "application/json"}, body=lambda: content):
            pass

    def _file(self, artifact: Artifact, receipt: UploadReceipt | None) -> dict[str, Any]:
        is_checkpoint = artifact.kind == "commit"
        body = {
            "run_id": self._ctx.run_id,
            "kind": "checkpoint" if is_checkpoint else "sample",
            "step": artifact.step,
            "local_path": str(Path(self._ctx.run_dir, artifact.relative_path)),
            "size_bytes": artifact.size,
            "sha256": artifact.sha256,
            "file_ref": receipt.uri if receipt else None,
            "uploaded_size_bytes": receipt.size if receipt else None,
        }
        return {**body, "final": artifact.final} if is_checkpoint else body

    def _terminal(self, artifact: Artifact) -> dict[str, Any]:
        try:
            result = orjson.loads(Path(artifact.path).read_bytes())
        except (FileNotFoundError, orjson.JSONDecodeError) as unreadable:
            message = f"{artifact.relative_path} cannot be read: {unreadable}"
            raise FatalError(message, file=artifact.path) from unreadable
        succeeded = result.get("status") == "succeeded"
        error = result.get("error") or {}
        return {
            "run_id": self._ctx.run_id,
            "kind": "terminal",
            "status": "completed" if succeeded else "failed",
            "step": result.get("step"),
            "error": None if succeeded else error.get("message") or result.get("reason") or result.get("status"),
            **self._final_checkpoint(result.get("final_checkpoint")),
        }

    def _final_checkpoint(self, folder: str | None) -> dict[str, Any]:
        """The commit record of the newest checkpoint, as that checkpoint's own call has named it."""
        names = ("final_checkpoint", "final_checkpoint_ref", "final_checkpoint_sha256")
        relative = f"{folder}.json"
        record = Path(self._ctx.run_dir, relative)
        if folder is None or not record.is_file():
            return dict.fromkeys(names)
        content = record.read_bytes()
        ref = self._ref_of(relative, orjson.loads(content).get("step"))
        return dict(zip(names, (str(record), ref, hashlib.sha256(content).hexdigest()), strict=True))
