"""The page of a run, and what pages of other things share with it."""
