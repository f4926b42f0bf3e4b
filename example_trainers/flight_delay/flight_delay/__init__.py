"""Predicts how late a flight arrives from what is known when it departs."""
