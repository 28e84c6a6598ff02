"""All parameters of a module as one flat vector.

The optimiser then works on one tensor, a gradient norm is one operation, and stacking agents is stacking vectors.
The module stays an ordinary module: its parameters are views of the vector, so writing either changes both.
"""

import torch
from torch import Tensor, nn


class FlatParameters:
    """A module's parameters as views of one flat vector, and that vector split by name.

    Move the module to its device first: `module.to(...)` afterwards would detach the views from the vector.
    """

    def __init__(self, module: nn.Module) -> None:
        named = dict(module.named_parameters())
        self.names = list(named)
        self.shapes = [parameter.shape for parameter in named.values()]
        self.sizes = [parameter.numel() for parameter in named.values()]
        self.module = module
        first = next(iter(named.values()))
        vector = torch.empty(sum(self.sizes), dtype=first.dtype, device=first.device)
        for parameter, part in zip(named.values(), self.by_name(vector).values(), strict=True):
            part.copy_(parameter.detach())
        self.move(vector)

    def move(self, vector: Tensor) -> None:
        """Use `vector`, which holds equal values, as the storage of the parameters."""
        self.vector, self.views = vector, list(self.by_name(vector).values())
        for parameter, view in zip(self.module.parameters(), self.views, strict=True):
            parameter.data = view

    def adopt(self) -> None:
        """Copy parameters that were replaced by assignment (`parameter.data = tensor`) back into the vector."""
        for parameter, view in zip(self.module.parameters(), self.views, strict=True):
            if parameter.data_ptr() != view.data_ptr():
                view.copy_(parameter.detach())
                parameter.data = view

    def by_name(self, vector: Tensor) -> dict[str, Tensor]:
        """Split a vector into tensors by parameter name, in the module's shapes, for `torch.func.functional_call`."""
        parts = vector.split(self.sizes)
        return {name: part.view(shape) for name, part, shape in zip(self.names, parts, self.shapes, strict=True)}

    def matrices(self) -> Tensor:
        """Return a vector that is 1 at the weights of linear layers, and 0 at biases and at the scales of norms."""
        flags = torch.zeros_like(self.vector)
        for part, shape in zip(flags.split(self.sizes), self.shapes, strict=True):
            part.fill_(len(shape) > 1)
        return flags

    def mark(self, prefixes: tuple[str, ...]) -> Tensor:
        """Return a boolean vector that is true at the parameters whose names start with one of `prefixes`."""
        flags = torch.zeros_like(self.vector, dtype=torch.bool)
        for part, name in zip(flags.split(self.sizes), self.names, strict=True):
            part.fill_(name.startswith(prefixes))
        return flags
