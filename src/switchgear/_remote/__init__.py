"""Attempts of a batch on other hosts: Celery carries ids, the store holds the state."""
