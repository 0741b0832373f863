"""`verify` and `recover`: check logs and repair them."""
