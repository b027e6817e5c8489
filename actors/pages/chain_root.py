"""Where the chains of page hashes begin. Apart from `page_hash`, because settings name policies, and a start that is refused
has no time to import numpy."""

ROOT = 0  # the parent of a first page
