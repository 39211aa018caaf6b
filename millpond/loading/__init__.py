"""Tables that are filled from outside: bulk loads, followers, change capture, side inputs."""
