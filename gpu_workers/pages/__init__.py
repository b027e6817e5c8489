"""The host tier of a GPU: pages move to and from pinned memory of the host by copies beside the steps"""
