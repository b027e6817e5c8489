"""The plots of the documents."""
