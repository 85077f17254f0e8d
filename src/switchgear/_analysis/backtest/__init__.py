"""Recorded sessions replayed against policies: what would have tripped, and what it would have saved."""
