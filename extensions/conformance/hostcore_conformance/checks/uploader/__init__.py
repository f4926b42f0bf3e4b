"""Whether an uploader brings files where they belong, and nothing else."""
