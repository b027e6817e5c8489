"""The architectures that a rank can run, a folder each. `architectures` lists the model types, `model` is what callers know of
a model, `registry` loads one, `resolve` finds it by the name that an operator types."""
