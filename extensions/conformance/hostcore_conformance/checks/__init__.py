"""The checks, a module for each question or two. Importing them fills the table."""

from hostcore_conformance.checks import (
    callback,
    data_source,
    launcher,
    plugin,
    policy,
    reporter,
    resolver,
    trainer,
    uploader,
)

__all__ = ["callback", "data_source", "launcher", "plugin", "policy", "reporter", "resolver", "trainer", "uploader"]
