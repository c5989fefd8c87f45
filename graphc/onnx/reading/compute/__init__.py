"""Running ONNX graphs by graphc's functions: machinery, which recordings do not look into."""
