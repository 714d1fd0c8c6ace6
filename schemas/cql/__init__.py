"""CQL types, and the description of a table."""
