"""Reinforcement learning that uses a symmetry where it holds and drops it where it breaks."""
