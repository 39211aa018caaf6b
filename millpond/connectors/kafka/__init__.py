"""Reads and writes Apache Kafka: topics as a source and a sink, with a schema registry."""
