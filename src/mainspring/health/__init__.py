"""How the system is: alerts, watches, measures, what holds a job, what a doctor would find."""
