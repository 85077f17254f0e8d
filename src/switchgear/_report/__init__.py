"""The report of a run: one HTML file that reads without a network, a script or this program."""
