"""Files of the hub: fetched, resumed, checked."""
