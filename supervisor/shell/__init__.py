"""Commands that print what a shell or an editor needs: completion, a sample configuration."""
