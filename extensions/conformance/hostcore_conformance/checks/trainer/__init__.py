"""Checks of trainers."""

from hostcore_conformance.checks.trainer import (
    batches,
    checkpoints,
    devices,
    evaluation,
    killing,
    learning,
    memory,
    resuming,
    running,
    scaling,
    state,
    stopping,
    surroundings,
)

__all__ = [
    "batches",
    "checkpoints",
    "devices",
    "evaluation",
    "killing",
    "learning",
    "memory",
    "resuming",
    "running",
    "scaling",
    "state",
    "stopping",
    "surroundings",
]
