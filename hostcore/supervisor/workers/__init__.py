"""The worker processes of an attempt: start, messages, exit, and the cause of a death."""
