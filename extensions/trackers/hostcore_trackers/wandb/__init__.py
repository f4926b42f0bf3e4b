"""The reporter ``wandb``: the reporter itself, and wandb in a process of its own."""
