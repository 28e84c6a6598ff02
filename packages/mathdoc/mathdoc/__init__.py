"""Formulas beside the code, and checked: `# LaTeX:` comments as pages, and as statements about the lines below them.

Any Python package can use it: a marker above a statement, a notation table per module, and exercises that run the
lines. Nothing of the package under check is changed; its modules are rewritten in memory in the check run only.
"""

__version__ = "0.1.0"
