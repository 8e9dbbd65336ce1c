"""Environments with their symmetries; importing this registers the `symbreak/…` ids with Gymnasium."""

from symbreak.tasks.check import check_environment, require_finite
from symbreak.tasks.registry import TASK_NAMES, describe_tasks, get_task
from symbreak.tasks.rendering import draw_tasks
from symbreak.tasks.task import Task, View, user_task

__all__ = [
    "TASK_NAMES",
    "Task",
    "View",
    "check_environment",
    "describe_tasks",
    "draw_tasks",
    "get_task",
    "require_finite",
    "user_task",
]
