"""Where the heavy work runs: neighbours found, local systems solved, in threads or on a device."""
