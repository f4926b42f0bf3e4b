"""The events of a run: how they are written, merged and read. Append-only logs are the only way out of the training."""
