"""Encoders that are generated for one table: log cells straight to Avro bytes."""
