"""Avro's side: names, types, the records of a table's schemas, and reading and writing Avro bodies."""
