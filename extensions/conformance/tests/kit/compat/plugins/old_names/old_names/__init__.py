"""Two callbacks, each with one old name."""
