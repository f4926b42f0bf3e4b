"""Ray's job submission API: https://docs.ray.io/en/latest/cluster/running-applications/job-submission/api.html."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from hostcore_builtin_plugins.http_exchange import proxy_for
from hostcore_hookspecs import FatalError, TransientError

#: Ray's text for an unknown job; another server's 404 has another text.
_NO_JOB: Final = "does not exist"
_ALREADY: Final = "already exists"
#: The head's 500 for a request that the node which starts the job has refused.
_REFUSED_THERE: Final = "status code 400"


class JobsApi:
    """The jobs of one cluster.

    :param address: Of the dashboard, without a slash at the end.
    :param token: Sent with every request; None: none.
    :param timeout_seconds: For each: connecting, and waiting for the answer.
    """

    def __init__(self, address: str, *, token: str | None, timeout_seconds: float, ca_file: str | None = None) -> None:
        import urllib3

        self._address = address
        self._headers = {"User-Agent": "hostcore", **({"Authorization": f"Bearer {token}"} if token else {})}
        self._timeout = urllib3.Timeout(connect=timeout_seconds, read=timeout_seconds)
        proxy = proxy_for(address)
        self._pool = (
            urllib3.ProxyManager(proxy, maxsize=1, ca_certs=ca_file)
            if proxy
            else urllib3.PoolManager(maxsize=1, ca_certs=ca_file)
        )

    def submit(self, request: Mapping[str, Any]) -> bool:
        """Submit a job; whether it is new. Ray takes a submission_id once.

        :raises TransientError: Ray did not answer, or not now.
        :raises FatalError: It refuses.
        """
        status, text = self._ask("POST", "/api/jobs/", request)
        if status != HTTPStatus.OK and _ALREADY in text:
            return False
        self._require_success(status, text)
        return True

    def info(self, submission_id: str) -> dict[str, Any] | None:
        """Return Ray's record of a job: ``status``, ``message``, ``driver_exit_code``, …; None if it has none.

        :raises TransientError, FatalError: See :meth:`submit`.
        """
        return self._of_job("GET", submission_id, "")

    def logs(self, submission_id: str) -> str | None:
        """All that a job has printed, as far as Ray knows; None if it knows no such job.

        :raises TransientError, FatalError: See :meth:`submit`.
        """
        found = self._of_job("GET", submission_id, "/logs")
        return None if found is None else str(found.get("logs") or "")

    def stop(self, submission_id: str) -> None:
        """Have a job stopped. One that has ended, or is not known, stays as it is.

        :raises TransientError, FatalError: See :meth:`submit`.
        """
        self._of_job("POST", submission_id, "/stop")

    def _of_job(self, method: str, submission_id: str, what: str) -> dict[str, Any] | None:
        status, text = self._ask(method, f"/api/jobs/{quote(submission_id, safe='')}{what}")
        if status == HTTPStatus.NOT_FOUND and _NO_JOB in text:
            return None
        self._require_success(status, text)
        try:
            found: dict[str, Any] = json.loads(text)
        except ValueError as error:
            raise self._stranger(text) from error
        if not isinstance(found, dict):
            raise self._stranger(text)
        return found

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, str]:
        import urllib3

        try:
            answer = self._pool.request(
                method,
                f"{self._address}{path}",
                body=None if body is None else json.dumps(body),
                headers={**self._headers, **({"Content-Type": "application/json"} if body is not None else {})},
                timeout=self._timeout,
                retries=False,
                redirect=False,  # it would take the token elsewhere
            )
        except urllib3.exceptions.HTTPError as error:
            raise TransientError(
                f"Ray's dashboard at {self._address} does not answer: {error}",
                pointer="/launcher/address",
                hint="is it reached from here? `ray start --dashboard-host`, a tunnel or an ingress may be missing",
            ) from error
        return answer.status, answer.data.decode(errors="replace")

    def _require_success(self, status: int, text: str) -> None:
        if status == HTTPStatus.OK:
            return
        words = f": {line}" if (line := _last_line(text)) else ""
        said = f"Ray's dashboard at {self._address} answered {status}{words}"
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise FatalError(
                said,
                pointer="/launcher/token",
                hint='the cluster wants its token: {"use": "ray", "token": {"$secret": "env:RAY_TOKEN"}}; '
                "`ray get-auth-token` shows it",
            )
        is_refused = _REFUSED_THERE in text
        if status == HTTPStatus.TOO_MANY_REQUESTS or (status >= HTTPStatus.INTERNAL_SERVER_ERROR and not is_refused):
            raise TransientError(said)
        if status == HTTPStatus.NOT_FOUND or status < HTTPStatus.BAD_REQUEST:
            raise self._stranger(text)
        raise FatalError(said, hint="see the launcher's settings, and `resources`")

    def _stranger(self, text: str) -> FatalError:
        return FatalError(
            f"what answers at {self._address} is not Ray's job API: {_last_line(text)[:200]}",
            pointer="/launcher/address",
            hint="name the address of the dashboard, http://HEAD:8265",
        )


def _last_line(text: str) -> str:
    """Of a traceback, what was raised."""
    lines = [line.strip() for line in text.splitlines() if line.strip(". \t")]
    return lines[-1] if lines else ""
