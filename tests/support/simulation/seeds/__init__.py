"""Many seeds of the simulation, and what they have covered."""
