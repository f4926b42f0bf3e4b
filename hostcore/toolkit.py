"""Former name of :mod:`hostcore_toolkit`; goes in 1.0."""

import warnings

import hostcore_toolkit
from hostcore_toolkit import *  # noqa: F403

__all__ = hostcore_toolkit.__all__

warnings.warn(
    "hostcore.toolkit is now hostcore_toolkit, of the distribution hostcore-toolkit; hostcore 1.0 removes this name",
    DeprecationWarning,
    stacklevel=2,
)
