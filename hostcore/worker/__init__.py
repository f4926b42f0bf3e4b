"""The training process: one per rank. Torch lives here."""
