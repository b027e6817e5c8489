"""A stand-in for NVIDIA's NVML library, which tests build with the machine's C compiler."""
