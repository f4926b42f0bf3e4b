"""torchrun: an agent on each machine, which starts the ranks there."""
