"""A staffing marketplace on Mainspring: weekly payments, escrow, insurance, timesheets and disputes, by the clock.

Business events are functions that a web application calls inside its own transaction; everything that happens without a
user is a job. See docs/apps/staffing.md.
"""
