"""Equipment rental on Mainspring: a paid checkout becomes an invoice and mails, fast and exactly once.

Being built: bookings and their holds, paid checkouts, the four kinds of jobs of a booking, links to documents, refunds,
cancellations and credit notes are there. Disputes, bounced mails, replaced documents, the daily report, import and the
demo are not, and `mainspring up` does not bring it yet. See docs/apps/rental.md.
"""
