"""How an agent's pure update is run: gradients, compiling. No mathematics of an algorithm is in here."""
