"""Equipment rental on Mainspring: a paid checkout becomes an invoice and mails, fast and exactly once.

Being built: machines and bookings, the webhook of a paid checkout, the four kinds of jobs of a booking and the link to
its invoice are there. Refunds, credit notes, disputes, the daily report and the demo are not, and `mainspring up` does
not bring it yet. See docs/rules/rental.md.
"""
