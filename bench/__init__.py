"""Ratios against bare Python, bare stores and eight other libraries, all measured in one run.

A number of nanoseconds is true of one machine on one day; a ratio of two medians from the same
interleaved run travels. So every promise this project makes about speed and size is a ratio or a
count of bytes with a bar, checked here: `make bench` fails, and says which bar, when one is missed.
"""
