"""Where the time of an exec goes: the kernel's own time stamps of system calls and of the scheduler.

Used by tests/bench/run profile. Nothing in sandpool takes part: a trace instance of the kernel notes
the few calls that mark the way (tracefs; no perf, no BPF). The stamps cost about a microsecond each,
so the sums are some 5 % above what the other sections say; what counts is the proportion.
"""

import contextlib
import os
import pathlib
import re
import statistics
import subprocess
import time

TRACEFS = pathlib.Path("/sys/kernel/tracing")
CALLS = ("sendto", "recvfrom", "sendmsg", "recvmsg", "clone", "clone3", "vfork", "setsid", "seccomp",
         "execve", "exit_group", "wait4", "waitid", "clock_nanosleep")
EVENT = re.compile(r"^\s*.+-(\d+)\s+\[\d+\]\s+\S+\s+(\d+\.\d+): (.*)$")

# From one stamp to the next, in order; what happens between them.
EXEC_STEPS = (
    ("client sends START", "wake up the daemon"),
    ("daemon has it", "check, JSON, pipes, descriptors"),
    ("daemon sends EXEC", "wake up init"),
    ("init has it", "strings, limits"),
    ("init clones", "clone3 into the sub-cgroup, first run of the child"),
    ("child begins", "session, descriptors, limits, ids, directory"),
    ("child loads its filter", "seccomp, last uid"),
    ("child calls execve", "execve"),
    ("program begins", "loader, libc, main"),
    ("program exits", "exit in the kernel, wake up init"),
    ("init reaped it", "report"),
    ("init sends EXITED", "wake up the daemon"),
    ("daemon has it back", "drain pipes, peak memory, JSON"),
    ("daemon sends RESULT", "wake up the client"),
    ("client has RESULT", ""),
)
SPAWN_STEPS = (
    ("client clones", "vfork, first run of the child"),
    ("child calls execve", "execve"),
    ("program begins", "loader, libc, main"),
    ("program exits", "exit in the kernel, wake up the client"),
    ("client reaped it", ""),
)


@contextlib.contextmanager
def instance(pids):
    """A trace buffer of our own that sees these processes and their children."""
    path = TRACEFS / "instances" / f"sandpool-bench-{os.getpid()}"
    path.mkdir()
    try:
        (path / "trace_clock").write_text("mono")
        (path / "buffer_size_kb").write_text("16384")
        (path / "options" / "event-fork").write_text("1")
        (path / "set_event_pid").write_text(" ".join(map(str, pids)))
        for name in CALLS:
            for side in ("enter", "exit"):
                (path / "events" / "syscalls" / f"sys_{side}_{name}" / "enable").write_text("1")
        (path / "events" / "sched" / "sched_process_exec" / "enable").write_text("1")
        yield path
    finally:
        (path / "tracing_on").write_text("0")
        for _ in range(50):
            with contextlib.suppress(OSError):
                path.rmdir()
                break
            time.sleep(0.1)


def parse(text):
    """[(µs, pid, kind, value)]; kind is ">call" or "<call", value what it returned."""
    events = []
    for line in text.splitlines():
        match = EVENT.match(line)
        if not match:
            continue
        pid, stamp, rest = int(match[1]), float(match[2]) * 1e6, match[3]
        enter = re.match(r"sys_(\w+)\(", rest)
        leave = re.match(r"sys_(\w+) -> (0x[0-9a-f]+)", rest)
        if enter:
            events.append((stamp, pid, ">" + enter[1], 0))
        elif leave:
            value = int(leave[2], 16)
            events.append((stamp, pid, "<" + leave[1], value - (1 << 64) if value >> 63 else value))
        elif rest.startswith("sched_process_exec:"):
            events.append((stamp, pid, "exec", 0))
    return events


def first(events, pids, kind, after=0.0, least=None):
    for stamp, pid, what, value in events:
        if stamp >= after and pid in pids and what == kind and (least is None or value >= least):
            return stamp
    raise LookupError(kind)


def last(events, pids, kind, before, least=None):
    return first([event for event in reversed(events) if event[0] <= before], pids, kind,
                 least=least)


def operations(events, client):
    """Each from the client's first step to its pause."""
    begin = None
    for index, (_, pid, kind, _) in enumerate(events):
        if pid != client:
            continue
        if begin is None and kind in (">sendto", ">clone", ">clone3", ">vfork"):
            begin = index
        elif begin is not None and kind == ">clock_nanosleep":
            yield events[begin:index]
            begin = None


def exec_stamps(events, client, daemon, inits):
    children = {pid for _, pid, kind, _ in events if kind == "exec"}
    sent = events[0][0]
    daemon_has = first(events, {daemon}, "<recvfrom", sent, 1)
    daemon_sends = first(events, {daemon}, ">sendmsg", daemon_has)
    init_has = first(events, inits, "<recvmsg", daemon_sends, 1)
    clones = first(events, inits, ">clone3", init_has)
    child = first(events, children, ">setsid", clones)
    filtered = first(events, children, ">seccomp", child)
    execve = first(events, children, ">execve", filtered)
    program = first(events, children, "exec", execve)
    exits = first(events, children, ">exit_group", program)
    reaped = first(events, inits, "<wait4", exits, 1)
    reports = first(events, inits, ">sendmsg", reaped)
    result = last(events, {client}, "<recvfrom", events[-1][0], 1)
    answers = last(events, {daemon}, ">sendto", result)
    back = last(events, {daemon}, "<recvmsg", answers, 1)
    return [sent, daemon_has, daemon_sends, init_has, clones, child, filtered, execve, program,
            exits, reaped, reports, back, answers, result]


def spawn_stamps(events, client):
    children = {pid for _, pid, kind, _ in events if kind == "exec"}
    execve = first(events, children, ">execve")
    program = first(events, children, "exec", execve)
    exits = first(events, children, ">exit_group", program)
    kinds = {kind for _, pid, kind, _ in events if pid == client}
    reaped = first(events, {client}, "<wait4" if "<wait4" in kinds else "<waitid", exits, 0)
    return [events[0][0], execve, program, exits, reaped]


def show(title, steps, rows):
    """rows: stamps of each operation."""
    print(f"\n== {title}, median of {len(rows)}, µs")
    since = 0.0
    for number, (what, meanwhile) in enumerate(steps):
        print(f"  {since:8.0f}  {what}")
        if meanwhile:
            took = statistics.median(row[number + 1] - row[number] for row in rows)
            print(f"          {took:8.0f}  {meanwhile}")
            since += took
    print(f"  whole: {statistics.median(row[-1] - row[0] for row in rows):.0f}", flush=True)


def section(bench, daemon, rounds, command):
    """bench: the measuring client; daemon: a running one, settled."""
    if not (TRACEFS / "instances").is_dir() or not (TRACEFS / "events" / "syscalls").is_dir():
        print("\n== profile: no tracefs with system call events here, left out")
        return
    pids = {pid: pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
            for pid in daemon.processes()}
    server = next(pid for pid, name in pids.items() if name == "sandpoold")
    with instance(pids) as trace:
        # Joins those that are seen, then becomes the client.
        join = ["/bin/sh", "-c", 'echo $$ >> "$0" && exec "$@"', str(trace / "set_event_pid")]
        with subprocess.Popen([*join, str(bench), "api", daemon.socket_path, "default", "se",
                               str(rounds), "1000", *command],
                              stdout=subprocess.DEVNULL) as client:
            pass
        (trace / "tracing_on").write_text("0")
        events = parse((trace / "trace").read_text(errors="replace"))
    inits = set(pids) - {server}
    execs, spawns = [], []
    for operation in operations(events, client.pid):
        with contextlib.suppress(LookupError):
            if operation[0][2] == ">sendto":
                execs.append(exec_stamps(operation, client.pid, server, inits))
            else:
                spawns.append(spawn_stamps(operation, client.pid))
    if not execs or not spawns:
        print("\n== profile: nothing was recorded")
        return
    show(f"posix_spawn of {command[0]}, 1 ms apart", SPAWN_STEPS, spawns)
    show(f"exec of {command[0]} in a held sandbox, 1 ms apart", EXEC_STEPS, execs)
