"""The two algorithms, once each, for every method."""
