"""What happens when things go wrong: tried again, given up, put off, or never enqueued twice.

mainspring worker run --app examples.failures:app
python -m examples.failures
"""

from datetime import timedelta

import mainspring as ms

tasks = ms.Registry("failures")


@tasks.task(retry=ms.exponential(base=1, cap=60, attempts=5))
async def call_provider(ctx: ms.Context, *, fails: int) -> str:
    """Fail a few times: any exception means that the job is tried again, later and later."""
    if ctx.job.attempt <= fails:
        raise ConnectionError("the provider did not answer")
    return f"answered at attempt {ctx.job.attempt}"


@tasks.task
async def obey_provider() -> None:
    """Come back when the provider says so, and not before."""
    raise ms.RetryAfter(120, "too many requests")


@tasks.task
async def charge_closed_account(*, account_id: int) -> None:
    """Give up at once where trying again cannot help: the job is `failed`, for a person to look at."""
    raise ms.Permanent(f"account {account_id} is closed")


@tasks.task
async def wait_for_file(*, name: str) -> None:
    """Look again later, without counting it as a failure."""
    raise ms.Snooze(timedelta(minutes=5))


@tasks.task(dedupe=ms.dedupe.debounce("{document_id}", wait=timedelta(seconds=2)))
async def index_document(*, document_id: int) -> None:
    """Run once, two seconds after the last change, however many changes there were."""


app = ms.App(tasks)


def main() -> None:
    with app.client() as client:
        client.enqueue(call_provider.job(fails=2))
        client.enqueue(obey_provider.job())
        client.enqueue(charge_closed_account.job(account_id=7))
        client.enqueue(wait_for_file.job(name="report.pdf"))
        for _ in range(10):
            answer = client.enqueue(index_document.job(document_id=7))
        print(f"ten changes, one job: {answer.answer}")


if __name__ == "__main__":
    main()
