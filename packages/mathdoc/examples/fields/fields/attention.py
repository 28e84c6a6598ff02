"""Attention and its training loss. Shapes: I queries and J keys of D features, values of E features."""

import math

import torch
from torch import Tensor


def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """What each query reads from the values.  [I, D], [J, D], [J, E] -> [I, E]"""
    # LaTeX: s_{i,j} = \frac{1}{\sqrt{D}} \sum_d q_{i,d} k_{j,d}
    scores = queries @ keys.T / math.sqrt(queries.shape[1])
    # LaTeX: w_{i,j} = \frac{\exp(s_{i,j})}{\sum_l \exp(s_{i,l})}
    weights = torch.softmax(scores, dim=1)
    # LaTeX: o_{i,e} = \sum_j w_{i,j} v_{j,e}
    read = weights @ values
    return read


def distillation_loss(read: Tensor, teacher: Tensor) -> Tensor:
    """How far what was read is from a teacher, which learns nothing from it.  [I, E], [I, E] -> []"""
    # LaTeX: \mathcal{L} = \mathbb{E}_i[\sum_e (o_{i,e} - \operatorname{sg}(y_{i,e}))^2]
    loss = (read - teacher.detach()).square().sum(dim=1).mean()
    return loss
