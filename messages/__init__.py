"""Every message between actors, in one vocabulary. Imports no torch and no actor.

lifecycle/    child <-> supervisor                  generation/   gateway <-> scheduler, and what a request asks for
steps         scheduler <-> ranks                   cache         prefix directory
drafts        scheduler <-> speculation             public        ZeroMQ client <-> gateway
routes        which role may send which message     ids, errors   names and exceptions that all share
outcomes      endings and refusal codes             metrics       Prometheus metrics of all actors
child         a process as a child, for its owner   run_dir       where a server keeps its sockets
wire/         the bytes of a message                transport/    mailboxes, over ZeroMQ and in memory
client/       the client library
"""
