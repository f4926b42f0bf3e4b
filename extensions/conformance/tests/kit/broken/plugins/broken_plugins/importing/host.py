"""Imports a module of the host's own."""

from broken_plugins.importing import Resolver
from hostcore.job.wording import did_you_mean

__all__ = ["Resolver", "did_you_mean"]
