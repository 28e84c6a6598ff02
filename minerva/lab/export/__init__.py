"""A trained policy for use elsewhere: as ONNX, and as a folder that can be shared."""
