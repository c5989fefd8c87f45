"""The JavaScript that loads a model's WebAssembly: `loader.mjs`, and what it is told of a model."""
