"""Whether a reporter takes what it is told, and brings it where it belongs."""
