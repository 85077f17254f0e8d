"""Absolute rules over what an agent is about to do. Pure."""
