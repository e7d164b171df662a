"""Finds the data files of the tables: in a folder, or in S3."""
