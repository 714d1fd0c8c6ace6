"""Turns the CQL statements of writers into the simulator's mutations.

`parser` parses the text into statements, `catalog` holds the tables and types that DDL has created, `literals`
serializes values, and `interpret` derives the mutations of a statement. `client` runs statements on the local stack.
"""
