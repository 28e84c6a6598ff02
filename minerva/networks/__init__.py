"""Networks: they hold parameters and map observations to numbers; no algorithm is in here.

`encoders` turn observations into features, `policies` into the parameters of a distribution of actions, `critics`
into values.
"""
