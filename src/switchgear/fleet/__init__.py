"""The fleet: agents that answer to circuits of seven categories, and who works in whose stead."""
