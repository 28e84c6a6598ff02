"""How an agent's pure update is executed: gradients, optimisers, compiling, CUDA graphs, ranks. No algorithm."""
