"""A user's script as it is, run and watched: which modules it calls, with what, how often and for how long."""
