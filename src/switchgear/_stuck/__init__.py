"""Stuck agents: score, escalation, timeouts and messages, shared by hooks, runs and the command."""
