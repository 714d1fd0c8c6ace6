"""From CQL types and raw CQL cells to Avro schemas and Avro bytes.

This is the lowest layer. It knows the CQL type system, the rows of a CDC log and the shapes of the records. It does not
know ScyllaDB's topology, Kafka, Spark, clocks or configuration. All of it is pure: it imports the standard library and
fastavro only.
"""
