"""Apache Kafka: topics as a source and a sink, with a registry of schemas."""
