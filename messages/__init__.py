"""Every message between actors, in one vocabulary. Imports no torch and no actor.

lifecycle     child <-> supervisor                  generation    gateway <-> scheduler
steps         scheduler <-> ranks                   cache         prefix directory
drafts        speculation                           public        ZeroMQ client <-> gateway
routes        which role may send what              ids, errors   names and exceptions that all share
wire/         the bytes of a message                transport/    mailboxes, over ZeroMQ and in memory
client/       the client library
"""
