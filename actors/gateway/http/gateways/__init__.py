"""Several gateways behind one port: which of them owns a request, and how another one forwards a call to it."""
