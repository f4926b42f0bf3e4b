"""What a job names besides its data, models above all: resolved, fetched, and given to the trainer as local files."""
