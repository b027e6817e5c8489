"""How many pages a ledger uses: they follow the load between two bounds."""
