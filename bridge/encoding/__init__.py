"""From log rows to the bytes of Kafka records. Pure."""
