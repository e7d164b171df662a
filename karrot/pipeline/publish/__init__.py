"""From the stream of events to CloudWatch and to other sinks."""
