"""The database: jobs, and who attends to them."""
