"""The database: jobs, and the leases on them."""
