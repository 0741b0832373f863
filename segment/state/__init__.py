"""The room `segment/state`: what a replay of the log knows: producers, transactions, leader epochs, control records."""
