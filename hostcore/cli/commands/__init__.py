"""A module for each command of the host. It imports click at the top, and what the command needs when it runs."""
