"""Calculates every table of the pipeline a second time, in plain Python, from the rules of ``docs/tables.md``.

The tests compare whole tables of Spark with these tables. So this package imports nothing from ``karrot``, and shares
no code with ``karrot/pipeline/derive``. Times are epoch milliseconds.
"""
