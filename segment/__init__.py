"""The room `segment`: the format library: everything that knows how bytes lie on disk."""
