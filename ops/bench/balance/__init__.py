"""The choice between replicas in virtual time: real dispatchers of gateways; the replicas are formulas."""
