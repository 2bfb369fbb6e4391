"""What a promotion costs: nothing that was acknowledged, and no write to the server that was replaced."""

from __future__ import annotations

from tests.databases import RunClusters
from tests.proofs.surroundings import failover


def test_a_promoted_standby_goes_on_with_every_acknowledged_job_and_the_old_primary_gets_no_write(
    run: RunClusters, worker_id: str
) -> None:
    folder = run.path / "memory" / f"failover-{worker_id}"
    folder.mkdir()
    folder.chmod(0o755)

    result = failover.run(folder, 1, seconds=0.6)

    assert (result.lost, result.doubled, result.unfinished) == (0, 0, 0)
    assert result.acknowledged > 50
    assert result.tempted > 0  # somebody did ask the old primary
    assert result.strayed == 0
    assert max(result.resumed) < 5
