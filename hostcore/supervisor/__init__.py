"""The supervisor: plans a run, starts its worker, watches it, reports, and writes its result. No torch here."""
