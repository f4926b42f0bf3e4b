"""Checks of trainers."""
