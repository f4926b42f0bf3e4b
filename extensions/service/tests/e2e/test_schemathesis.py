"""The service holds to its OpenAPI document, whatever is sent to it: Schemathesis makes requests from it, good and bad.

The same requests each time, so that a failure comes again.
"""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("schemathesis", reason="schemathesis is not installed")

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
_EXAMPLES = 20

_bounded = settings(
    max_examples=_EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def test_the_service_answers_every_request_as_its_openapi_document_says(make_server: Any) -> None:
    server = make_server(launcher="instant")
    server.submit(run_id="known", labels={"team": "maps"})
    server.wait_ended("known")
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) >= 6
    failures: list[str] = []
    for operation in operations:
        failures += _failures(operation, server)

    assert not failures, "\n\n".join(failures)
    assert server.request("GET", "/healthz").status == 200
    assert "Traceback" not in server.log


def _failures(operation: Any, server: Any) -> Iterator[str]:
    known = {"path_parameters": {"run_id": "known"}} if "{run_id}" in operation.path else {}
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
        for values in [{}, known] if known else [{}]:
            if failure := _failure(operation, mode, values, server):
                yield f"{operation.label}, {mode.value} data: {failure}"


def _failure(operation: Any, mode: Any, values: dict[str, Any], server: Any) -> str | None:
    """What is wrong with an operation, as far as a few requests show."""
    checks = CHECKS if mode is GenerationMode.POSITIVE else [*CHECKS, negative_data_rejection]

    @_bounded
    @given(case=operation.as_strategy(generation_mode=mode, **values))
    def check(case: Any) -> None:
        response = case.call(headers={"X-TRAINER-TOKEN": server.token}, timeout=300)
        case.validate_response(response, checks=checks)

    try:
        check()
    except (Exception, FailureGroup) as error:  # noqa: BLE001 - all of them are told, not only the first
        if "Unsatisfiable" in type(error).__name__:
            return None  # nothing is wrong that could be sent: there are no parameters
        return f"{type(error).__name__}: {error}"
    return None
