"""Batches: many tasks, in sequence or in parallel, with dependencies between them."""
