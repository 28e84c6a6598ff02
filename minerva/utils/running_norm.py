"""`RunningNorm` under its documented import path."""

from minerva.data.normalizers import RunningNorm

__all__ = ["RunningNorm"]
