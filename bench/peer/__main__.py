"""``python -m bench.peer [--resume] [NAME…]``: the shipped servers of NeMo Gym in our images; all of the list, or those named; then our
records beside its own (``beside``, or ``beside/ENVIRONMENT_SERVER``).

Writes docs/peer-servers.md after every server. Exit 1 when one that used to work does not (by the page as it was before), or when records
differ. ``--resume`` goes on with a run that was interrupted, and compares with the page as it was before that one.
``GYM_COMPOSE_PEER_ROOT`` is an unpacked wheel (default: .cache/peer), ``GYM_COMPOSE_SHARED`` holds tools/ and golden/ (default: ../shared).
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from bench.mock import mock
from bench.peer.beside import COMPARISONS, compare
from bench.peer.case import Case, read_cases
from bench.peer.journal import Journal
from bench.peer.report import Line, lost, read, read_compared, text
from bench.peer.room import Room
from bench.peer.run import Outcome, environment, run_case
from gym_compose.project.assets import root

PARALLEL = 2


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.peer", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a server's name or TYPE/NAME; all without one")
    parser.add_argument("--parallel", type=int, default=PARALLEL, help=f"cases at a time (default: {PARALLEL})")
    parser.add_argument("--resume", action="store_true", help="go on with the run that was interrupted")
    arguments = parser.parse_args()
    cases = read_cases()
    chosen = [case for case in cases if not arguments.names or {case.name, case.label} & set(arguments.names)]
    beside = [pair for pair in COMPARISONS if not arguments.names or {"beside", pair.label} & set(arguments.names)]
    if not chosen and not beside:
        print("no server of the list has such a name", file=sys.stderr)
        return 2
    peer_root = Path(os.environ.get("GYM_COMPOSE_PEER_ROOT", root() / ".cache" / "peer")).resolve()
    shared = Path(os.environ.get("GYM_COMPOSE_SHARED", root().parent / "shared"))
    if not (peer_root / "nemo_gym").is_dir():
        print(f"no unpacked nemo-gym wheel at {peer_root}: set GYM_COMPOSE_PEER_ROOT", file=sys.stderr)
        return 2
    page = root() / "docs" / "peer-servers.md"
    compared = read_compared(page)
    journal = Journal(root() / ".cache" / "peer-run.jsonl", read(page), resume=arguments.resume)
    left = [case for case in chosen if case.label not in journal.done]
    if len(left) < len(chosen):
        print(f"{len(chosen) - len(left)} of {len(chosen)} are done", flush=True)
    labels = [case.label for case in cases]
    with mock(shared / "tools") as url, ThreadPoolExecutor(max(1, arguments.parallel)) as pool:
        room = Room()
        running = [pool.submit(one, case, peer_root, url, room) for case in left]
        try:
            for number, future in enumerate(as_completed(running), 1 + len(chosen) - len(left)):
                outcome = future.result()
                line = Line.of(outcome)
                journal.add(outcome.label, line)
                page.write_text(text({**journal.before, **journal.done}, labels, compared.values()), encoding="utf-8")
                said = f"ready {line.ready}, rollout {line.rollout or '-'} {line.reason}"
                print(f"{number}/{len(chosen)} {outcome.label}: {said}", flush=True)
        except BaseException:  # Ctrl+C: those that run are stopped in order, the others are not begun
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        for pair in beside:
            found = compare(pair, peer_root, shared, url, environment())
            compared[pair.label] = found
            page.write_text(text({**journal.before, **journal.done}, labels, compared.values()), encoding="utf-8")
            print(f"{pair.label}: {found.rollouts} rollouts, differences: {'; '.join(found.differences) or 'none'}", flush=True)
    worse = lost(journal.before, {case.label: journal.done[case.label] for case in chosen})
    for label in worse:
        print(f"{label} used to work: {journal.done[label].reason or 'no rollout'}", file=sys.stderr)
    differ = [pair.label for pair in beside if compared[pair.label].differences]
    for label in differ:
        print(f"{label}: records or metrics differ from NeMo Gym's", file=sys.stderr)
    return 1 if worse or differ else 0


def one(case: Case, peer_root: Path, url: str, room: Room) -> Outcome:
    """One case, once there is room for it. Never raises: a fault of ours is printed with its traceback, and is the case's reason."""
    room.enter()
    images: tuple[str, ...] = ()
    try:
        outcome = run_case(case, peer_root, url, environment())
        images = outcome.images
        return outcome
    except Exception as error:  # noqa: BLE001  a fault of ours in one case must not cost the hours of the others; the page says it
        traceback.print_exc()
        return Outcome(case.label, reason=f"a fault of gym_compose: {type(error).__name__}: {error}")
    finally:
        room.leave(images)


if __name__ == "__main__":
    sys.exit(main())
