"""The scheduling policies: one small file each, behind the seam in sequences/policy.py."""
