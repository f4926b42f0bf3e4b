"""What lies in stores that fsspec has a file system for, brought here: inputs, checkpoints, the mirrors of runs."""
