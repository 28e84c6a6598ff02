"""The words with which a run's options choose how its update is executed; read without PyTorch."""

from typing import Literal

CompileMode = Literal["auto", "off"]
MatmulPrecision = Literal["highest", "high"]
