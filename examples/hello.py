"""The smallest application: one task, one job, its result.

With a PostgreSQL of yours, or the one that `mainspring up` starts and names:

    export MAINSPRING_DSN="host=... dbname=..."
    mainspring schema migrate
    mainspring worker run --app examples.hello:app     # in another terminal
    python -m examples.hello
"""

import mainspring as ms

tasks = ms.Registry("hello")


@tasks.task
async def greet(*, name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


app = ms.App(tasks)


def main() -> None:
    with app.client() as client:
        job = client.enqueue(greet.job(name="Ada"))
        print(client.result(job.id))


if __name__ == "__main__":
    main()
