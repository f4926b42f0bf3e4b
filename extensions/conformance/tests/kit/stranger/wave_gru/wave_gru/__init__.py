"""A hostcore trainer that classifies short waveforms of any length."""
