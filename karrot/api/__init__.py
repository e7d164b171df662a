"""Karrot's own API: the bodies of its answers, and a client for the commands and the doctor."""
