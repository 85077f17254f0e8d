"""Agents, their fallbacks, incidents and notifications."""
