"""Export of trained policies: as ONNX, and as a folder to share."""
