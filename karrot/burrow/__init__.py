"""Implements Burrow's JSON format, its evaluation rules, and a client of its REST API."""
