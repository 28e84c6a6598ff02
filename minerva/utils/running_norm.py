"""`RunningNorm` under the path that the documentation gives for it."""

from minerva.data.normalizers import RunningNorm

__all__ = ["RunningNorm"]
