"""Loads tables from outside and keeps them current: bulk loads, followers, change capture, side inputs."""
