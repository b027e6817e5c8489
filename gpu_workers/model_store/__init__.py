"""Where models come from: names, folders, conversion, configuration. Free of torch, so that a gateway may read it too."""
