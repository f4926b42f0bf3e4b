"""Checks of plugins of every kind."""

# In the order in which they are asked and shown.
# isort: off
from hostcore.conformance.checks.plugin import registration
from hostcore.conformance.checks.plugin import loading
from hostcore.conformance.checks.plugin import methods
from hostcore.conformance.checks.plugin import settings
from hostcore.conformance.checks.plugin import secrets
from hostcore.conformance.checks.plugin import importing
from hostcore.conformance.checks.plugin import ending
# isort: on

__all__ = ["ending", "importing", "loading", "methods", "registration", "secrets", "settings"]
