"""The body of a request: of bounded size and depth, and strict JSON. Read before anything else looks at it."""

from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel, ValidationError

from hostcore.errors import Errors
from hostcore.job.formats import parse_json
from hostcore.job.json_values import checked
from hostcore.job.pointers import escaped
from hostcore.job.wording import found
from hostcore_service.http.problems import RequestError
from hostcore_service.http.wording import in_words

M = TypeVar("M", bound=BaseModel)

MAX_BYTES: Final = 1 << 20
#: Objects and lists inside each other.
MAX_DEPTH: Final = 32


async def read_body(request: Request) -> bytes:
    """The body, which may not be longer than is allowed.

    :raises RequestError: 413 or 415.
    """
    media_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise RequestError(
            f"the body is {media_type!r}, not JSON",
            code="request.media_type",
            hint="send it as Content-Type: application/json",
        )
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise RequestError(
            f"the body is encoded as {encoding!r}",
            code="request.media_type",
            hint="send it as it is, without Content-Encoding",
            headers={"Accept-Encoding": "identity"},
        )
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BYTES:
            raise RequestError(
                f"the body is longer than {MAX_BYTES:,} bytes",
                code="request.too_large",
                hint="data belongs into files that the job names",
                headers={"Connection": "close"},
            )
        chunks.append(chunk)
    return b"".join(chunks)


def parse_object(data: bytes) -> dict[str, Any]:
    """A body as a plain object.

    :raises HostcoreError: When it is not strict JSON, or no object, or nested too deep.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is not UTF-8 text: byte {error.start}", code="job.encoding") from None
    value = parse_json(text)
    if not isinstance(value, dict):
        raise RequestError(f"expected an object, found {found(value)}", code="job.not_object", pointer="")
    plain: dict[str, Any] = checked(value, max_depth=MAX_DEPTH)
    return plain


def parse_model(model: type[M], data: bytes) -> M:
    """A body as a model.

    :raises HostcoreError: Everything that is wrong with it.
    """
    try:
        return model.model_validate(parse_object(data))
    except ValidationError as error:
        raise Errors(
            [
                RequestError(in_words(one), pointer="".join(f"/{escaped(str(part))}" for part in one["loc"]))
                for one in error.errors()
            ]
        ) from None


Body = Annotated[bytes, Depends(read_body)]
