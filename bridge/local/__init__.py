"""The local stack: Kafka, a CQL server that speaks as ScyllaDB does, and a schema registry, on this machine alone.

It serves the demo, the tests and the benchmark. Nothing here is used in production, and nothing here may import the
CQL driver or the Kafka client: readiness is probed over plain sockets. `bridge.local.stack` is the way in.
"""
