"""The job: what a job file may say, how it is read, and how its mistakes are told."""
