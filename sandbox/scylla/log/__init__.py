"""The CDC log that the simulator writes."""
