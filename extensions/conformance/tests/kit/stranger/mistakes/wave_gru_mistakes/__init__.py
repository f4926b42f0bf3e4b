"""wave-gru, wrong in one way at a time, as people are: an entry point's name begins with the check that notices."""
