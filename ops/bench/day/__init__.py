"""A long run of many clients of several tenants, while processes are killed: how available is the server?"""
