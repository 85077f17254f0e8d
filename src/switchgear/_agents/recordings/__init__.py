"""Recorded sessions of agents, in the formats that people have, as one kind of value."""
