"""Speculation: proposes draft tokens, which the model verifies. Its death costs speed only."""
