"""Defines the JSON bodies of the API, in `bodies`. Routes encode them, and clients decode them."""
