"""From Kafka's `__consumer_offsets` to the tables `commits`, `members` and `ends`."""
