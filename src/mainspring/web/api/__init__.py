"""The HTTP API: what people and programs see of jobs and do to them, below `/api/v1`.

A module of this room is a resource: its views and its operations; `resources` names them all. The rest is the frame:
`operation` declares, `inputs` reads, `perform` does it in one transaction, `asking` is what a handler gets, `paging`,
`version` and `refused` are what lists, single things and errors have in common.
"""
