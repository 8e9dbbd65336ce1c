"""One process: its core, its start, its signals, its end, and what its bits depend on."""
