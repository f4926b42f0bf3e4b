"""The launcher ``slurm``."""
