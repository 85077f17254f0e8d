"""Putting the hook into agents' settings and taking it out again, without touching the rest."""
