"""Simulated failures for every configured guard, to check that each of them fires."""
