"""The room `segment/codecs`: the codecs: one door, and a module for each framing."""
