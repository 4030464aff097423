"""The mesh as tools of the Model Context Protocol: what a CLI agent in a session can ask and tell.

One server for all agents over HTTP, or one for a single agent on standard input and output. Whoever calls acts as one
agent, and as no other. Looking changes nothing (I4); only `ack_message` does.
"""
