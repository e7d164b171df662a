"""From the log to the push reporters, by cursor, in the worker that leads."""
