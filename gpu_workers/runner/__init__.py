"""The engine of real models: loading, memory budget, warm-up and the model runner."""
