"""The bridge without Spark: from ScyllaDB's CDC log to Kafka records, planned, published and monitored."""
