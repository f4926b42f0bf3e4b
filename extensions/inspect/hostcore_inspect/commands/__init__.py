"""The commands that compare runs and write their reports; each imports what it needs when it runs."""
