"""The configuration file: its sections, how it is read, and what is generated from it."""
