"""Virtual time: databases whose clock can be moved, and due jobs run one by one; for tests, `up` and `simulate`."""
