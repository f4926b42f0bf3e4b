"""Secrets: references in the settings of plugins, their values, and the filter that hides values in output."""
