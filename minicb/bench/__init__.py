"""Measuring: workloads, peers, clocks, reports. Imports the core; the core imports nothing from here."""
