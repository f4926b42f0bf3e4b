"""Checks of data sources."""

from hostcore_conformance.checks.data_source import paths, readers, schema, shards, training

__all__ = ["paths", "readers", "schema", "shards", "training"]
