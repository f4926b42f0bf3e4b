"""A small GPT that writes text byte by byte."""
