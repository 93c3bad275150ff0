"""Language tasks for models: a prompt, the form of the answer, and what is checked before an answer counts."""

from repair_ray.engines.tasks.answers import AnswerError
from repair_ray.engines.tasks.base import Limits, Prompt, Task, View
from repair_ray.engines.tasks.library import TASKS, task

__all__ = ["TASKS", "AnswerError", "Limits", "Prompt", "Task", "View", "task"]
