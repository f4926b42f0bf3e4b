"""The supervisor: plans a run, starts its worker, watches it, reports, and writes the honest end. No torch here."""
