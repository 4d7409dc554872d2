"""Pulses that control open quantum systems whose environment varies from task to task."""
