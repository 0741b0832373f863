"""The room `spark`: the same operations over a cluster."""
