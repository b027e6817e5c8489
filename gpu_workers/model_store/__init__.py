"""Where models come from: names, folders, conversion, configuration. Free of torch."""
