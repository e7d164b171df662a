"""The demo: the real service, fed by a simulated Kafka and Burrow, reporting to a fake CloudWatch."""
