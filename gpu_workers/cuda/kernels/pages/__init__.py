"""How pages of 8-bit numbers and of small integers are read and written inside of kernels."""
