"""Who may do what on a secured schema: the table that `mainspring schema secure` applies.

A new table or function of the engine must be added here; a test fails until somebody has said who may use it. What is
not named, such as an application's own tables in this schema, gets the policies and no rights: granting is its owner's.
"""

from __future__ import annotations

from typing import Final, Literal, LiteralString, TypeAlias

Role: TypeAlias = Literal["worker", "api", "operator"]
ROLES: Final[tuple[Role, ...]] = ("worker", "api", "operator")
#: A policy for each role, by the role's short name, and one for the owner.
POLICIES: Final = (*ROLES, "owner")

#: What a worker says of an event. Its id the database gives: one put in by hand would stand in the way of every seal.
AUDIT: Final = (
    "org_id, at, event, job_id, task, attempt, project_id, actor_type, actor_id, request_id, correlation_id, subject,"
    " detail, epoch"
)

#: What people may see of a webhook's endpoint: not the headers of its own, which may hold secrets.
ENDPOINT: Final = "org_id, id, url, events, description, prefix, state, reason, changed_at, created_at"

#: What operators may see of a queue whose organisations take turns: not which of them weigh more, nor whose turn it
#: was; `weights_of` tells them their own weight.
FAIR: Final = "org_id, queue, declared, app, set_at, set_by"

#: What each role does with a table itself: worker, api, operator. Everything else goes through the verbs below.
#: A lock (`for update`) needs the right to update; the triggers refuse the update of a job that has ended all the same.
TABLE_RIGHTS: Final[dict[str, tuple[str, str, str]]] = {
    "job": ("select, delete", "select", "select"),
    "waiting": ("select, insert, update, delete", "select", "select"),
    "running": ("select, insert, update, delete", "select", "select"),
    "finished": ("select, insert, update, delete", "select", "select"),
    "attempt": ("select, insert, delete", "select", "select"),
    "idempotency": ("select, update, delete", "select", "select"),
    "audit": (f"select, insert ({AUDIT})", "select", "select"),
    "seal": ("select", "", "select"),
    "resolution": ("select, delete", "select", "select"),
    "step": ("select, insert, delete", "select", "select"),
    "checkpoint": ("select, insert, update, delete", "select", "select"),
    "progress": ("select, insert, update, delete", "select", "select"),
    "batch": ("select, insert, update, delete", "select", "select"),
    "member": ("select, insert, update, delete", "select", "select"),
    "dependency": ("select, insert, update, delete", "select", "select"),
    "leftover": ("select, insert, update, delete", "", "select"),
    "cipher_key": ("select", "select", "select"),  # wrapped: worthless without the master key
    "queue": ("select", "", "select"),
    "limit": ("select, update (counted)", "", "select"),
    "bucket": ("select, insert, update, delete", "", "select"),
    "breaker": ("select, insert, update, delete", "", "select"),
    "slot": ("select, insert, update, delete", "", "select"),
    "quarantine": ("select, insert, update, delete", "", "select"),
    "share": ("select, insert, update, delete", "", "select"),
    "fair": ("select, update", "", f"select ({FAIR})"),
    "schedule": ("select, update", "select", "select"),
    "schedule_zone": ("select, insert, update, delete", "select", "select"),
    "fire": ("select, insert, delete", "select", "select"),
    "fan_out": ("select, insert, update, delete", "select", "select"),
    "inbound": ("select, delete", "select", "select"),
    "recipient": ("select", "select", ""),  # whoever looks into deliveries need not see addresses
    "notification": ("select, update, delete", "select", "select"),
    "inbox": ("select, insert, update, delete", "select", "select"),
    "webhook_endpoint": ("select, update (changed_at)", f"select ({ENDPOINT})", f"select ({ENDPOINT})"),
    "webhook_secret": ("select, delete", "", ""),  # for who signs with them; to rotate them nobody need read them
    "webhook_delivery": ("select, update, delete", "select", "select"),
    "alert": ("select, insert, update, delete", "select", "select"),
    "request": ("select, delete", "", ""),  # what people were answered is for them
    "worker": ("select, insert, update, delete", "", "select"),
    "access_token": ("", "", ""),  # these are read and written by verbs alone: nobody sees a digest
    "access_user": ("", "", ""),
    "access_session": ("", "", ""),
    "access_link": ("", "", ""),
    "access_try": ("", "", ""),
    "migration": ("select", "select", "select"),
    "verb": ("select", "select", "select"),
    "clock": ("select", "select", "select"),  # of test databases
}

#: Tables in which the engine's own rows, of the organisation SYSTEM, are seen beside those of the organisation, and by
#: whom. Elsewhere SYSTEM is an organisation like any other.
#: The audit of SYSTEM takes nothing from them but what is done to queues, which are everybody's.
SHARED: Final[dict[str, tuple[str, ...]]] = {
    "queue": ("worker", "operator", "owner"),
    "limit": ("worker", "operator", "owner"),
    "bucket": ("worker", "operator", "owner"),
    "breaker": ("worker", "operator", "owner"),
    "slot": ("worker", "operator", "owner"),
    "quarantine": ("worker", "operator", "owner"),
    "share": ("worker", "operator", "owner"),
    "fair": ("worker", "operator", "owner"),
    "worker": ("worker", "operator", "owner"),
    "access_token": ("owner",),  # verbs find them whatever organisation the transaction is bound to
    "access_user": ("owner",),
    "access_session": ("owner",),
    "access_link": ("owner",),
    "access_try": ("owner",),
    "audit": ("operator", "owner"),
    "seal": ("operator", "owner"),
    "migration": ("worker", "api", "operator", "owner"),
    "verb": ("worker", "api", "operator", "owner"),
    "clock": ("worker", "api", "operator", "owner"),
}

#: Of these an operator sees, among the rows of SYSTEM, what is everybody's and what is of its organisation: a limit
#: that counts by organisation or key names both in its gate.
GATED: Final = frozenset({"bucket", "slot", "share"})

#: What an operator sees among the rows of SYSTEM in other tables: of the trail nothing about people and tokens that are
#: bound to no organisation. Who is bound to SYSTEM sees it all.
SEEN: Final[dict[str, LiteralString]] = {"audit": "event !~ '^access[.]'"}

#: Which rows of SYSTEM are written where not all of them are.
WRITTEN: Final[dict[str, LiteralString]] = {"audit": "event ~ '^(queue|limit|breaker|quarantine|access)[.]'"}

SEQUENCES: Final[dict[str, tuple[str, str, str]]] = {
    "epoch": ("usage", "", ""),
    "idle_until": ("select, update", "", ""),
    "woken_at": ("select", "", ""),
}

#: Read by the right of who reads them.
VIEWS: Final = (
    "jobs",
    "attempts",
    "queues",
    "keys",
    "trail",
    "dead_letters",
    "batches",
    "notification_log",
    "deliveries",
)

EVERYBODY: Final[tuple[Role, ...]] = ROLES
WORKER_ONLY: Final[tuple[Role, ...]] = ("worker",)
OPERATOR: Final[tuple[Role, ...]] = ("operator",)
SERVER: Final[tuple[Role, ...]] = ("api", "operator")  # what serves HTTP connects as one of these

#: Verbs run as the owner of the schema, who is bound to the organisation of the transaction like everybody else: who
#: may call them needs no right to write to a table, and reaches no other organisation by them.
VERB_RIGHTS: Final[dict[str, tuple[Role, ...]]] = {
    "enqueue": EVERYBODY,
    "enqueue_many": EVERYBODY,
    "enqueue_batch": EVERYBODY,
    "close_batch": EVERYBODY,
    "cancel_batch": EVERYBODY,
    "retry_failed": OPERATOR,
    "enqueue_flow": EVERYBODY,
    "wake": EVERYBODY,
    "record_business": EVERYBODY,
    "cancel": EVERYBODY,
    "cancel_many": EVERYBODY,
    "reschedule": EVERYBODY,
    "prioritize": OPERATOR,
    "replay": OPERATOR,
    "replay_many": OPERATOR,
    "discard": OPERATOR,
    "discard_many": OPERATOR,
    "fix_forward": OPERATOR,
    "add_key": EVERYBODY,
    "rotate_key": OPERATOR,
    "erase": OPERATOR,
    "record_bulk": OPERATOR,
    "seal": WORKER_ONLY,
    "save_schedule": ("worker", "operator"),
    "undeclare_schedules": ("worker", "operator"),
    "create_schedule": OPERATOR,
    "pause_schedule": OPERATOR,
    "resume_schedule": OPERATOR,
    "delete_schedule": OPERATOR,
    "run_schedule": OPERATOR,
    "backfill_schedule": OPERATOR,
    "pause": OPERATOR,
    "resume": OPERATOR,
    "set_limit": OPERATOR,
    "reset_limit": OPERATOR,
    "drop_limit": OPERATOR,
    "set_fair": OPERATOR,
    "unset_fair": OPERATOR,
    "weights_of": ("worker", "operator"),
    "set_depth": OPERATOR,
    "open_breaker": OPERATOR,
    "close_breaker": OPERATOR,
    "auto_breaker": OPERATOR,
    "release_quarantine": OPERATOR,
    "declare_limits": WORKER_ONLY,
    "declare_queues": WORKER_ONLY,
    "receive": EVERYBODY,
    "save_recipient": EVERYBODY,
    "forget_recipient": EVERYBODY,
    "request_notifications": EVERYBODY,
    "read_inbox": EVERYBODY,
    "resend_notification": OPERATOR,
    "add_endpoint": EVERYBODY,
    "set_endpoint": EVERYBODY,
    "remove_endpoint": EVERYBODY,
    "rotate_secret": EVERYBODY,
    "publish": EVERYBODY,
    "redeliver": OPERATOR,
    "complete_in": ("worker", "api"),
    "open_alert": EVERYBODY,
    "close_alert": EVERYBODY,
    "create_token": OPERATOR,
    "revoke_token": OPERATOR,
    "list_tokens": OPERATOR,
    "check_token": SERVER,
    "create_user": OPERATOR,
    "change_user": OPERATOR,
    "set_password": OPERATOR,
    "list_users": OPERATOR,
    "create_link": OPERATOR,
    "try_sign_in": SERVER,
    "sign_in": SERVER,
    "sign_in_by_link": SERVER,
    "sign_in_vouched": OPERATOR,  # on a word alone: a stolen login of the application opens no session by it
    "check_session": SERVER,
    "list_sessions": SERVER,
    "end_sessions": SERVER,
    "list_user_sessions": OPERATOR,
    "end_user_sessions": OPERATOR,
    "prune_access": WORKER_ONLY,
    "begin_request": ("api", "operator"),
    "end_request": ("api", "operator"),
    "lock_for_change": ("api", "operator"),
}

#: These run by the rights of who calls them: readers of everybody, and what workers do, across organisations.
CALLS: Final[dict[str, tuple[Role, ...]]] = {
    "now": EVERYBODY,
    "instant": EVERYBODY,
    "speed": EVERYBODY,
    "place": EVERYBODY,
    "state_of": EVERYBODY,
    "readable": EVERYBODY,
    "job_of": EVERYBODY,
    "timer": EVERYBODY,
    "oldest_parked": EVERYBODY,
    "error_fingerprint": EVERYBODY,
    "payload_hash": EVERYBODY,
    "find_dead": EVERYBODY,
    "has_fired": EVERYBODY,
    "digest": ("worker", "operator"),
    "seal_hash": ("worker", "operator"),
    "claims_seen": OPERATOR,
    "claim": WORKER_ONLY,
    "complete": WORKER_ONLY,
    "complete_one": WORKER_ONLY,
    "fail_late": WORKER_ONLY,
    "settle": WORKER_ONLY,
    "renew": WORKER_ONLY,
    "rescue": WORKER_ONLY,
    "take_back_crashes": WORKER_ONLY,
    "is_quarantined": ("worker", "operator"),
    "not_quarantined": WORKER_ONLY,
    "next_alone": WORKER_ONLY,
    "note_probe": WORKER_ONLY,
    "has_killed": WORKER_ONLY,
    "has_not_killed": WORKER_ONLY,
    "end_quarantine": WORKER_ONLY,
    "record_quarantine": WORKER_ONLY,
    "release_held": WORKER_ONLY,
    "release_behind": WORKER_ONLY,
    "release_links": WORKER_ONLY,
    "leave": WORKER_ONLY,
    "claim_limited": WORKER_ONLY,
    "find_fair": WORKER_ONLY,
    "admit": WORKER_ONLY,
    "lock_gates": WORKER_ONLY,
    "gate_of": ("worker", "operator"),
    "is_virtual": WORKER_ONLY,
    "share_for": WORKER_ONLY,
    "pending": ("worker", "operator"),
    "used": ("worker", "operator"),
    "holds": ("worker", "operator"),
    "spare": ("worker", "operator"),
    "left_of": ("worker", "operator"),
    "part_of": WORKER_ONLY,
    "grant_share": WORKER_ONLY,
    "hear": WORKER_ONLY,
    "is_short": WORKER_ONLY,
    "is_leaving": WORKER_ONLY,
    "call_next": WORKER_ONLY,
    "shares": WORKER_ONLY,
    "lookback": ("worker", "operator"),
    "room": ("worker", "operator"),
    "opens_at": ("worker", "operator"),
    "enter": WORKER_ONLY,
    "count_in": WORKER_ONLY,
    "next_open": WORKER_ONLY,
    "forget_buckets": WORKER_ONLY,
    "declare_breakers": WORKER_ONLY,
    "report_calls": WORKER_ONLY,
    "ask_probe": WORKER_ONLY,
    "park_due": WORKER_ONLY,
    "release_gates": WORKER_ONLY,
    "release_gate": WORKER_ONLY,
    "call_probes": WORKER_ONLY,
    "probes_wanted": WORKER_ONLY,
    "next_call": WORKER_ONLY,
    "stopped_at": WORKER_ONLY,
    "is_paused": WORKER_ONLY,
    "forget_breakers": WORKER_ONLY,
    "breaker_state": ("worker", "operator"),
    "breaker_wait": ("worker", "operator"),
    "breaker_gate": ("worker", "operator"),
    "breaker_at": ("worker", "operator"),
    "endpoint_at": ("worker", "operator"),
    "report_finished": WORKER_ONLY,
    "note_ends": WORKER_ONLY,
    "propagate": WORKER_ONLY,
    "look_at_children": WORKER_ONLY,
    "look_at_batches": WORKER_ONLY,
    "stop_members": WORKER_ONLY,
    "ask_to_stop": WORKER_ONLY,
    "unasked": WORKER_ONLY,
    "drop_waiting": WORKER_ONLY,
    "open_gate": WORKER_ONLY,
    "record_batch": WORKER_ONLY,
    "settle_leftovers": WORKER_ONLY,
    "mark_linked": WORKER_ONLY,
    "end_of": WORKER_ONLY,
    "join_batch": WORKER_ONLY,
    "add_members": WORKER_ONLY,
    "take_over": WORKER_ONLY,
    "split": WORKER_ONLY,
    "reopen_batch": WORKER_ONLY,
    "prune_flows": WORKER_ONLY,
    "next_due": WORKER_ONLY,
    "raise_idle": WORKER_ONLY,
    "record": WORKER_ONLY,
    "record_start": WORKER_ONLY,
    "cancellation": WORKER_ONLY,
    "cancelled": WORKER_ONLY,
    "held": WORKER_ONLY,
    "remember": WORKER_ONLY,
    "save_checkpoint": WORKER_ONLY,
    "report": WORKER_ONLY,
    "forget": WORKER_ONLY,
    "prune": WORKER_ONLY,
    "prune_fires": WORKER_ONLY,
    "fires_after": WORKER_ONLY,
    "verb": WORKER_ONLY,
    "is_guest": WORKER_ONLY,
    "reserve_notification": WORKER_ONLY,
}

#: Parts of verbs, and triggers: nobody calls them.
PARTS: Final = frozenset({
    "uuid7", "plausible", "envelopes", "fingerprint", "write_job", "reset_job", "replace_job", "enqueue_again",
    "is_held",
    "refuse", "check_text", "check_actor", "check_secrets", "check_payload", "check_instant", "check_span", "check_job",
    "check_jobs", "check_batch", "check_links", "reopen", "give_up", "links_of", "hold", "check_room", "check_limit",
    "rule_of", "declared_limit", "put_limit", "put_fair", "index_fair", "record_limit", "reconsider", "free_buckets",
    "free_shares",
    "record_queue", "force_breaker", "breaker_facts", "lock_key", "lock_ended", "take_key", "seize",
    "guard_job", "guard_finished", "guard_append_only",
    "record_endpoint", "delivery_job",
    "record_schedule", "definition", "guard_fire", "cron_values", "check_cron", "write_notifications",
    "same_digest", "lived", "concerns", "reachable", "check_access", "record_access", "way_in", "access_facts",
    "session_lives", "end_openings", "record_user",
    "principal_of", "session_row", "end_sessions_of", "open_session", "take_try", "try_slot",
})  # fmt: skip


def rights(kind: dict[str, tuple[str, str, str]], name: str) -> dict[Role, str]:
    """What each role may do with a table or a sequence."""
    return dict(zip(ROLES, kind.get(name, ("", "", "")), strict=True))
