"""Ratios against bare Python, bare stores and eight other libraries, all measured in one run.

Nanoseconds apply to one machine on one day; a ratio of two medians from the same interleaved run is
comparable between machines. So every promise about speed and size is a ratio or a number of bytes
with a limit, checked here: `make bench` fails and names the limit when one is missed.
"""
