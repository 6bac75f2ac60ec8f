"""Search presets as TOML; packaged as `autocompile.strategies`. No code."""
