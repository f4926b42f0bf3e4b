"""The report of one plugin or of several as JSON."""

import json
from collections.abc import Sequence
from typing import Any

from hostcore_conformance.result import Report


def document(reports: Sequence[Report]) -> dict[str, Any]:
    """Plain JSON: the report itself if there is one, else ``{"reports": […]}``."""
    documents = [report.as_dict() for report in reports]
    return documents[0] if len(documents) == 1 else {"reports": documents}


def as_json(reports: Sequence[Report]) -> str:
    """The text of the file. What UTF-8 cannot hold, as parts of file names, is escaped."""
    text = json.dumps(document(reports), indent=2, ensure_ascii=False) + "\n"
    return text.encode(errors="backslashreplace").decode()
