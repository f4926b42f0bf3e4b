"""Pydantic's errors in the terms of this project."""

from typing import Any, Final

from pydantic_core import ErrorDetails

from hostcore.job.wording import found

#: By the type of the error (docs.pydantic.dev/latest/errors/validation_errors/); what is in braces is of its context.
_EXPECTED: Final = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "greater_than_equal": "at least {ge}",
    "int_parsing": "an integer",
    "int_parsing_size": "an integer of 64 bits",
    "int_type": "an integer",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "at least {min_length} character",
    "string_type": "a string",
    "too_long": "at most {max_length} values",
}


def in_words(error: ErrorDetails | dict[str, Any]) -> str:
    """Describe one of Pydantic's errors in a sentence."""
    match error["type"]:
        case "extra_forbidden":
            return f"there is no key {found(error['loc'][-1])}"
        case "missing":
            return "is missing"
        case "string_pattern_mismatch" if "\0" in error["input"]:
            return "the character U+0000 is not allowed"
        case "string_pattern_mismatch":
            return f"{found(error['input'])} does not match {error['ctx']['pattern']}"
    expected = _EXPECTED.get(error["type"])
    if expected is None:
        return error["msg"]
    return f"expected {expected.format(**error.get('ctx', {}))}, found {found(error['input'])}"
