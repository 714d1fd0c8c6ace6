"""The CDC log: its columns and operations, and the values in its cells."""
