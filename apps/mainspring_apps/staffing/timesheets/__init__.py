"""What time does to shifts and timesheets: reminders to clock out, messages to verify, approval."""
