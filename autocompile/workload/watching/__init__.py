"""Run a user's unchanged script and watch which modules it calls, with what, how often and for how long."""
