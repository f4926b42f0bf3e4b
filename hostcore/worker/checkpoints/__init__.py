"""The worker's checkpoints: captured between two steps, written in the background, and restored on resume."""
