"""What tests share: an in-memory house of actors with a scripted supervisor and a gang that runs the real hash-chain engine."""
