"""Looking at a machine before a job is run on it. Nothing here imports torch: processes that may hang or die do."""
