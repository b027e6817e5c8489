"""`supervisor top`: what a server does now, on one screen."""
