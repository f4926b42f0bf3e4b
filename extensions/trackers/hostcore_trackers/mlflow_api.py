"""MLflow's REST API, through MLflow's own client for it.

``mlflow.MlflowClient`` takes time limits, retries and credentials from the environment of the process alone, which the
workers share. The function that it calls in turn takes them as arguments, does all of MLflow's ways to authenticate
(``MLFLOW_TRACKING_*``), and shows the answer with its headers. The API: https://mlflow.org/docs/latest/rest-api.html
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from hostcore_builtin_plugins.http_exchange import retry_after_seconds
from hostcore_hookspecs import FatalError, TransientError

if TYPE_CHECKING:
    from requests import Response

_TRY_AGAIN = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
_UNKNOWN = "RESOURCE_DOES_NOT_EXIST"
_INVALID = "INVALID_PARAMETER_VALUE"


class NotThere(FatalError):
    """The server does not know what was asked for."""


class RefusedValue(FatalError):
    """A value of the request is not one that the server takes."""


class MlflowApi:
    """Calls of one MLflow server.

    :param uri: Of the server: ``http(s)://host:port``.
    :param token: A bearer token; None: from the environment.
    :param username: With the password, instead of a token.
    :param timeout_seconds: For each: connecting, and waiting for the answer.
    """

    def __init__(
        self,
        uri: str,
        *,
        token: str | None = None,
        username: str | None = None,
        password: str | None = None,
        timeout_seconds: float,
    ) -> None:
        from mlflow.utils.credentials import get_default_host_creds

        self._uri = uri.rstrip("/")
        self._timeout_seconds = timeout_seconds
        self._credentials = get_default_host_creds(self._uri)
        if token is not None or username is not None:
            self._credentials.token = token
            self._credentials.username, self._credentials.password = username, password

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """Ask.

        :param path: Below ``/api/2.0/mlflow/``: ``runs/get``.
        :raises NotThere: The server does not know it.
        :raises TransientError: Another try may succeed.
        :raises FatalError: It will not.
        """
        return self._call("GET", path, params=query)

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Change something.

        :raises NotThere: The server does not know what is to be changed.
        :raises RefusedValue: A value in it is not one that the server takes.
        :raises TransientError: Another try may succeed.
        :raises FatalError: It will not.
        """
        return self._call("POST", path, json=body)

    def _call(self, method: str, path: str, **content: Any) -> dict[str, Any]:
        from mlflow.exceptions import InvalidUrlException, MlflowException
        from mlflow.utils.rest_utils import http_request

        try:
            answer = http_request(
                self._credentials,
                f"/api/2.0/mlflow/{path}",
                method,
                max_retries=0,  # the host tries again, and knows when
                timeout=self._timeout_seconds,
                raise_on_status=False,
                **content,
            )
        except InvalidUrlException as error:
            raise FatalError(str(error), hint="check tracking_uri in the reporter's settings") from error
        except MlflowException as error:
            raise TransientError(f"cannot reach the MLflow server {self._uri}: {error}") from error
        return self._judged(answer, path)

    def _judged(self, answer: "Response", path: str) -> dict[str, Any]:
        status = answer.status_code
        if status == HTTPStatus.OK:
            try:
                found = answer.json()
            except ValueError:
                found = None
            if not isinstance(found, dict):  # of a proxy, perhaps
                raise TransientError(f"what {self._uri} answered to {path} is not from MLflow")
            return found
        code, message = _error_of(answer)
        said = f"the MLflow server {self._uri} answered {status} to {path}: {message}"
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _TRY_AGAIN:
            raise TransientError(said, retry_after_seconds=retry_after_seconds(answer.headers.get("Retry-After")))
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise FatalError(said, hint="check token, or username and password, in the reporter's settings")
        if code == _UNKNOWN:
            raise NotThere(said)
        if code == _INVALID:
            raise RefusedValue(said)
        raise FatalError(said, hint="check tracking_uri in the reporter's settings")


def _error_of(answer: "Response") -> tuple[str, str]:
    """Code and message of an error of MLflow's; of another server's, no code."""
    try:
        found = answer.json()
        return str(found["error_code"]), str(found["message"])
    except (ValueError, KeyError, TypeError):
        return "", answer.text.strip()[:500]
