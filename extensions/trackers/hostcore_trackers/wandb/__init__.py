"""The reporter ``wandb``: the reporter itself, wandb in a process of its own, and the files that wandb writes."""
