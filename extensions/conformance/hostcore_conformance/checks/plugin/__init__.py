"""Checks of plugins of every kind."""

# In the order in which they are asked and shown.
# isort: off
from hostcore_conformance.checks.plugin import registration
from hostcore_conformance.checks.plugin import loading
from hostcore_conformance.checks.plugin import methods
from hostcore_conformance.checks.plugin import settings
from hostcore_conformance.checks.plugin import secrets
from hostcore_conformance.checks.plugin import importing
from hostcore_conformance.checks.plugin import ending
# isort: on

__all__ = ["ending", "importing", "loading", "methods", "registration", "secrets", "settings"]
