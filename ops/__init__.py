"""What runs beside the product: load tools, generated documentation, service units. Never imported by the product."""
