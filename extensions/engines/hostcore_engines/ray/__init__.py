"""Ray: jobs are submitted through the REST API of its dashboard, which needs nothing of Ray here."""
