"""The servers of the local stack: Kafka, a CQL server and a schema registry."""
