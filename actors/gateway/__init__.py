"""The gateway: the room where clients come in. Owns requests: their journal, their text, their one ending."""
