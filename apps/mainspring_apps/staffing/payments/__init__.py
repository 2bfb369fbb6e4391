"""Money: a week's charge is reserved, sent and settled; escrow holds it until it is released or refunded."""
