"""From CQL types and raw CQL cells to Avro schemas and Avro bytes.

The lowest layer: it knows the CQL type system, the shape of a CDC log row and the Avro
envelope, and must not know ScyllaDB's topology, Kafka, Spark, clocks or configuration.
All of it is pure (standard library and fastavro) except ``bridge.adapters.registry.client``, which speaks
to a schema registry.
"""
