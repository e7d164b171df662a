"""Evaluates consumer groups live from ``__consumer_offsets``, by Burrow's rules, in arrays."""
