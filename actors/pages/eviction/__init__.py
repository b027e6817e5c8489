"""Which cached page is overwritten next: the protocol of the page ledger's policies, and the policies."""
