"""The reporter ``trackio``: the reporter itself, and Trackio in a process of its own."""
