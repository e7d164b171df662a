"""How a Kafka cluster is reached, for all who speak to one; nothing here imports a client."""
