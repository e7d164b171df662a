"""Holds what all calls to AWS share. Importing this package loads no AWS client library."""
