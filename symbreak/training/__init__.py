"""Loops that run agents on tasks."""
