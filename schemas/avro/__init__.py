"""Avro: names and types for CQL, the records of a table's schemas, and writers and readers of Avro bodies."""
