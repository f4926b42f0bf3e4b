"""The version of the contract, which is the version of this distribution (SemVer).

A minor version only adds: hooks, hook arguments with defaults, keyword-only fields with defaults. A major version may
take away, and changes ``trainer_api_version`` (``v<major>``).
"""

from typing import Final

API_VERSION: Final = "1.1.0"
TRAINER_API_VERSION: Final = "v" + API_VERSION.split(".", 1)[0]
