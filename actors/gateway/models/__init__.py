"""The models that a gateway serves: what tells them apart, their texts and limits, and which one answers a request."""
