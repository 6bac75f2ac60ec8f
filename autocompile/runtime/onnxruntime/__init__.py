"""ONNX Runtime, which runs the model after its conversion to ONNX."""
