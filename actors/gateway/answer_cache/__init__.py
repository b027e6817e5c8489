"""Answers that are kept, so that an equal request is answered without computing it again."""
