"""Helpers for the operating system that several packages use: clocks, files, locks across forks, threads beside an event loop."""
