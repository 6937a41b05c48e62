"""Consumers of kafka-python as members of a group."""

from __future__ import annotations

from kafka import KafkaConsumer

from kctl_agent.kafka.clients import take_up_forgotten_join


def until_assigned(consumer: KafkaConsumer) -> None:
    while not consumer.assignment():
        take_up_forgotten_join(consumer)
        consumer.poll(100)
