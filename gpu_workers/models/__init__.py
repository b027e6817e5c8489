"""The architectures that a rank can run, one folder each. `architectures` lists the model types, `model` has the protocol of a
model, `registry` loads one, `resolve` finds it by the name that an operator types."""
