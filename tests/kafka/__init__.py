"""Tests of what reads from Kafka, on a real broker, and on the mock cluster of the client for what that can show."""
