"""Pipeline parallelism: a stage of ranks holds some consecutive layers of a model, and hidden states go from stage to stage."""
