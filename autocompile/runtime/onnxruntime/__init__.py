"""The model converted to ONNX, run by ONNX Runtime."""
