"""Comparisons: statistics over seeds and tasks, and the page that shows them.

Nothing is imported here: a worker chooses its core before JAX counts them.
"""
