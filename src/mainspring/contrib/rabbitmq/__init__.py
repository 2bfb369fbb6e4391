"""RabbitMQ as a doorbell: workers look for jobs at once, and find them by polling when it is silent."""

from mainspring.contrib.rabbitmq.block import RabbitMQ
from mainspring.contrib.rabbitmq.config import QueueConfig, queue_config

__all__ = ["QueueConfig", "RabbitMQ", "queue_config"]
