"""Files of stores, brought here: inputs, checkpoints, the mirrors of runs."""
