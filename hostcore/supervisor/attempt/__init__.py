"""One attempt of a run, from the start of its workers to its result, and the next attempt after a failure."""
