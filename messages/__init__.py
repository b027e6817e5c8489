"""The wire: every message in one vocabulary, one codec, one post. Imports no torch and no actor.

ids, message, arrays     the words messages are made of
lifecycle                child <-> supervisor            generation   gateway <-> scheduler
steps                    scheduler <-> ranks             cache        prefix directory
drafts                   speculation                     public       ZeroMQ client <-> gateway
envelope, codec, routes  what surrounds a message, its bytes, who may say it
mailbox, zmq_*           the post, in memory and over ZeroMQ
client                   the client library
"""
