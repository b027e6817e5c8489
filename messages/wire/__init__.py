"""The bytes of a message: base classes, arrays, the envelope around a message and the codec."""
