"""How to connect to a Kafka cluster: client properties and tokens; nothing here imports a client library."""
