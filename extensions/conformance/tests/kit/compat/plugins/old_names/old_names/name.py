"""Imports a name that contract 1.1 deprecates."""

from hostcore_hookspecs import MetricPoint


class ImportsMetricPoint:
    """Does nothing with it."""

    kept = MetricPoint
