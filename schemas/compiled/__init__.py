"""Encoders: code that is generated for one table, and the reference that defines its bytes."""
