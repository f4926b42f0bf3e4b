"""Ranks that an engine has started, torchrun for instance: one supervisor each, which meet at rank 0."""
